#include "loadtest/generate.h"

#include <chrono>
#include <deque>
#include <fstream>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "loadtest/event_source.h"
#include "loadtest/internal/api_sink.h"
#include "loadtest/internal/event_sink.h"
#include "loadtest/internal/kafka.h"
#include "loadtest/ledger.h"

namespace postrider::loadtest {
namespace {

using internal::EventSink;
using internal::KafkaPtr;
using internal::MakeProducer;
using internal::Properties;
using SteadyClock = std::chrono::steady_clock;

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

absl::StatusOr<Properties> ClientProperties(const std::string& brokers, const std::string& more) {
  ASSIGN_OR_RETURN(Properties properties, internal::ParseProperties(more));
  properties.insert(properties.begin(), {"bootstrap.servers", brokers});
  return properties;
}

class KafkaSink final : public EventSink {
 public:
  KafkaSink(const Plan& plan) : plan_(plan) {}

  absl::Status Open(const GenerateOptions& options) {
    ASSIGN_OR_RETURN(Properties properties, ClientProperties(options.brokers, options.properties));
    ASSIGN_OR_RETURN(kafka_, MakeProducer(properties, &KafkaSink::Report, nullptr));
    for (uint32_t type = 0; type < plan_.options().topics; ++type) {
      topics_.emplace_back(rd_kafka_topic_new(kafka_.get(), plan_.Topic(type).c_str(), nullptr));
    }
    return absl::OkStatus();
  }
  rd_kafka_t* kafka() { return kafka_.get(); }

  absl::Status Put(const std::string& id, const std::string& payload,
                   ProducedRecord* record) override {
    const std::string tenant = plan_.TenantName(record->event.tenant);
    const bool has_department = record->event.department != kNoDepartment;
    const std::string department =
        has_department ? Plan::DepartmentName(record->event.department) : "";
    rd_kafka_headers_t* headers = rd_kafka_headers_new(3);
    Add(headers, "id", id);
    Add(headers, "tenant", tenant);
    if (has_department) Add(headers, "department", department);
    const rd_kafka_resp_err_t code =
        rd_kafka_producev(kafka_.get(), RD_KAFKA_V_RKT(topics_[record->event.type].get()),
                          RD_KAFKA_V_KEY(tenant.data(), tenant.size()),
                          RD_KAFKA_V_VALUE(const_cast<char*>(payload.data()), payload.size()),
                          RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_HEADERS(headers),
                          RD_KAFKA_V_OPAQUE(record), RD_KAFKA_V_END);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) return absl::OkStatus();
    rd_kafka_headers_destroy(headers);
    if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL) return absl::ResourceExhaustedError("full");
    return absl::UnavailableError(absl::StrCat("loadtest: produce: ", rd_kafka_err2str(code)));
  }
  absl::Status Poll(int timeout_ms) override {
    rd_kafka_poll(kafka_.get(), timeout_ms);
    return absl::OkStatus();
  }

 private:
  static void Add(rd_kafka_headers_t* headers, const char* name, const std::string& value) {
    rd_kafka_header_add(headers, name, -1, value.data(), static_cast<ssize_t>(value.size()));
  }
  static void Report(rd_kafka_t*, const rd_kafka_message_t* message, void*) {
    auto* record = static_cast<ProducedRecord*>(message->_private);
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) record->acknowledged = true;
  }

  const Plan& plan_;
  KafkaPtr<rd_kafka_t> kafka_;
  std::vector<KafkaPtr<rd_kafka_topic_t>> topics_;  // destroyed before kafka_
};

class FileSink final : public EventSink {
 public:
  FileSink(const Plan& plan, const std::string& path) : plan_(plan), out_(path, std::ios::trunc) {}
  absl::Status Put(const std::string& id, const std::string& payload,
                   ProducedRecord* record) override {
    out_ << "{\"topic\":\"" << plan_.Topic(record->event.type) << "\",\"id\":\"" << id
         << "\",\"tenant\":\"" << plan_.TenantName(record->event.tenant)
         << "\",\"data\":" << payload << "}\n";
    if (!out_) return absl::UnavailableError("loadtest: the events file cannot be written");
    record->acknowledged = true;
    return absl::OkStatus();
  }
  absl::Status Poll(int) override {
    out_.flush();
    return absl::OkStatus();
  }

 private:
  const Plan& plan_;
  std::ofstream out_;
};

// The events that are out: acknowledged ones leave at the front for the ledger.
class Window {
 public:
  explicit Window(std::unique_ptr<LedgerWriter<ProducedRecord>> ledger)
      : ledger_(std::move(ledger)) {}

  ProducedRecord* Open(const ProducedRecord& record) {
    records_.push_back(record);  // a deque: the others stay where they are
    return &records_.back();
  }
  void Withdraw() { records_.pop_back(); }
  void Settle() {
    while (!records_.empty() && records_.front().acknowledged) Leave();
  }
  // The rest as it is, acknowledged or not.
  absl::Status Finish() {
    while (!records_.empty()) Leave();
    return Flush();
  }
  absl::Status Flush() { return ledger_ == nullptr ? absl::OkStatus() : ledger_->Flush(); }
  bool empty() const { return records_.empty(); }
  uint64_t acknowledged() const { return acknowledged_; }

 private:
  void Leave() {
    if (records_.front().acknowledged) ++acknowledged_;
    if (ledger_ != nullptr) ledger_->Add(records_.front());
    records_.pop_front();
  }
  std::unique_ptr<LedgerWriter<ProducedRecord>> ledger_;
  std::deque<ProducedRecord> records_;
  uint64_t acknowledged_ = 0;
};

absl::Status Pump(const EventSource& source, const GenerateOptions& options, EventSink* sink,
                  Window* window, const std::atomic<bool>& stop, GenerateResult* result) {
  const SteadyClock::time_point start = SteadyClock::now();
  SteadyClock::time_point last_flush = start;
  std::string payload;
  const auto wanted = [&] {
    return !stop.load() && (options.events == 0 || result->events < options.events) &&
           (options.seconds == 0 || SecondsSince(start) < options.seconds);
  };
  while (wanted()) {
    const double due = options.rate > 0 ? options.rate * SecondsSince(start) : 1e18;
    bool full = false;
    // At most 100 between two looks at the clock and the acknowledgements.
    for (int burst = 0; burst < 100 && static_cast<double>(result->events) < due; ++burst) {
      if (options.events != 0 && result->events >= options.events) break;
      ProducedRecord record;
      record.number = options.first + result->events;
      record.event = source.At(record.number);
      record.sent_us = NowUs();
      source.Payload(record.number, record.sent_us, &payload);
      absl::Status put = sink->Put(source.Id(record.number), payload, window->Open(record));
      if (!put.ok()) {
        window->Withdraw();
        if (put.code() != absl::StatusCode::kResourceExhausted) return put;
        full = true;
        break;
      }
      ++result->events;
    }
    const bool ahead = static_cast<double>(result->events) >= due;
    RETURN_IF_ERROR(sink->Poll(full ? 10 : ahead ? 1 : 0));
    window->Settle();
    if (SteadyClock::now() - last_flush > std::chrono::seconds(1)) {
      RETURN_IF_ERROR(window->Flush());
      last_flush = SteadyClock::now();
    }
  }
  result->seconds = SecondsSince(start);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerateResult> Generate(const Plan& plan, const GenerateOptions& options,
                                        const std::atomic<bool>& stop) {
  if (options.events == 0 && options.seconds == 0) {
    return absl::InvalidArgumentError("loadtest: generate: want events or seconds");
  }
  const EventSource source(plan, options.seed, options.size_min, options.size_max);
  std::unique_ptr<LedgerWriter<ProducedRecord>> ledger;
  if (!options.ledger_file.empty()) {
    ASSIGN_OR_RETURN(ledger,
                     LedgerWriter<ProducedRecord>::Create(options.ledger_file, source.run()));
  }
  Window window(std::move(ledger));
  std::unique_ptr<EventSink> sink;
  if (!options.file.empty()) {
    sink = std::make_unique<FileSink>(plan, options.file);
  } else if (!options.api.empty()) {
    sink = std::make_unique<internal::ApiSink>(plan, options.api, options.publisher_key,
                                               options.connections);
  } else {
    if (options.create_topics) {
      RETURN_IF_ERROR(CreateSourceTopics(plan, options.brokers, options.partitions));
    }
    auto kafka = std::make_unique<KafkaSink>(plan);
    RETURN_IF_ERROR(kafka->Open(options));
    sink = std::move(kafka);
  }
  GenerateResult result;
  RETURN_IF_ERROR(Pump(source, options, sink.get(), &window, stop, &result));
  // Whoever stopped us may give up on the log after two minutes.
  const SteadyClock::time_point end = SteadyClock::now();
  while (!window.empty() && SecondsSince(end) < 120) {
    RETURN_IF_ERROR(sink->Poll(10));
    window.Settle();
  }
  RETURN_IF_ERROR(window.Finish());
  result.acknowledged = window.acknowledged();
  result.sent_again = sink->sent_again();
  return result;
}

absl::Status CreateSourceTopics(const Plan& plan, const std::string& brokers, int partitions) {
  ASSIGN_OR_RETURN(KafkaPtr<rd_kafka_t> kafka,
                   MakeProducer({{"bootstrap.servers", brokers}}, nullptr, nullptr));
  std::vector<std::string> topics;
  for (uint32_t type = 0; type < plan.options().topics; ++type) topics.push_back(plan.Topic(type));
  return internal::CreateTopics(kafka.get(), topics, partitions, 300);
}

absl::StatusOr<size_t> DeleteTopicsByPrefix(const std::string& brokers,
                                            const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) {
    if (prefix.empty())
      return absl::InvalidArgumentError("loadtest: an empty prefix is every topic");
  }
  ASSIGN_OR_RETURN(KafkaPtr<rd_kafka_t> kafka,
                   MakeProducer({{"bootstrap.servers", brokers}}, nullptr, nullptr));
  ASSIGN_OR_RETURN(const std::vector<std::string> topics,
                   internal::ListTopics(kafka.get(), prefixes));
  if (!topics.empty()) RETURN_IF_ERROR(internal::DeleteTopics(kafka.get(), topics));
  return topics.size();
}

absl::Status Publish(const PublishOptions& options) {
  struct Line {
    bool settled = false;
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
    int32_t partition = -1;
    int64_t offset = -1;
  };
  const auto report = [](rd_kafka_t*, const rd_kafka_message_t* message, void*) {
    auto* line = static_cast<Line*>(message->_private);
    *line = {true, message->err, message->partition, message->offset};
  };
  ASSIGN_OR_RETURN(Properties properties, ClientProperties(options.brokers, options.properties));
  // A person waits here: say so when Kafka is away.
  properties.insert(properties.begin(), {"message.timeout.ms", "60000"});
  ASSIGN_OR_RETURN(KafkaPtr<rd_kafka_t> kafka, MakeProducer(properties, report, nullptr));
  if (options.create_topic) {
    RETURN_IF_ERROR(internal::CreateTopics(kafka.get(), {options.topic}, 1, 60));
  }
  std::deque<Line> lines;
  absl::Status failed;
  const auto print_settled = [&](int timeout_ms) {
    rd_kafka_poll(kafka.get(), timeout_ms);
    for (; !lines.empty() && lines.front().settled; lines.pop_front()) {
      const Line& line = lines.front();
      if (line.error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        std::cout << line.partition << " " << line.offset << std::endl;
      } else if (failed.ok()) {
        failed = absl::UnavailableError(
            absl::StrCat("loadtest: publish: ", rd_kafka_err2str(line.error)));
      }
    }
  };
  std::string value;
  while (failed.ok() && std::getline(std::cin, value)) {
    lines.emplace_back();
    for (;;) {
      rd_kafka_headers_t* headers = rd_kafka_headers_new(options.headers.size());
      for (const auto& [name, text] : options.headers) {
        rd_kafka_header_add(headers, name.c_str(), -1, text.data(),
                            static_cast<ssize_t>(text.size()));
      }
      const bool keyed = !options.key.empty();
      const rd_kafka_resp_err_t code = rd_kafka_producev(
          kafka.get(), RD_KAFKA_V_TOPIC(options.topic.c_str()),
          RD_KAFKA_V_KEY(keyed ? options.key.data() : nullptr, options.key.size()),
          RD_KAFKA_V_VALUE(value.data(), value.size()), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
          RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(&lines.back()), RD_KAFKA_V_END);
      if (code == RD_KAFKA_RESP_ERR_NO_ERROR) break;
      rd_kafka_headers_destroy(headers);
      if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        return absl::UnavailableError(absl::StrCat("loadtest: publish: ", rd_kafka_err2str(code)));
      }
      print_settled(10);
    }
    print_settled(0);
  }
  while (!lines.empty()) print_settled(100);
  return failed;
}

}  // namespace postrider::loadtest
