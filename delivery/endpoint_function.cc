#include "delivery/endpoint_function.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/stream/rejected_record.h"
#include "delivery/body.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_timers.h"
#include "delivery/part_notice.h"

namespace postrider::delivery {
namespace {

using subscriptions::BlockedHead;
using subscriptions::DispatchRecord;
using subscriptions::EndpointMode;
using subscriptions::OrderKind;

RetryPolicy PolicyOf(const subscriptions::RetrySettings& settings) {
  RetryPolicy policy;
  policy.attempts = settings.attempts;
  policy.horizon = settings.horizon;
  policy.first_delay = settings.first_delay;
  policy.factor = settings.factor;
  policy.cap = settings.cap;
  policy.schedule.assign(settings.schedule.begin(), settings.schedule.end());
  return policy;
}

}  // namespace

EndpointFunction::EndpointFunction(DeliveryProgram& program)
    : program_(program), self_(std::make_shared<EndpointFunction*>(this)) {}

EndpointFunction::~EndpointFunction() {
  POSTRIDER_CHECK(program_.operations().in_flight(*this) == 0);
  program_.Forget(this);
  SetBacklogKnown();
}

absl::Status EndpointFunction::Open(TaskContext& ctx) {
  ctx_ = &ctx;
  if (program_.options().durable_backlog) {
    Backlog::Events events;
    events.parked = [this](int64_t offset) { ctx_->Complete(offset); };
    events.flagged = [this](const std::string& key) { OnFlagged(key); };
    events.removed = [this](const std::string& key, const IdBytes& digest) {
      OnRemoved(key, digest);
    };
    ++program_.common().backlogs_unknown;
    backlog_ = std::make_unique<Backlog>(ctx, program_.metrics(), std::move(events));
    StateDescriptor health;
    health.id = kHealthState;
    health.name = "health";
    health_ = std::make_unique<ValueState<HealthRecord>>(ctx.state(kEndpointChangelog), ctx.clock(),
                                                         health, HealthSerializer());
    StateDescriptor told;
    told.id = kOperationalState;
    told.name = "operational";
    told_ = std::make_unique<ValueState<OperationalRecord>>(
        ctx.state(kEndpointChangelog), ctx.clock(), told, OperationalSerializer());
    StateDescriptor learned;
    learned.id = kLearnedState;
    learned.name = "learned";
    learned_ = std::make_unique<ValueState<LearnedRecord>>(
        ctx.state(kEndpointChangelog), ctx.clock(), learned, LearnedSerializer());
  }
  if (program_.options().operational && program_.options().key_groups > 0) {
    ctx.SetTimer(kFunctionKey, kSecretsTimer, ctx.clock().Now() + kSweepInterval);
  }
  return absl::OkStatus();
}

EndpointState& EndpointFunction::StateOf(absl::string_view key) {
  EndpointState& state = endpoints_.GetOrCreate(key, program_.options().health);
  if (state.key.empty()) {
    state.key = std::string(key);
    const auto named = subscriptions::DecodeDispatchKey(key).value_or(subscriptions::DispatchKey());
    state.id = named.endpoint;
    state.share = PartShare(named.part, 1);
    state.last_used = ctx_->clock().Now();
    if (backlog_ != nullptr) state.flag = backlog_->ReadFlag(key);
    ReadHealth(state);
    ReadTold(state);
    ReadLearned(state);
    ReadSettings(state);
    if (!std::exchange(sweeping_, true)) {
      const MonotonicTime now = ctx_->clock().Now();
      ctx_->SetTimer(kFunctionKey, kSweepTimer, now + kSweepInterval);
      if (backlog_ != nullptr) ctx_->SetTimer(kFunctionKey, kAgeTimer, now + kAgeInterval);
    }
  }
  return state;
}

// What decides how messages are gathered. An endpoint that the snapshot lacks gathers by default;
// its messages meet Admit() before anything is sent.
void EndpointFunction::ReadSettings(EndpointState& state) {
  state.rests_until = MonotonicTime{};
  const subscriptions::Snapshot* snapshot = program_.snapshot();
  if (snapshot == nullptr) return;
  const std::shared_ptr<const subscriptions::Endpoint> endpoint = snapshot->FindEndpoint(state.id);
  state.absent = endpoint == nullptr;
  if (endpoint == nullptr) return;
  const subscriptions::EndpointSettings& settings = endpoint->settings;
  state.share = PartShare(state.share.part(), settings.parallelism);
  if (std::exchange(state.generation, endpoint->generation) != endpoint->generation) {
    state.learned = LearnedLimits();
  }
  const int64_t events_max =
      std::min(settings.batch.events_max, state.learned.events_max.value_or(INT64_MAX));
  const int64_t bytes_max =
      std::min(settings.batch.bytes_max, state.learned.bytes_max.value_or(INT64_MAX));
  const bool streaming =
      settings.mode == EndpointMode::kStreaming || IsForStreamingOnly(settings.body.format);
  const bool other_format = settings.body.format != state.format;
  const bool tighter = other_format || (streaming && !state.streaming) ||
                       events_max < state.events_max || bytes_max < state.bytes_max;
  const bool other_wait = settings.batch.wait_max != state.wait_max;
  state.streaming = streaming;
  state.format = settings.body.format;
  state.events_max = events_max;
  state.bytes_max = bytes_max;
  state.wait_max = settings.batch.wait_max;
  state.retry = PolicyOf(settings.retry);
  state.customer = endpoint->customer;
  if (settings.order.kind != OrderKind::kNone && settings.order.blocked == BlockedHead::kHold) {
    // What blocks others behind it is given up for its age only.
    state.retry.attempts = std::numeric_limits<int>::max();
  }
  state.window.SetLimit(state.share.Of(settings.window_max));
  if (state.prepared != nullptr && state.prepared->endpoint != endpoint) state.prepared.reset();
  if (other_format) Remeasure(state);
  SetOrder(state, settings.order);
  ReadDesired(state, endpoint);
  if (tighter) CutUntried(state);
  if (other_wait && !state.open.messages.empty() && !state.open_due) {
    StartOpen(state, state.open.messages.front());
  }
}

bool EndpointFunction::Fits(const EndpointState& state, const Batch& batch) {
  if (batch.messages.size() <= 1) return true;
  return !state.streaming && batch.messages.size() <= static_cast<size_t>(state.events_max) &&
         batch.bytes <= static_cast<size_t>(state.bytes_max);
}

void EndpointFunction::Cut(const EndpointState& state, BatchLine& batches) {
  for (Batch& batch : std::exchange(batches, {})) {
    if (batch.tries > 0 || batch.recorded || Fits(state, batch)) {
      batches.push_back(std::move(batch));
      continue;
    }
    Batch piece;
    for (Message& message : batch.messages) {
      piece.Add(std::move(message));
      if (Fits(state, piece)) continue;
      Message last = std::move(piece.messages.back());
      piece.messages.pop_back();
      piece.bytes -= last.body_bytes;
      batches.push_back(std::exchange(piece, Batch()));
      piece.Add(std::move(last));
    }
    batches.push_back(std::move(piece));
  }
}

// What was gathered for another format. What was sent keeps its members, and so needs no bound.
void EndpointFunction::Remeasure(EndpointState& state) {
  state.open.Remeasure(state.format);
  for (BatchLine* batches : {&state.ready, &state.drained}) {
    for (Batch& batch : *batches) {
      if (batch.tries == 0 && !batch.recorded) batch.Remeasure(state.format);
    }
  }
}

// What was gathered under wider bounds (before the endpoint was known, too) and was never sent goes
// within those of now. What was sent keeps its members.
void EndpointFunction::CutUntried(EndpointState& state) {
  if (!Fits(state, state.open) || (state.streaming && !state.open.messages.empty())) {
    CloseOpen(state);
  }
  Cut(state, state.ready);
  Cut(state, state.drained);
}

// Never written by a matcher: kept for inspection, and the stream goes on.
void EndpointFunction::Reject(const LogRecord& record) {
  program_.metrics().undecodable.Increment();
  POSTRIDER_LOG(kError, "undecodable dispatch record", {"partition", ctx_->partition().ToString()},
                {"offset", record.offset});
  Rejection rejection;
  rejection.reason = "undecodable_dispatch_record";
  rejection.source = ctx_->partition();
  rejection.offset = record.offset;
  rejection.timestamp = record.timestamp;
  rejection.rejected_at = ctx_->clock().Wall();
  rejection.key = std::string(record.key);
  rejection.value = record.value;
  Output output;
  output.record =
      MakeRejectedRecord(RejectedTopicName(program_.options().topic_prefix), std::move(rejection));
  output.ending.order = static_cast<uint64_t>(record.offset);
  output.ending.pending = true;
  Emit(std::move(output));
}

// Whether a record that was read is in the backlog already. As long as records may come again that
// a predecessor had parked, a claim alone says nothing: its batches also name what was never
// parked.
bool EndpointFunction::IsEntry(const EndpointState& state, uint64_t order, const IdBytes& digest) {
  if (!caught_up_ && backlog_->inherited()) return backlog_->Has(state.key, order, digest);
  return state.claimed.contains(digest);
}

void EndpointFunction::OnElement(TaskContext& ctx, const LogRecord& record) {
  at_partition_end_ = false;
  if (record.Header(kPartNoticeHeader).data() != nullptr) return OnPartNotice(record);
  absl::StatusOr<std::unique_ptr<MessageContent>> content = MakeMessageContent(record.value);
  if (absl::IsUnimplemented(content.status())) {
    // Of a newer version: some other worker can read it, and it waits until this one is replaced.
    return ctx.Fail(content.status());
  }
  if (!content.ok() || !subscriptions::DecodeDispatchKey(record.key)) return Reject(record);
  const IdBytes digest = (*content)->record.identity.Digest();
  const auto order = static_cast<uint64_t>(record.offset);
  const bool ended = EndedAhead(order, digest);
  WakeUnread();
  if (recent_.SeenBefore(digest, record.offset) || ended) {
    program_.metrics().duplicates_dropped.Increment();
    ctx.Complete(record.offset);
    return;
  }
  EndpointState& state = StateOf(record.key);
  bool listed = false;
  if (state.flag != Backlog::Flag::kNone) {
    // Parked by a predecessor whose commit did not say so? While the backlog is being restored that
    // cannot be known.
    listed = !backlog_->restored();
    if (!listed && IsEntry(state, order, digest)) {
      program_.metrics().duplicates_dropped.Increment();
      const int64_t offset = record.offset;
      return backlog_->WhenDurable([this, offset] { ctx_->Complete(offset); });
    }
  }
  Message message = MakeMessage(*std::move(content), order, digest, state.format);
  message.arrived = ctx.clock().Now();
  message.pending = true;
  message.listed = listed;
  SetOrderKey(state, message);
  if (Hold(state, message)) return;
  if (Arrive(state, record, message)) return;
  if (Spills(state, message)) {
    if (SpillArrived(state, message)) return Schedule(state);
    if (Stopped(state)) Want(state, ParkReason::kStopped);
  }
  Add(state, std::move(message));
  if (!OnlyGathers(state)) Schedule(state);
}

// Whether the open batch is all that a new message can have changed: then nothing has become
// sendable by it.
bool EndpointFunction::OnlyGathers(const EndpointState& state) {
  return !state.streaming && !state.open_due && state.order == nullptr && state.ready.empty() &&
         state.waiting.empty() && state.flag == Backlog::Flag::kNone;
}

void EndpointFunction::OnSkipped(TaskContext&, const LogRecord& record) {
  const absl::StatusOr<DispatchRecord> decoded = subscriptions::DecodeDispatchRecord(record.value);
  if (!decoded.ok()) return;
  const IdBytes digest = decoded->identity.Digest();
  static_cast<void>(EndedAhead(static_cast<uint64_t>(record.offset), digest));
  WakeUnread();
  static_cast<void>(recent_.SeenBefore(digest, record.offset));
}

void EndpointFunction::Add(EndpointState& state, Message message) {
  if (message.pending) state.pending_bytes += message.bytes;
  state.last_used = ctx_->clock().Now();
  if (state.order != nullptr) state.order->set_stalled(false);
  if (state.streaming) {
    BatchLine& line = message.pending ? state.ready : state.drained;
    line.emplace_back();
    line.back().Add(std::move(message));
    return;
  }
  // A message that would make the batch too large begins the next one; alone it goes as it is.
  if (!state.open.messages.empty() &&
      state.open.bytes + message.body_bytes > static_cast<size_t>(state.bytes_max)) {
    CloseOpen(state);
  }
  if (state.open.messages.empty()) StartOpen(state, message);
  state.open.Add(std::move(message));
  if (state.open.messages.size() >= static_cast<size_t>(state.events_max) ||
      state.open.bytes >= static_cast<size_t>(state.bytes_max)) {
    CloseOpen(state);
  } else if (state.open_long) {
    Message& last = state.open.messages.back();
    if (Park(state, last, ParkReason::kLongWait)) last.content.reset();
  }
}

// Sets the clock of a new open batch. It counts from the first message's dispatch, so that a
// restart adds no second wait. One that is due on arrival (we lag) waits for company: for late_wait
// and the partition's end, but no longer than wait_max from now; so batches do not shrink at
// overload.
void EndpointFunction::StartOpen(EndpointState& state, const Message& first) {
  state.open_due = flushing_ || state.wait_max == Duration::zero();
  state.open_late = false;
  state.open_long = false;
  if (state.open_due) return;
  const Duration left = state.wait_max - Age(ctx_->clock().Wall(), first.dispatch_time);
  const MonotonicTime now = ctx_->clock().Now();
  state.open_since = now;
  if (left > Duration::zero()) {
    ctx_->SetTimer(state.key, kBatchTimer, now + left);
    state.open_long = left > program_.options().long_wait;
    if (state.open_long) static_cast<void>(ParkOpen(state, ParkReason::kLongWait));
    return;
  }
  state.open_late = true;
  if (!std::exchange(state.listed_late, true)) late_.push_back(state.key);
  ctx_->SetTimer(state.key, kBatchTimer,
                 now + std::min(state.wait_max, program_.options().late_wait));
}

void EndpointFunction::CloseOpen(EndpointState& state) {
  ctx_->CancelTimer(state.key, kBatchTimer);
  state.open_due = false;
  state.open_late = false;
  state.open_long = false;
  if (state.order != nullptr) state.order->set_stalled(false);
  state.ready.push_back(std::exchange(state.open, Batch()));
}

void EndpointFunction::OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag,
                               MonotonicTime time) {
  if (tag == kSweepTimer) return Sweep();
  if (tag == kAgeTimer) return ParkOld();
  if (tag == kInheritedTimer) return EndInherited();
  if (tag == kRebuildTimer) return Rebuild();
  if (tag == kBoundsTimer) return KeepBounds();
  if (tag == kEraseTimer) return EraseSome();
  if (tag == kOrphanTimer) return RemoveOrphans();
  if (tag == kSecretsTimer) return LookAtSecrets();
  EndpointState* state = endpoints_.Get(key);
  if (state == nullptr) return;
  if (tag == kBatchTimer && !state->open.messages.empty()) {
    const MonotonicTime last = state->open_since + state->wait_max;
    if (state->open_late && !at_partition_end_ && time < last) {
      ctx.SetTimer(key, kBatchTimer, last);
      return;
    }
    state->open_due = true;
  }
  Schedule(*state);
}

void EndpointFunction::OnPartitionEnd(TaskContext& ctx, int64_t next) {
  at_partition_end_ = true;
  next_read_ = static_cast<uint64_t>(next);
  ended_ahead_.clear();
  caught_up_ = true;
  if (!inherited_.empty()) {
    inherited_.OnPartitionEnd();
    EndInherited();
  }
  WakeUnread();
  for (const std::string& key : std::exchange(arriving_, {})) {
    EndpointState* state = endpoints_.Get(key);
    if (state != nullptr) EndArrival(*state);
  }
  const MonotonicTime now = ctx.clock().Now();
  std::vector<std::string> rest;
  for (std::string& key : late_) {
    EndpointState* state = endpoints_.Get(key);
    if (state == nullptr) continue;
    if (!state->open_late || state->open_due) {
      state->listed_late = false;
      continue;
    }
    const Duration wait = std::min(state->wait_max, program_.options().late_wait);
    if (now < state->open_since + wait) {
      rest.push_back(std::move(key));
      continue;
    }
    state->listed_late = false;
    state->open_due = true;
    Schedule(*state);
  }
  late_ = std::move(rest);
}

// Forgets endpoints without work: after a while, or at once when they are deleted.
void EndpointFunction::Sweep() {
  const MonotonicTime now = ctx_->clock().Now();
  const subscriptions::Snapshot* snapshot = program_.snapshot();
  std::vector<std::string> idle;
  endpoints_.ForEach([&](absl::string_view key, EndpointState& state) {
    if (state.learned.Expire(now)) ReadSettings(state);
    WriteLearned(state);
    if (!state.idle() || now < state.hold_until) return;
    if (backlog_ != nullptr) {
      if (backlog_->size(key) > 0) return;
      // Left over by a predecessor that removed its last entry and was replaced.
      if (state.flag == Backlog::Flag::kSet && IsRestored(state)) {
        constexpr size_t kBatchesMax = 100;
        std::string from;
        for (const Backlog::StoredBatch& batch : backlog_->Batches(key, from, kBatchesMax)) {
          backlog_->RemoveBatch(key, batch.key);
        }
        if (!from.empty()) return;  // the next time
        ClearFlagWhenEmpty(state);
      }
    }
    const bool gone = snapshot != nullptr && snapshot->FindEndpoint(state.id) == nullptr;
    const bool unused = now - state.last_used >= program_.options().forget_after;
    const bool kept = state.learned.any() || state.teller.CountsAt(now);
    if (gone || (unused && !kept)) idle.push_back(state.key);
  });
  for (const std::string& key : idle) {
    ForgetHealth(*endpoints_.Get(key));
    endpoints_.Clear(key);
  }
  sweeping_ = endpoints_.size() > 0;
  if (sweeping_) {
    ctx_->SetTimer(kFunctionKey, kSweepTimer, now + kSweepInterval);
  } else {
    ctx_->CancelTimer(kFunctionKey, kAgeTimer);
    // Nobody looks at sizes any more, and what was told last may be from before the end of one.
    if (backlog_ != nullptr) TellSizes({}, 0);
  }
}

void EndpointFunction::OnRoom(TaskContext&) {
  DrainOutputs();
  WriteHealthAgain();
  if (backlog_ == nullptr || !backlog_->OnRoom()) return;
  for (const std::string& key : std::exchange(park_again_, {})) {
    EndpointState* state = endpoints_.Get(key);
    if (state != nullptr) ParkAgain(*state);
  }
}

void EndpointFunction::OnSnapshot() {
  const subscriptions::Snapshot* snapshot = program_.snapshot();
  const uint64_t contents = snapshot == nullptr ? 0 : snapshot->contents_version();
  const bool changed = std::exchange(contents_read_, contents) != contents;
  if (ctx_ == nullptr) return;
  LookAtErasures();
  if (changed) {
    endpoints_.ForEach([this](absl::string_view, EndpointState& state) {
      ReadSettings(state);
      Schedule(state);
    });
  }
  for (const std::string& key : std::exchange(awaiting_, {})) {
    EndpointState* state = endpoints_.Get(key);
    if (state == nullptr || !std::exchange(state->awaits_snapshot, false)) continue;
    program_.metrics().waiting_for_snapshot.Add(-1);
    Schedule(*state);
  }
}

}  // namespace postrider::delivery
