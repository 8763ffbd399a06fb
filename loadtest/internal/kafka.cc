#include "loadtest/internal/kafka.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"

namespace postrider::loadtest::internal {
namespace {

constexpr size_t kTopicsPerRequest = 50;
constexpr size_t kErrorSize = 512;

// Shared properties go to producers and consumers alike; that half of them is not theirs is no
// news.
void LogWithoutWarnings(const rd_kafka_t* kafka, int level, const char* facility,
                        const char* text) {
  if (strcmp(facility, "CONFWARN") != 0) rd_kafka_log_print(kafka, level, facility, text);
}

absl::StatusOr<KafkaPtr<rd_kafka_t>> Make(rd_kafka_type_t type, const Properties& properties,
                                          DeliveryReport report, void* opaque) {
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  char error[kErrorSize];
  for (const auto& [name, value] : properties) {
    if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error, sizeof(error)) !=
        RD_KAFKA_CONF_OK) {
      rd_kafka_conf_destroy(conf);
      return absl::InvalidArgumentError(absl::StrCat("loadtest: ", error));
    }
  }
  if (report != nullptr) rd_kafka_conf_set_dr_msg_cb(conf, report);
  rd_kafka_conf_set_opaque(conf, opaque);
  rd_kafka_conf_set_log_cb(conf, &LogWithoutWarnings);
  rd_kafka_t* kafka = rd_kafka_new(type, conf, error, sizeof(error));
  if (kafka == nullptr) {
    rd_kafka_conf_destroy(conf);
    return absl::InvalidArgumentError(absl::StrCat("loadtest: ", error));
  }
  return KafkaPtr<rd_kafka_t>(kafka);
}

absl::Status CreateChunk(rd_kafka_t* kafka, const std::vector<std::string>& topics, int partitions,
                         int timeout_ms) {
  std::vector<rd_kafka_NewTopic_t*> specs;
  char error[kErrorSize];
  for (const std::string& topic : topics) {
    specs.push_back(rd_kafka_NewTopic_new(topic.c_str(), partitions, -1, error, sizeof(error)));
  }
  KafkaPtr<rd_kafka_queue_t> queue(rd_kafka_queue_new(kafka));
  rd_kafka_AdminOptions_t* options =
      rd_kafka_AdminOptions_new(kafka, RD_KAFKA_ADMIN_OP_CREATETOPICS);
  rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, error, sizeof(error));
  rd_kafka_CreateTopics(kafka, specs.data(), specs.size(), options, queue.get());
  rd_kafka_AdminOptions_destroy(options);
  rd_kafka_NewTopic_destroy_array(specs.data(), specs.size());
  KafkaPtr<rd_kafka_event_t> event(rd_kafka_queue_poll(queue.get(), timeout_ms + 5000));
  if (event == nullptr) return absl::DeadlineExceededError("loadtest: CreateTopics: no answer");
  if (rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return absl::UnavailableError(
        absl::StrCat("loadtest: CreateTopics: ", rd_kafka_event_error_string(event.get())));
  }
  size_t count = 0;
  const rd_kafka_topic_result_t** results =
      rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event.get()), &count);
  for (size_t i = 0; i < count; ++i) {
    const rd_kafka_resp_err_t code = rd_kafka_topic_result_error(results[i]);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR && code != RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) {
      return absl::UnavailableError(absl::StrCat("loadtest: topic ",
                                                 rd_kafka_topic_result_name(results[i]), ": ",
                                                 rd_kafka_err2str(code)));
    }
  }
  return absl::OkStatus();
}

// The topics of `wanted` that have a leader for each partition.
std::set<std::string> Ready(rd_kafka_t* kafka, const std::set<std::string>& wanted) {
  std::set<std::string> ready;
  const rd_kafka_metadata_t* metadata = nullptr;
  if (rd_kafka_metadata(kafka, 1, nullptr, &metadata, 5000) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return ready;
  }
  for (int i = 0; i < metadata->topic_cnt; ++i) {
    const rd_kafka_metadata_topic& topic = metadata->topics[i];
    if (topic.err != RD_KAFKA_RESP_ERR_NO_ERROR || wanted.count(topic.topic) == 0) continue;
    bool led = topic.partition_cnt > 0;
    for (int p = 0; p < topic.partition_cnt; ++p) led = led && topic.partitions[p].leader >= 0;
    if (led) ready.insert(topic.topic);
  }
  rd_kafka_metadata_destroy(metadata);
  return ready;
}

}  // namespace

absl::StatusOr<Properties> ParseProperties(absl::string_view text) {
  Properties properties;
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const size_t at = part.find('=');
    if (at == absl::string_view::npos || at == 0) {
      return absl::InvalidArgumentError(absl::StrCat("loadtest: no property: ", part));
    }
    properties.emplace_back(std::string(part.substr(0, at)), std::string(part.substr(at + 1)));
  }
  return properties;
}

absl::StatusOr<KafkaPtr<rd_kafka_t>> MakeProducer(const Properties& properties,
                                                  DeliveryReport report, void* opaque) {
  Properties all = {{"enable.idempotence", "true"},
                    {"acks", "all"},
                    {"message.timeout.ms", "0"},
                    {"linger.ms", "5"},
                    {"queue.buffering.max.messages", "200000"}};
  all.insert(all.end(), properties.begin(), properties.end());
  return Make(RD_KAFKA_PRODUCER, all, report, opaque);
}

absl::StatusOr<KafkaPtr<rd_kafka_t>> MakeConsumer(const Properties& properties) {
  Properties all = {{"enable.auto.commit", "false"},
                    {"enable.auto.offset.store", "false"},
                    {"group.id", "postrider-loadtest"},
                    {"auto.offset.reset", "latest"}};
  all.insert(all.end(), properties.begin(), properties.end());
  ASSIGN_OR_RETURN(KafkaPtr<rd_kafka_t> consumer, Make(RD_KAFKA_CONSUMER, all, nullptr, nullptr));
  rd_kafka_poll_set_consumer(consumer.get());
  return consumer;
}

absl::Status CreateTopics(rd_kafka_t* kafka, const std::vector<std::string>& topics, int partitions,
                          int timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  std::set<std::string> missing(topics.begin(), topics.end());
  for (const std::string& ready : Ready(kafka, missing)) missing.erase(ready);
  const std::vector<std::string> to_create(missing.begin(), missing.end());
  for (size_t from = 0; from < to_create.size(); from += kTopicsPerRequest) {
    const size_t to = std::min(to_create.size(), from + kTopicsPerRequest);
    const std::vector<std::string> chunk(to_create.begin() + static_cast<std::ptrdiff_t>(from),
                                         to_create.begin() + static_cast<std::ptrdiff_t>(to));
    RETURN_IF_ERROR(CreateChunk(kafka, chunk, partitions, timeout_s * 1000));
    // The broker makes the logs one by one after it has answered.
    std::set<std::string> waiting(chunk.begin(), chunk.end());
    while (!waiting.empty()) {
      for (const std::string& ready : Ready(kafka, waiting)) waiting.erase(ready);
      if (waiting.empty()) break;
      if (std::chrono::steady_clock::now() > deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("loadtest: ", waiting.size(), " topics have no leader"));
      }
      rd_kafka_poll(kafka, 50);
    }
  }
  return absl::OkStatus();
}

absl::Status DeleteTopics(rd_kafka_t* kafka, const std::vector<std::string>& topics) {
  std::vector<rd_kafka_DeleteTopic_t*> specs;
  for (const std::string& topic : topics) specs.push_back(rd_kafka_DeleteTopic_new(topic.c_str()));
  KafkaPtr<rd_kafka_queue_t> queue(rd_kafka_queue_new(kafka));
  rd_kafka_DeleteTopics(kafka, specs.data(), specs.size(), nullptr, queue.get());
  rd_kafka_DeleteTopic_destroy_array(specs.data(), specs.size());
  KafkaPtr<rd_kafka_event_t> event(rd_kafka_queue_poll(queue.get(), 60000));
  if (event == nullptr || rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return absl::UnavailableError("loadtest: DeleteTopics failed");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListTopics(rd_kafka_t* kafka,
                                                    const std::vector<std::string>& prefixes) {
  const rd_kafka_metadata_t* metadata = nullptr;
  const rd_kafka_resp_err_t code = rd_kafka_metadata(kafka, 1, nullptr, &metadata, 30000);
  if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return absl::UnavailableError(absl::StrCat("loadtest: metadata: ", rd_kafka_err2str(code)));
  }
  std::vector<std::string> names;
  for (int i = 0; i < metadata->topic_cnt; ++i) {
    const std::string name = metadata->topics[i].topic;
    for (const std::string& prefix : prefixes) {
      if (name.compare(0, prefix.size(), prefix) != 0) continue;
      names.push_back(name);
      break;
    }
  }
  rd_kafka_metadata_destroy(metadata);
  return names;
}

}  // namespace postrider::loadtest::internal
