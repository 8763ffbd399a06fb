#include "loadtest/consume.h"

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "loadtest/internal/kafka.h"

namespace postrider::loadtest {
namespace {

using internal::KafkaPtr;
using internal::Properties;

constexpr int kAnswerMs = 10'000;

struct FreeList {
  void operator()(rd_kafka_topic_partition_list_t* list) const {
    rd_kafka_topic_partition_list_destroy(list);
  }
  void operator()(const rd_kafka_metadata_t* metadata) const {
    rd_kafka_metadata_destroy(metadata);
  }
};

absl::Status Fault(const ConsumeOptions& options, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("loadtest: consume ", options.topic, ": ", why));
}

void Print(const rd_kafka_message_t& message, bool with_headers) {
  const absl::string_view value(static_cast<const char*>(message.payload), message.len);
  if (!with_headers) {
    std::cout << value << '\n';
    return;
  }
  rd_kafka_headers_t* headers = nullptr;
  if (rd_kafka_message_headers(&message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    const char* name = nullptr;
    const void* content = nullptr;
    size_t size = 0;
    for (size_t i = 0;
         rd_kafka_header_get_all(headers, i, &name, &content, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
         ++i) {
      std::cout << name << '='
                << absl::CHexEscape(absl::string_view(static_cast<const char*>(content), size))
                << '\t';
    }
  }
  std::cout << absl::Base64Escape(value) << '\n';
}

absl::StatusOr<int32_t> PartitionCount(rd_kafka_t* kafka, const ConsumeOptions& options) {
  const KafkaPtr<rd_kafka_topic_t> topic(rd_kafka_topic_new(kafka, options.topic.c_str(), nullptr));
  const rd_kafka_metadata_t* raw = nullptr;
  const rd_kafka_resp_err_t code = rd_kafka_metadata(kafka, 0, topic.get(), &raw, kAnswerMs);
  if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return Fault(options, rd_kafka_err2str(code));
  const std::unique_ptr<const rd_kafka_metadata_t, FreeList> metadata(raw);
  if (metadata->topic_cnt != 1 || metadata->topics[0].err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return Fault(options, "there is no such topic");
  }
  return metadata->topics[0].partition_cnt;
}

}  // namespace

absl::Status Consume(const ConsumeOptions& options) {
  Properties properties;
  ASSIGN_OR_RETURN(properties, internal::ParseProperties(options.properties));
  properties.insert(properties.begin(), {"bootstrap.servers", options.brokers});
  ASSIGN_OR_RETURN(KafkaPtr<rd_kafka_t> kafka, internal::MakeConsumer(properties));
  ASSIGN_OR_RETURN(const int32_t partitions, PartitionCount(kafka.get(), options));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout_s);
  uint64_t printed = 0;
  const auto enough = [&] { return options.records_max > 0 && printed >= options.records_max; };
  for (int32_t partition = 0; partition < partitions && !enough(); ++partition) {
    int64_t next = 0;
    int64_t end = 0;
    const rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(
        kafka.get(), options.topic.c_str(), partition, &next, &end, kAnswerMs);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return Fault(options, rd_kafka_err2str(code));
    const std::unique_ptr<rd_kafka_topic_partition_list_t, FreeList> list(
        rd_kafka_topic_partition_list_new(1));
    rd_kafka_topic_partition_list_add(list.get(), options.topic.c_str(), partition)->offset = next;
    rd_kafka_assign(kafka.get(), list.get());
    while (next < end && !enough()) {
      if (std::chrono::steady_clock::now() > deadline) return Fault(options, "took too long");
      const KafkaPtr<rd_kafka_message_t> message(rd_kafka_consumer_poll(kafka.get(), 100));
      if (message == nullptr || message->err != RD_KAFKA_RESP_ERR_NO_ERROR) continue;
      if (message->partition != partition) continue;
      next = message->offset + 1;
      if (message->offset >= end) break;
      Print(*message, options.headers);
      ++printed;
    }
  }
  std::cout.flush();
  return absl::OkStatus();
}

}  // namespace postrider::loadtest
