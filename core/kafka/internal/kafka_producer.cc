#include "core/kafka/internal/kafka_producer.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"

namespace postrider::kafka_internal {
namespace {

constexpr Duration kRestartPause = std::chrono::seconds(1);
// How long an instance that is given up may take to hand back its messages, and how long each
// look is.
constexpr int kDrainLooks = 100;
constexpr int kDrainLookMs = 50;

int64_t BytesOf(const AppendRecord& record) {
  size_t bytes = record.key.size() + record.value.size();
  for (const auto& [name, value] : record.headers) bytes += name.size() + value.size();
  return static_cast<int64_t>(bytes);
}

// FreezeTopic() leaves room for what says nothing.
bool SaysNothing(const AppendRecord& record) {
  return record.key.empty() && record.value.empty() && record.headers.empty();
}

// Why a record that was sent can never be written.
absl::Status FinalStatus(rd_kafka_resp_err_t err, const std::string& topic) {
  const std::string what = absl::StrCat("appending to ", topic);
  if (err != RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) return ToStatus(err, what);
  // librdkafka refuses by itself what no topic takes; this is the topic's own bound.
  return absl::FailedPreconditionError(absl::StrCat(
      "kafka: ", what, ": the topic is frozen, or its max.message.bytes is below the batch"));
}

// Whether this record can never be written, whatever instance tries. Everything else is a fault of
// the instance, or of the way to the broker.
bool IsFinal(rd_kafka_resp_err_t err) {
  switch (err) {
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
    case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR__INVALID_ARG:
      return true;
    default:
      return false;
  }
}

// A message that comes back from librdkafka still carries what it was made of.
AppendRecord RecordOf(const rd_kafka_message_t& message) {
  AppendRecord record;
  record.topic = rd_kafka_topic_name(message.rkt);
  record.partition = message.partition;
  record.key.assign(static_cast<const char*>(message.key), message.key_len);
  record.value.assign(static_cast<const char*>(message.payload), message.len);
  record.tombstone = message.payload == nullptr;
  rd_kafka_headers_t* headers = nullptr;
  if (rd_kafka_message_headers(&message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    const char* name = nullptr;
    const void* value = nullptr;
    size_t size = 0;
    for (size_t i = 0;
         rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
         ++i) {
      record.headers.emplace_back(name, std::string(static_cast<const char*>(value), size));
    }
  }
  return record;
}

void* Pointer(const std::string& text) { return const_cast<char*>(text.data()); }

rd_kafka_vu_t Memory(rd_kafka_vtype_t type, const std::string& text) {
  rd_kafka_vu_t argument{};
  argument.vtype = type;
  argument.u.mem.ptr = Pointer(text);
  argument.u.mem.size = text.size();
  return argument;
}

}  // namespace

KafkaProducer::KafkaProducer(const ClientConfig& config, EventLoop& loop, KafkaMetrics& metrics,
                             const ProducerOptions& options)
    : config_(config), loop_(loop), metrics_(metrics), options_(options) {}

absl::StatusOr<std::unique_ptr<KafkaProducer>> KafkaProducer::Create(
    const ClientConfig& config, EventLoop& loop, KafkaMetrics& metrics,
    const ProducerOptions& options) {
  std::unique_ptr<KafkaProducer> producer(new KafkaProducer(config, loop, metrics, options));
  ASSIGN_OR_RETURN(producer->wake_, WakeFd::Create());
  RETURN_IF_ERROR(producer->MakeInstance());
  RETURN_IF_ERROR(loop.Watch(producer->wake_->fd(), kFdReadable,
                             [raw = producer.get()](uint32_t) { raw->Poll(); }));
  return producer;
}

KafkaProducer::~KafkaProducer() {
  closing_ = true;
  if (restart_timer_ != 0) loop_.CancelTimer(restart_timer_);
  if (wake_ != nullptr) loop_.Unwatch(wake_->fd());
  DropInstance();
  std::vector<Pending*> closed;
  for (const Resend& resend : given_back_) closed.push_back(resend.pending);
  for (const Resend& resend : resends_) closed.push_back(resend.pending);
  for (Pending* pending : closed) {
    answers_.push_back({pending, absl::AbortedError("kafka: the producer was closed")});
  }
  while (!answers_.empty()) RunAnswers();
}

absl::Status KafkaProducer::MakeInstance() {
  // Our own counts are the bounds; librdkafka's lie above them, since it counts what was answered
  // and not yet served too.
  const int64_t kbytes = std::clamp<int64_t>(options_.queue_bytes_max / 512, 1'024, 2'147'483'647);
  const int64_t records = std::clamp<int64_t>(options_.queue_records_max * 2, 1'000, 10'000'000);
  Settings own = {
      {"enable.idempotence", "true"},
      {"acks", "all"},
      {"message.timeout.ms", "0"},
      {"linger.ms", absl::StrCat(options_.linger.count())},
      {"queue.buffering.max.messages", absl::StrCat(records)},
      {"queue.buffering.max.kbytes", absl::StrCat(kbytes)},
      // A fan-out's records lie side by side and repeat each other's payload.
      {"?compression.type", "lz4"},
  };
  if (options_.batches == ProducerOptions::Batches::kOfOne) {
    own.emplace_back("batch.num.messages", "1");
  }
  ASSIGN_OR_RETURN(ConfPtr conf, MakeConf(config_, own));
  rd_kafka_conf_set_opaque(conf.get(), this);
  rd_kafka_conf_set_dr_msg_cb(conf.get(), DeliveredCallback);
  rd_kafka_conf_set_error_cb(conf.get(), ErrorCallback);
  ASSIGN_OR_RETURN(client_, MakeClient(RD_KAFKA_PRODUCER, std::move(conf)));
  const QueuePtr queue(rd_kafka_queue_get_main(client_.get()));
  wake_->Attach(queue.get());
  return absl::OkStatus();
}

// Everything in the client comes back through OnDelivered().
void KafkaProducer::DropInstance() {
  if (client_ == nullptr) return;
  rd_kafka_purge(client_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
  rd_kafka_poll(client_.get(), 0);
  for (int look = 0; in_client_ > 0 && look < kDrainLooks; ++look) {
    rd_kafka_poll(client_.get(), kDrainLookMs);
  }
  POSTRIDER_CHECK(in_client_ == 0);
  topics_.clear();
  client_.reset();
}

bool KafkaProducer::Append(AppendRecord&& record, AppendDone&& done) {
  const int64_t bytes = BytesOf(record);
  // One record always fits, so that one above the bound does not wait for ever.
  const bool full = pending_records_ >= options_.queue_records_max ||
                    (pending_records_ > 0 && pending_bytes_ + bytes > options_.queue_bytes_max);
  if (full || client_ == nullptr || instance_broken_ || !resends_.empty()) {
    refused_ = true;
    return false;
  }
  Pending* pending = Take();
  pending->sequence = next_sequence_;
  pending->bytes = bytes;
  if (Produce(record, pending) == Produced::kFull) {
    free_.push_back(pending);
    refused_ = true;
    wake_->Signal();
    return false;
  }
  ++next_sequence_;
  pending->done = std::move(done);
  ++pending_records_;
  pending_bytes_ += bytes;
  return true;
}

KafkaProducer::Produced KafkaProducer::Produce(const AppendRecord& record, Pending* pending) {
  if (SaysNothing(record)) {
    wake_->Signal();
    metrics_.appends_failed.Increment();
    answers_.push_back({pending, absl::InvalidArgumentError(
                                     absl::StrCat("kafka: appending to ", record.topic,
                                                  ": a record needs a key, a value or a header"))});
    return Produced::kAnswered;
  }
  rd_kafka_topic_t* topic = TopicHandle(record.topic);
  rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_NO_ERROR;
  if (topic == nullptr) {
    err = rd_kafka_last_error();
  } else if (record.headers.empty()) {
    if (rd_kafka_produce(topic, record.partition, RD_KAFKA_MSG_F_COPY,
                         record.tombstone ? nullptr : Pointer(record.value),
                         record.tombstone ? 0 : record.value.size(),
                         record.key.empty() ? nullptr : record.key.data(), record.key.size(),
                         pending) != 0) {
      err = rd_kafka_last_error();
    }
  } else {
    arguments_.clear();
    rd_kafka_vu_t argument{};
    argument.vtype = RD_KAFKA_VTYPE_RKT;
    argument.u.rkt = topic;
    arguments_.push_back(argument);
    argument = {};
    argument.vtype = RD_KAFKA_VTYPE_PARTITION;
    argument.u.i32 = record.partition;
    arguments_.push_back(argument);
    argument = {};
    argument.vtype = RD_KAFKA_VTYPE_MSGFLAGS;
    argument.u.i = RD_KAFKA_MSG_F_COPY;
    arguments_.push_back(argument);
    argument = {};
    argument.vtype = RD_KAFKA_VTYPE_OPAQUE;
    argument.u.ptr = pending;
    arguments_.push_back(argument);
    if (!record.tombstone) arguments_.push_back(Memory(RD_KAFKA_VTYPE_VALUE, record.value));
    if (!record.key.empty()) arguments_.push_back(Memory(RD_KAFKA_VTYPE_KEY, record.key));
    for (const auto& [name, value] : record.headers) {
      argument = {};
      argument.vtype = RD_KAFKA_VTYPE_HEADER;
      argument.u.header.name = name.c_str();
      argument.u.header.val = value.data();
      argument.u.header.size = static_cast<ssize_t>(value.size());
      arguments_.push_back(argument);
    }
    const ErrorPtr error(rd_kafka_produceva(client_.get(), arguments_.data(), arguments_.size()));
    if (error != nullptr) err = rd_kafka_error_code(error.get());
  }
  if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
    ++in_client_;
    return Produced::kTaken;
  }
  if (err == RD_KAFKA_RESP_ERR__QUEUE_FULL) return Produced::kFull;
  wake_->Signal();
  if (IsFinal(err)) {
    metrics_.appends_failed.Increment();
    answers_.push_back({pending, ToStatus(err, absl::StrCat("appending to ", record.topic))});
    return Produced::kAnswered;
  }
  // The instance takes nothing any more; the next one gets this record in its turn.
  instance_broken_ = true;
  given_back_.push_back({pending, record});
  return Produced::kAnswered;
}

rd_kafka_topic_t* KafkaProducer::TopicHandle(const std::string& topic) {
  const auto found = topics_.find(topic);
  if (found != topics_.end()) return found->second.get();
  rd_kafka_topic_t* handle = rd_kafka_topic_new(client_.get(), topic.c_str(), nullptr);
  if (handle != nullptr) topics_.emplace(topic, TopicPtr(handle));
  return handle;
}

void KafkaProducer::DeliveredCallback(rd_kafka_t*, const rd_kafka_message_t* message,
                                      void* opaque) {
  static_cast<KafkaProducer*>(opaque)->OnDelivered(*message);
}

void KafkaProducer::ErrorCallback(rd_kafka_t* client, int err, const char* reason, void* opaque) {
  if (err != RD_KAFKA_RESP_ERR__FATAL) return;
  char text[512] = "";
  rd_kafka_fatal_error(client, text, sizeof(text));
  POSTRIDER_LOG(kWarn, "kafka producer must be made anew", {"reason", text}, {"text", reason});
  static_cast<KafkaProducer*>(opaque)->instance_broken_ = true;
}

void KafkaProducer::OnDelivered(const rd_kafka_message_t& message) {
  auto* pending = static_cast<Pending*>(message._private);
  --in_client_;
  if (message.err == RD_KAFKA_RESP_ERR_NO_ERROR) {
    answers_.push_back({pending, message.offset});
  } else if (IsFinal(message.err)) {
    metrics_.appends_failed.Increment();
    answers_.push_back({pending, FinalStatus(message.err, rd_kafka_topic_name(message.rkt))});
  } else if (closing_) {
    answers_.push_back({pending, absl::AbortedError("kafka: the producer was closed")});
  } else {
    instance_broken_ = true;
    given_back_.push_back({pending, RecordOf(message)});
  }
}

void KafkaProducer::Poll() {
  wake_->Drain();
  if (client_ != nullptr) rd_kafka_poll(client_.get(), 0);
  if (instance_broken_ || client_ == nullptr) Restart();
  PumpResends();
  RunAnswers();
  const bool room = pending_records_ * 2 <= options_.queue_records_max &&
                    pending_bytes_ * 2 <= options_.queue_bytes_max;
  if (refused_ && room && resends_.empty() && client_ != nullptr && !instance_broken_) {
    refused_ = false;
    if (room_ != nullptr) room_();
  }
}

void KafkaProducer::Flush() {
  // With no time to wait it wakes the broker threads, which send at once if they look while the
  // call lasts; else the linger ends by itself. It serves deliveries too; their callbacks run from
  // Poll().
  if (client_ == nullptr) return;
  rd_kafka_flush(client_.get(), 0);
  if (!answers_.empty() || instance_broken_) wake_->Signal();
}

void KafkaProducer::RunAnswers() {
  // A callback may append, and that may answer at once; it may even poll.
  if (!running_answers_.empty()) return;
  running_answers_.swap(answers_);
  for (Answer& answer : running_answers_) {
    AppendDone done = std::move(answer.pending->done);
    GiveBack(answer.pending);
    std::move(done)(std::move(answer.result));
  }
  running_answers_.clear();
}

// At most once per kRestartPause, so that a cluster that refuses each instance is not flooded.
void KafkaProducer::Restart() {
  if (restart_timer_ != 0) return;
  const MonotonicTime now = loop_.clock().Now();
  if (restarted_at_ != MonotonicTime() && now < restarted_at_ + kRestartPause) {
    RestartSoon();
    return;
  }
  restarted_at_ = now;
  metrics_.producer_restarts.Increment();
  DropInstance();
  instance_broken_ = false;
  // What the last instance gave back is older than what still waits for its turn, but a resend may
  // have been refused half way: order all by the calls.
  for (Resend& resend : given_back_) resends_.push_back(std::move(resend));
  given_back_.clear();
  std::sort(resends_.begin(), resends_.end(), [](const Resend& a, const Resend& b) {
    return a.pending->sequence < b.pending->sequence;
  });
  const absl::Status made = MakeInstance();
  if (!made.ok()) {
    POSTRIDER_LOG(kError, "kafka producer cannot be made", {"reason", made.ToString()});
    RestartSoon();
  }
}

void KafkaProducer::RestartSoon() {
  restart_timer_ = loop_.CallAfter(kRestartPause, [this] {
    restart_timer_ = 0;
    Poll();
  });
}

void KafkaProducer::PumpResends() {
  while (!resends_.empty() && client_ != nullptr && !instance_broken_) {
    Resend resend = std::move(resends_.front());
    resends_.pop_front();
    if (Produce(resend.record, resend.pending) == Produced::kFull) {
      resends_.push_front(std::move(resend));
      return;
    }
  }
}

KafkaProducer::Pending* KafkaProducer::Take() {
  if (free_.empty()) {
    pool_.push_back(std::make_unique<Pending>());
    return pool_.back().get();
  }
  Pending* pending = free_.back();
  free_.pop_back();
  return pending;
}

void KafkaProducer::GiveBack(Pending* pending) {
  --pending_records_;
  pending_bytes_ -= pending->bytes;
  pending->done = nullptr;
  free_.push_back(pending);
}

void KafkaProducer::RaiseFatalError() {
  rd_kafka_test_fatal_error(client_.get(), RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
                            "raised by a test");
}

}  // namespace postrider::kafka_internal
