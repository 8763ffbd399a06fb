#include "core/kafka/internal/kafka_reader.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/kafka/internal/message.h"

namespace postrider::kafka_internal {
namespace {

constexpr Duration kStartAgain = std::chrono::seconds(1);

int64_t LogicalOf(const StartPosition& position) {
  switch (position.at) {
    case StartPosition::At::kOffset:
      // What is negative means something else to librdkafka.
      return std::max<int64_t>(position.offset, 0);
    case StartPosition::At::kLogStart:
      // Asking for the start by its name costs half a second: a client that does not know the
      // leader yet looks again only then. What lies below the start goes on from it.
      return 0;
    case StartPosition::At::kLogEnd:
      return RD_KAFKA_OFFSET_END;
  }
  return RD_KAFKA_OFFSET_INVALID;
}

}  // namespace

KafkaReader::KafkaReader(const ClientConfig& config, EventLoop& loop, KafkaMetrics& metrics,
                         const ReaderOptions& options, ReadHandler& handler)
    : config_(config), loop_(loop), metrics_(metrics), options_(options), handler_(handler) {}

absl::StatusOr<std::unique_ptr<KafkaReader>> KafkaReader::Create(
    const ClientConfig& config, ControlThread& control, rd_kafka_t* admin, EventLoop& loop,
    KafkaMetrics& metrics, const ReaderOptions& options, ReadHandler& handler) {
  std::unique_ptr<KafkaReader> reader(new KafkaReader(config, loop, metrics, options, handler));
  ASSIGN_OR_RETURN(reader->wake_, WakeFd::Create());
  ASSIGN_OR_RETURN(std::unique_ptr<WakeFd> wake, reader->wake_->Copy());
  reader->lookup_ = std::make_unique<RangeLookup>(
      control, admin, loop, std::move(wake), [raw = reader.get()](const auto& question) {
        const auto found = raw->positions_.find(question.tp);
        return found != raw->positions_.end() && found->second.lookup == question.ticket;
      });
  return reader;
}

KafkaReader::~KafkaReader() {
  if (start_timer_ != 0) loop_.CancelTimer(start_timer_);
  for (auto& [tp, position] : positions_) End(position);
  topics_.clear();
  queue_.reset();
}

absl::Status KafkaReader::MakeReadingClient() {
  const int64_t kbytes = std::clamp<int64_t>(options_.prefetch_bytes / 1'024, 1, 2'097'151);
  const Settings own = {
      {"enable.auto.commit", "false"},
      {"auto.commit.enable", "false"},
      {"enable.auto.offset.store", "false"},
      {"auto.offset.reset", "error"},
      {"enable.partition.eof", "true"},
      {"isolation.level", "read_committed"},
      {"fetch.wait.max.ms", absl::StrCat(options_.fetch_wait_max.count())},
      {"queued.max.messages.kbytes", absl::StrCat(kbytes)},
  };
  ASSIGN_OR_RETURN(ConfPtr conf, MakeConf(config_, own));
  ASSIGN_OR_RETURN(client_, MakeClient(RD_KAFKA_CONSUMER, std::move(conf)));
  queue_.reset(rd_kafka_queue_new(client_.get()));
  wake_->Attach(queue_.get());
  return absl::OkStatus();
}

void KafkaReader::Add(const StartPosition& start) {
  Position& position = positions_[start.tp];
  End(position);
  position.tp = start.tp;
  position.start = LogicalOf(start);
  position.next = start.at == StartPosition::At::kLogEnd ? -1 : position.start;
  position.end_told = -1;
  position.lookup = 0;
  if (client_ == nullptr) {
    const absl::Status made = MakeReadingClient();
    if (!made.ok()) {
      POSTRIDER_LOG(kError, "kafka reader cannot be made", {"reason", made.ToString()});
      client_.reset();
      StartAllLater();
      return;
    }
  }
  Begin(position);
}

void KafkaReader::Remove(const TopicPartition& tp) {
  const auto found = positions_.find(tp);
  if (found == positions_.end()) return;
  End(found->second);
  positions_.erase(found);
}

void KafkaReader::StartAllLater() {
  if (start_timer_ != 0) return;
  start_timer_ = loop_.CallAfter(kStartAgain, [this] {
    start_timer_ = 0;
    StartAll();
  });
}

void KafkaReader::StartAll() {
  if (client_ == nullptr) {
    const absl::Status made = MakeReadingClient();
    if (!made.ok()) {
      client_.reset();
      StartAllLater();
      return;
    }
  }
  for (auto& [tp, position] : positions_) {
    if (!position.started && position.lookup == 0) Begin(position);
  }
}

void KafkaReader::Begin(Position& position) {
  rd_kafka_topic_t* topic = TopicHandle(position.tp.topic);
  const int64_t from = position.next >= 0 ? position.next : position.start;
  if (topic == nullptr ||
      rd_kafka_consume_start_queue(topic, position.tp.partition, from, queue_.get()) != 0) {
    POSTRIDER_LOG(kError, "kafka partition cannot be read", {"partition", position.tp.ToString()},
                  {"reason", rd_kafka_err2str(rd_kafka_last_error())});
    StartAllLater();
    return;
  }
  position.started = true;
}

// Nothing of it is in the queue any more afterwards.
void KafkaReader::End(Position& position) {
  if (!position.started) return;
  position.started = false;
  rd_kafka_topic_t* topic = TopicHandle(position.tp.topic);
  by_handle_.erase({topic, position.tp.partition});
  if (rd_kafka_consume_stop(topic, position.tp.partition) != 0) {
    POSTRIDER_LOG(kWarn, "kafka partition cannot be stopped", {"partition", position.tp.ToString()},
                  {"reason", rd_kafka_err2str(rd_kafka_last_error())});
  }
}

rd_kafka_topic_t* KafkaReader::TopicHandle(const std::string& topic) {
  const auto found = topics_.find(topic);
  if (found != topics_.end()) return found->second.get();
  rd_kafka_topic_t* handle = rd_kafka_topic_new(client_.get(), topic.c_str(), nullptr);
  if (handle != nullptr) topics_.emplace(topic, TopicPtr(handle));
  return handle;
}

KafkaReader::Position* KafkaReader::Find(const rd_kafka_message_t& message) {
  const std::pair<const void*, int32_t> handle(message.rkt, message.partition);
  const auto known = by_handle_.find(handle);
  if (known != by_handle_.end()) return known->second;
  const auto found = positions_.find({rd_kafka_topic_name(message.rkt), message.partition});
  if (found == positions_.end() || !found->second.started) return nullptr;
  by_handle_.emplace(handle, &found->second);
  return &found->second;
}

size_t KafkaReader::Poll(size_t records_max) {
  wake_->Drain();
  if (client_ == nullptr) return 0;
  HandleRanges();
  size_t records = 0;
  while (records < records_max) {
    const MessagePtr message(rd_kafka_consume_queue(queue_.get(), 0));
    if (message == nullptr) return records;
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
      HandleMessage(*message, &records);
    } else {
      HandleError(*message);
    }
  }
  wake_->Signal();
  return records;
}

// What the handler does to its partitions may end `position`: it is not touched after the call.
void KafkaReader::HandleMessage(const rd_kafka_message_t& message, size_t* records) {
  Position* position = Find(message);
  if (position == nullptr) return;
  if (message.offset < position->next) {
    metrics_.stale_records.Increment();
    return;
  }
  position->next = message.offset + 1;
  const LogRecord record = ToLogRecord(message, &headers_);
  if (SaysNothing(record)) return;
  ++*records;
  handler_.OnRecord(record);
}

void KafkaReader::HandleError(const rd_kafka_message_t& message) {
  Position* position = message.rkt == nullptr ? nullptr : Find(message);
  if (message.err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
    if (position == nullptr || message.offset < position->next) return;
    // After a gap at the end (compaction, markers) this is past the last record by more than one.
    position->next = message.offset;
    if (position->end_told == message.offset) return;
    position->end_told = message.offset;
    const TopicPartition tp = position->tp;
    handler_.OnPartitionEnd(tp, message.offset);
    return;
  }
  if (message.err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ||
      message.err == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE) {
    if (position == nullptr) return;
    metrics_.out_of_range.Increment();
    POSTRIDER_LOG(kWarn, "kafka position out of range", {"partition", position->tp.ToString()},
                  {"position", position->next});
    End(*position);
    position->lookup = ++last_lookup_;
    lookup_->Ask({position->tp, position->lookup});
    return;
  }
  POSTRIDER_LOG(kWarn, "kafka reader error",
                {"topic", message.rkt == nullptr ? "" : rd_kafka_topic_name(message.rkt)},
                {"partition", message.partition}, {"reason", rd_kafka_message_errstr(&message)});
}

void KafkaReader::HandleRanges() {
  for (const RangeLookup::Answer& answer : lookup_->TakeAnswers()) {
    Position& position = positions_[answer.question.tp];
    position.lookup = 0;
    position.next = std::clamp(position.next, answer.range.begin, answer.range.end);
    Begin(position);
  }
}

}  // namespace postrider::kafka_internal
