#include "core/kafka/partition_copier.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/kafka/internal/client.h"

namespace postrider {
namespace {

using kafka_internal::ClientConfig;
using kafka_internal::ClientPtr;
using kafka_internal::ConfPtr;
using kafka_internal::ErrorPtr;
using kafka_internal::Settings;
using kafka_internal::TopicPtr;

constexpr int kPollMs = 100;
constexpr char kQueueRecordsMax[] = "200000";
// So often in between acknowledgements are taken.
constexpr int64_t kPutsPerPoll = 1'000;

void* Pointer(absl::string_view text) { return const_cast<char*>(text.data()); }

}  // namespace

struct PartitionCopier::Impl {
  explicit Impl(const PartitionCopierOptions& its_options) : options(its_options) {}

  static void Delivered(rd_kafka_t*, const rd_kafka_message_t* message, void* opaque) {
    static_cast<Impl*>(opaque)->OnDelivered(*message);
  }
  void OnDelivered(const rd_kafka_message_t& message);
  absl::Status Produce(const LogRecord& record);
  // Serves what was acknowledged; fails when that is nothing for too long.
  absl::Status Wait(int ms);

  const PartitionCopierOptions options;
  ClientPtr client;
  TopicPtr topic;
  TopicPartition tp;
  TopicPartition fault_tp;
  int64_t next = 0;     // the offset that the next record is to have
  int64_t waiting = 0;  // for their acknowledgement
  int64_t puts = 0;
  absl::Status fault;
  std::chrono::steady_clock::time_point last_answer;
  std::vector<rd_kafka_vu_t> arguments;
  std::vector<std::string> names;  // of headers
};

void PartitionCopier::Impl::OnDelivered(const rd_kafka_message_t& message) {
  --waiting;
  last_answer = std::chrono::steady_clock::now();
  if (!fault.ok()) return;
  const auto wanted = static_cast<int64_t>(reinterpret_cast<intptr_t>(message._private));
  const bool moved = message.offset >= 0 && message.offset != wanted;
  if (message.err == RD_KAFKA_RESP_ERR_NO_ERROR && !moved) return;
  fault_tp = {rd_kafka_topic_name(message.rkt), message.partition};
  if (message.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    fault = kafka_internal::ToStatus(message.err, absl::StrCat("copying to ", fault_tp.ToString()));
  } else {
    fault = absl::AbortedError(absl::StrCat("kafka: copying to ", fault_tp.ToString(),
                                            ": a record of offset ", wanted, " was stored at ",
                                            message.offset, ": somebody else writes there"));
  }
}

absl::Status PartitionCopier::Impl::Wait(int ms) {
  rd_kafka_poll(client.get(), ms);
  RETURN_IF_ERROR(fault);
  if (std::chrono::steady_clock::now() - last_answer < options.silence_max) {
    return absl::OkStatus();
  }
  fault = absl::UnavailableError(absl::StrCat("kafka: copying to ", tp.ToString(),
                                              ": nothing was acknowledged for ",
                                              options.silence_max.count(), " ms"));
  return fault;
}

absl::Status PartitionCopier::Impl::Produce(const LogRecord& record) {
  if (waiting == 0) last_answer = std::chrono::steady_clock::now();
  const auto add = [this](rd_kafka_vtype_t type) -> rd_kafka_vu_t& {
    rd_kafka_vu_t& argument = arguments.emplace_back();
    argument = {};
    argument.vtype = type;
    return argument;
  };
  arguments.clear();
  add(RD_KAFKA_VTYPE_RKT).u.rkt = topic.get();
  add(RD_KAFKA_VTYPE_PARTITION).u.i32 = tp.partition;
  add(RD_KAFKA_VTYPE_MSGFLAGS).u.i = RD_KAFKA_MSG_F_COPY;
  add(RD_KAFKA_VTYPE_TIMESTAMP).u.i64 = MillisSinceEpoch(record.timestamp);
  add(RD_KAFKA_VTYPE_OPAQUE).u.ptr = reinterpret_cast<void*>(static_cast<intptr_t>(next));
  if (record.value.data() != nullptr) {
    rd_kafka_vu_t& value = add(RD_KAFKA_VTYPE_VALUE);
    value.u.mem.ptr = Pointer(record.value);
    value.u.mem.size = record.value.size();
  }
  if (!record.key.empty()) {
    rd_kafka_vu_t& key = add(RD_KAFKA_VTYPE_KEY);
    key.u.mem.ptr = Pointer(record.key);
    key.u.mem.size = record.key.size();
  }
  names.clear();
  names.reserve(record.headers.size());
  for (const RecordHeader& header : record.headers) {
    names.emplace_back(header.name);
    rd_kafka_vu_t& argument = add(RD_KAFKA_VTYPE_HEADER);
    argument.u.header.name = names.back().c_str();
    argument.u.header.val = header.value.data();
    argument.u.header.size = static_cast<ssize_t>(header.value.size());
  }
  while (true) {
    const ErrorPtr error(rd_kafka_produceva(client.get(), arguments.data(), arguments.size()));
    if (error == nullptr) break;
    const rd_kafka_resp_err_t err = rd_kafka_error_code(error.get());
    if (err != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
      fault = kafka_internal::ToStatus(err, absl::StrCat("copying to ", tp.ToString()));
      return fault;
    }
    RETURN_IF_ERROR(Wait(kPollMs));
  }
  ++waiting;
  ++next;
  return ++puts % kPutsPerPoll == 0 ? Wait(0) : absl::OkStatus();
}

PartitionCopier::PartitionCopier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PartitionCopier::~PartitionCopier() {
  rd_kafka_purge(impl_->client.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
  rd_kafka_flush(impl_->client.get(), kPollMs);
}

absl::StatusOr<std::unique_ptr<PartitionCopier>> PartitionCopier::Open(
    const KafkaOptions& kafka, const PartitionCopierOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  const ClientConfig config{kafka.brokers, kafka.properties};
  RETURN_IF_ERROR(kafka_internal::CheckProperties(config));
  const Settings own = {
      {"enable.idempotence", "true"},
      {"acks", "all"},
      {"message.timeout.ms", "0"},
      {"linger.ms", "20"},
      {"queue.buffering.max.messages", kQueueRecordsMax},
      {"queue.buffering.max.kbytes",
       absl::StrCat(std::max<int64_t>(options.queue_bytes_max / 1024, 1'024))},
      {"?compression.type", "lz4"},
      // What brokers take by default, so that a record of the most bytes elsewhere gets in here.
      {"?message.max.bytes", "1048588"},
  };
  ASSIGN_OR_RETURN(ConfPtr conf, kafka_internal::MakeConf(config, own));
  rd_kafka_conf_set_opaque(conf.get(), impl.get());
  rd_kafka_conf_set_dr_msg_cb(conf.get(), Impl::Delivered);
  ASSIGN_OR_RETURN(impl->client, kafka_internal::MakeClient(RD_KAFKA_PRODUCER, std::move(conf)));
  return std::unique_ptr<PartitionCopier>(new PartitionCopier(std::move(impl)));
}

void PartitionCopier::Begin(const TopicPartition& tp, int64_t next) {
  if (impl_->topic == nullptr || impl_->tp.topic != tp.topic) {
    impl_->topic.reset(rd_kafka_topic_new(impl_->client.get(), tp.topic.c_str(), nullptr));
  }
  impl_->tp = tp;
  impl_->next = next;
}

absl::Status PartitionCopier::Fill(int64_t until, WallTime time) {
  LogRecord nothing;
  nothing.timestamp = time;
  while (impl_->next < until) RETURN_IF_ERROR(impl_->Produce(nothing));
  return absl::OkStatus();
}

absl::Status PartitionCopier::Put(const LogRecord& record) {
  POSTRIDER_CHECK(record.offset >= impl_->next);
  RETURN_IF_ERROR(Fill(record.offset, record.timestamp));
  return impl_->Produce(record);
}

int64_t PartitionCopier::next() const { return impl_->next; }
const TopicPartition& PartitionCopier::fault_tp() const { return impl_->fault_tp; }

absl::Status PartitionCopier::End() {
  rd_kafka_flush(impl_->client.get(), 0);  // sends what lingers
  while (impl_->waiting > 0) RETURN_IF_ERROR(impl_->Wait(kPollMs));
  return impl_->fault;
}

}  // namespace postrider
