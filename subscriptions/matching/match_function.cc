#include "subscriptions/matching/match_function.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/stream/key_groups.h"
#include "core/stream/rejected_record.h"
#include "subscriptions/registry/own_events.h"

namespace postrider::subscriptions {
namespace {

// Waiting events that one call matches; the rest goes on in the next turn of the loop.
constexpr int kPumpMax = 1'000;
// Of an event that is rejected: the whole of it stands in its source topic.
constexpr size_t kRejectedValueBytesMax = 1'024;
constexpr uint32_t kMeasureEvery = 64;
constexpr absl::string_view kPumpKey = "";
constexpr uint32_t kPumpTag = 1;

// 0: it says nothing that is a number; one that is too large is as large as can be. The name is of
// any letter case, as HTTP libraries change it.
uint32_t HopsOf(const LogRecord& record) {
  for (const RecordHeader& header : record.headers) {
    if (!absl::EqualsIgnoreCase(header.name, kHopsHeader)) continue;
    uint32_t hops = 0;
    if (absl::SimpleAtoi(header.value, &hops)) return hops;
    const bool digits = !header.value.empty() &&
                        std::all_of(header.value.begin(), header.value.end(), absl::ascii_isdigit);
    return digits ? UINT32_MAX : 0;
  }
  return 0;
}

}  // namespace

MatchFunction::WaitingEvent::WaitingEvent(const LogRecord& record)
    : offset(record.offset), timestamp(record.timestamp), key(record.key) {
  if (record.value.data() != nullptr) value = std::string(record.value);
  headers.reserve(record.headers.size());
  for (const RecordHeader& header : record.headers) {
    headers.emplace_back(std::string(header.name), std::string(header.value));
  }
}

MatchFunction::MatchFunction(MatchProgram& program) : program_(program) {}

MatchFunction::~MatchFunction() {
  POSTRIDER_CHECK(ctx_ == nullptr);  // closed before
}

absl::Status MatchFunction::Open(TaskContext& ctx) {
  ctx_ = &ctx;
  operational_ = ctx.partition().topic == program_.options().operational_topic;
  program_.open_.insert(this);
  return absl::OkStatus();
}

void MatchFunction::Close(TaskContext&, CloseReason) {
  CountWaiting(-static_cast<int>(waiting_.size()));
  waiting_.clear();
  program_.open_.erase(this);
  ctx_ = nullptr;
}

void MatchFunction::CountWaiting(int change) {
  if (change != 0) program_.metrics_.waiting_events.Add(change);
}

bool MatchFunction::MayMatch() const {
  return !emitting_ && !draining_ && program_.MayMatchAt(ctx_->clock().Wall());
}

void MatchFunction::OnElement(TaskContext&, const LogRecord& record) {
  if (waiting_.empty() && MayMatch()) {
    MatchEvent(record);
    return;
  }
  waiting_.emplace_back(record);
  CountWaiting(1);
}

void MatchFunction::OnTimer(TaskContext&, absl::string_view, uint32_t, MonotonicTime) { Pump(); }
void MatchFunction::OnPartitionEnd(TaskContext&, int64_t) {}
void MatchFunction::OnRoom(TaskContext&) { Pump(); }
void MatchFunction::OnPressure(TaskContext&) {}
void MatchFunction::OnSnapshot() { Pump(); }

void MatchFunction::OnResume(TaskContext&) {
  draining_ = false;
  Pump();
}

// The event in hand is still emitted to its end, so that a successor repeats less of it; no further
// one is begun. What waits stays pending and is read again by whoever owns the partition next.
void MatchFunction::OnDrain(TaskContext&, Drain) { draining_ = true; }

void MatchFunction::Pump() {
  if (emitting_ && !EmitRest()) return;
  for (int i = 0; i < kPumpMax && !waiting_.empty() && MayMatch(); ++i) {
    const WaitingEvent event = std::move(waiting_.front());
    waiting_.pop_front();
    CountWaiting(-1);
    header_views_.clear();
    for (const auto& [name, value] : event.headers) header_views_.push_back({name, value});
    LogRecord record;
    record.topic = ctx_->partition().topic;
    record.partition = ctx_->partition().partition;
    record.offset = event.offset;
    record.timestamp = event.timestamp;
    record.key = event.key;
    if (event.value) record.value = *event.value;
    record.headers = header_views_;
    MatchEvent(record);
  }
  if (!waiting_.empty() && MayMatch()) ctx_->SetTimer(kPumpKey, kPumpTag, ctx_->clock().Now());
}

void MatchFunction::MatchEvent(const LogRecord& record) {
  program_.metrics_.events.Increment();
  program_.metrics_.event_bytes.Add(static_cast<double>(record.bytes()));
  if (++measured_ % kMeasureEvery != 0) {
    MatchMeasured(record);
    return;
  }
  const MonotonicTime begun = ctx_->clock().Now();
  MatchMeasured(record);
  program_.metrics_.event_seconds.Observe(
      std::chrono::duration<double>(ctx_->clock().Now() - begun).count());
}

void MatchFunction::Finish(int64_t offset, UnmatchedReason reason) {
  program_.metrics_.unmatched(reason).Increment();
  ctx_->Complete(offset);
}

void MatchFunction::MatchMeasured(const LogRecord& record) {
  if (record.value.data() == nullptr) {
    Finish(record.offset, UnmatchedReason::kTombstone);
    return;
  }
  JsonDecoder& decoder = operational_ ? program_.operational_decoder() : program_.decoder();
  if (const auto reason = decoder.Begin(record)) {
    Reject(record, *reason);
    return;
  }
  const DecodedEvent& event = decoder.event();
  if (event.tenant.empty()) {
    Finish(record.offset, UnmatchedReason::kNoTenant);
    return;
  }
  // Nobody speaks to a customer in our name.
  if (IsReservedTenant(event.tenant) != operational_) {
    Finish(record.offset, UnmatchedReason::kReservedTenant);
    return;
  }
  const MatchIndex& index = *program_.index();
  const absl::string_view type =
      operational_ ? record.Header(kOperationalType) : decoder.TypeOf(record.topic);
  FindPatterns(type);
  if (!index.MayMatch(patterns_, event.tenant)) {
    Finish(record.offset, UnmatchedReason::kNoSubscription);
    return;
  }
  if (const auto reason = decoder.Finish()) {
    Reject(record, *reason);
    return;
  }
  index.Find(patterns_, event.tenant, event.department, &matches_);
  if (operational_) LeaveOutSubject(record);
  if (matches_.empty()) {
    Finish(record.offset, UnmatchedReason::kNoSubscription);
    return;
  }
  record_.hops = HopsOf(record);
  if (record_.hops >= program_.options().hops_max) {
    Reject(record, RejectReason::kLoop);
    return;
  }

  MessageIdentity& identity = record_.identity;
  identity.source_topic.assign(record.topic.data(), record.topic.size());
  identity.source_partition = record.partition;
  identity.incarnation_ms = ctx_->incarnation_ms();
  identity.source_offset = record.offset;
  given_id_.assign(event.id.data(), event.id.size());
  record_.event_id = given_id_;
  if (given_id_.empty()) {
    record_.event_id = absl::StrCat(record.topic, "/", record.partition, "/",
                                    identity.incarnation_ms, "/", record.offset);
  }
  record_.type.assign(type.data(), type.size());
  record_.tenant.assign(event.tenant.data(), event.tenant.size());
  record_.department.reset();
  if (event.department) record_.department = std::string(*event.department);
  record_.event_time = event.time;
  record_.dispatch_time = ctx_->clock().Wall();
  record_.data.assign(record.value.data(), record.value.size());

  program_.metrics_.matched_events.Increment();
  BeginEmit(record.offset, static_cast<uint32_t>(matches_.size()));
}

void MatchFunction::FindPatterns(absl::string_view type) {
  if (operational_) {
    // Of many types, and rare.
    patterns_ = program_.index()->PatternsOf(type, MatchIndex::EveryType::kLeftOut);
    return;
  }
  if (patterns_of_snapshot_ == program_.snapshot_number()) return;
  patterns_ = program_.index()->PatternsOf(type);
  patterns_of_snapshot_ = program_.snapshot_number();
}

// An endpoint is not told of itself: what it is about it could not take, and what it did with that
// would be told again.
void MatchFunction::LeaveOutSubject(const LogRecord& record) {
  const absl::optional<EndpointId> subject = EndpointId::Parse(record.Header(kOperationalEndpoint));
  if (!subject) return;
  std::erase_if(matches_, [&](const Match& match) { return match.endpoint == *subject; });
}

void MatchFunction::BeginEmit(int64_t offset, uint32_t appends) {
  outstanding_[offset] = appends;
  offset_in_hand_ = offset;
  next_match_ = 0;
  emitting_ = true;
  EmitRest();
}

void MatchFunction::Reject(const LogRecord& record, RejectReason reason) {
  POSTRIDER_LOG(kWarn, "event rejected", {"reason", RejectReasonName(reason)},
                {"topic", record.topic}, {"partition", record.partition}, {"offset", record.offset},
                {"bytes", record.value.size()});
  program_.metrics_.rejected(reason).Increment();
  Rejection rejection;
  rejection.reason = RejectReasonName(reason);
  rejection.source = ctx_->partition();
  rejection.offset = record.offset;
  rejection.incarnation_ms = ctx_->incarnation_ms();
  rejection.timestamp = record.timestamp;
  rejection.rejected_at = ctx_->clock().Wall();
  rejection.value = record.value;
  rejection.value_bytes_max = kRejectedValueBytesMax;
  rejected_ = MakeRejectedRecord(program_.options().rejected_topic, std::move(rejection));
  matches_.clear();
  BeginEmit(record.offset, 1);
}

bool MatchFunction::EmitRest() {
  if (rejected_) {
    // Emit() takes it or leaves it as it is.
    if (!EmitRecord(std::move(*rejected_))) return false;
    rejected_.reset();
  }
  for (; next_match_ < matches_.size(); ++next_match_) {
    const Match& match = matches_[next_match_];
    record_.identity.endpoint = match.endpoint;
    record_.customer = match.customer;
    record_.endpoint_xid = match.endpoint_xid;
    record_.grants_xid = match.grants_xid;
    record_.message_id = MakeMessageId(record_.identity, given_id_);
    record_.part = PartOf(record_.message_id, match.parallelism);
    AppendRecord append;
    append.topic = program_.options().dispatch_topic;
    append.key = EncodeDispatchKey({match.endpoint, record_.part});
    append.partition = KeyGroupOf(append.key, 0, program_.options().key_groups);
    append.value = EncodeDispatchRecord(record_);
    if (!EmitRecord(std::move(append))) return false;
    program_.metrics_.messages.Increment();
  }
  emitting_ = false;
  return true;
}

bool MatchFunction::EmitRecord(AppendRecord&& record) {
  // Does not run after the task was closed, so that `this` is good.
  return ctx_->Emit(std::move(record),
                    [this, offset = offset_in_hand_](absl::StatusOr<int64_t> answer) {
                      OnAppended(offset, answer);
                    });
}

void MatchFunction::OnAppended(int64_t offset, const absl::StatusOr<int64_t>& answer) {
  if (!answer.ok()) {
    ctx_->Fail(absl::Status(
        answer.status().code(),
        absl::StrCat("matching: append for offset ", offset, ": ", answer.status().message())));
    return;
  }
  const auto found = outstanding_.find(offset);
  POSTRIDER_CHECK(found != outstanding_.end() && found->second > 0);
  if (--found->second > 0) return;
  outstanding_.erase(found);
  ctx_->Complete(offset);
}

}  // namespace postrider::subscriptions
