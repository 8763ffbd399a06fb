#include "delivery/endpoint_function.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "delivery/body.h"
#include "delivery/delivery_program.h"
#include "delivery/headers.h"
#include "dlq/letters/dead_letter_log.h"

namespace postrider::delivery {
namespace {

using subscriptions::DispatchRecord;
using subscriptions::EndpointMode;

constexpr uint32_t kBatchTimer = 1;
constexpr uint32_t kSendTimer = 2;
// Of the function, under a key that no endpoint has: looks for endpoints that have been idle.
constexpr uint32_t kSweepTimer = 3;
constexpr absl::string_view kSweepKey = "";
constexpr std::chrono::minutes kSweepInterval{1};
// Retries get at least one send in five while fresh messages wait.
constexpr int kFreshInARowMax = 4;

MessageView ViewOf(const DispatchRecord& record, absl::string_view message_id) {
  MessageView view;
  view.message_id = message_id;
  view.event_id = record.event_id;
  view.type = record.type;
  view.tenant = record.tenant;
  if (record.department) view.department = absl::string_view(*record.department);
  view.time = record.event_time;
  view.data = record.data;
  return view;
}

RetryPolicy PolicyOf(const subscriptions::RetrySettings& settings) {
  RetryPolicy policy;
  policy.attempts = settings.attempts;
  policy.horizon = settings.horizon;
  policy.first_delay = settings.first_delay;
  policy.factor = settings.factor;
  policy.cap = settings.cap;
  return policy;
}

Outcome MisconfiguredOutcome() {
  Outcome outcome;
  outcome.kind = OutcomeKind::kConfiguration;
  outcome.verdict = Verdict::kRetry;
  outcome.charge = Charge::kCharged;
  outcome.breaker = BreakerEffect::kFailure;
  return outcome;
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// How long ago `then` was: between none and a century, whatever a clock or an event says.
Duration Age(WallTime now, WallTime then) {
  constexpr auto kCentury =
      static_cast<uint64_t>(std::chrono::milliseconds(std::chrono::years(100)).count());
  if (then >= now) return Duration::zero();
  const uint64_t millis =
      static_cast<uint64_t>(MillisSinceEpoch(now)) - static_cast<uint64_t>(MillisSinceEpoch(then));
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(millis, kCentury)));
}

size_t BodyBytesMax(const MessageView& message) { return EnvelopeBytesMax(message) + 1; }

}  // namespace

EndpointFunction::EndpointFunction(DeliveryProgram& program)
    : program_(program), self_(std::make_shared<EndpointFunction*>(this)) {}

EndpointFunction::~EndpointFunction() {
  POSTRIDER_CHECK(flights_ == 0);
  program_.Forget(this);
}

absl::Status EndpointFunction::Open(TaskContext& ctx) {
  ctx_ = &ctx;
  return absl::OkStatus();
}

EndpointFunction::EndpointState& EndpointFunction::StateOf(absl::string_view key) {
  EndpointState& state = endpoints_.GetOrCreate(key);
  if (state.key.empty()) {
    state.key = std::string(key);
    IdBytes bytes{};
    std::copy_n(key.begin(), std::min(key.size(), bytes.size()), bytes.begin());
    state.id = subscriptions::EndpointId(bytes);
    ReadSettings(state);
    if (!std::exchange(sweeping_, true)) {
      ctx_->SetTimer(kSweepKey, kSweepTimer, ctx_->clock().Now() + kSweepInterval);
    }
  }
  return state;
}

// What decides how messages are gathered. An endpoint that the snapshot lacks gathers by default;
// its messages meet Admit() before anything is sent.
void EndpointFunction::ReadSettings(EndpointState& state) {
  const subscriptions::Snapshot* snapshot = program_.snapshot();
  if (snapshot == nullptr) return;
  const std::shared_ptr<const subscriptions::Endpoint> endpoint = snapshot->FindEndpoint(state.id);
  if (endpoint == nullptr) return;
  const subscriptions::EndpointSettings& settings = endpoint->settings;
  const bool tighter = (settings.mode == EndpointMode::kStreaming && !state.streaming) ||
                       settings.batch.events_max < state.events_max ||
                       settings.batch.bytes_max < state.bytes_max;
  const bool other_wait = settings.batch.wait_max != state.wait_max;
  state.streaming = settings.mode == EndpointMode::kStreaming;
  state.events_max = settings.batch.events_max;
  state.bytes_max = settings.batch.bytes_max;
  state.wait_max = settings.batch.wait_max;
  state.retry = PolicyOf(settings.retry);
  state.window.SetLimit(settings.window_max);
  if (state.prepared != nullptr && state.prepared->endpoint != endpoint) state.prepared.reset();
  if (tighter) CutUntried(state);
  if (other_wait && !state.open.messages.empty() && !state.open_due) {
    StartOpen(state, *state.open.messages.front());
  }
}

bool EndpointFunction::Fits(const EndpointState& state, const Batch& batch) {
  if (batch.messages.size() <= 1) return true;
  return !state.streaming && batch.messages.size() <= static_cast<size_t>(state.events_max) &&
         batch.bytes <= static_cast<size_t>(state.bytes_max);
}

// What was gathered under wider bounds (before the endpoint was known, too) and was never sent goes
// within those of now. What was sent keeps its members.
void EndpointFunction::CutUntried(EndpointState& state) {
  if (!Fits(state, state.open) || (state.streaming && !state.open.messages.empty())) {
    CloseOpen(state);
  }
  for (Batch& batch : std::exchange(state.ready, {})) {
    if (batch.tries > 0 || Fits(state, batch)) {
      state.ready.push_back(std::move(batch));
      continue;
    }
    Batch piece;
    for (std::unique_ptr<Message>& message : batch.messages) {
      const size_t size = BodyBytesMax(ViewOf(message->record, message->message_id));
      piece.bytes += size;
      piece.messages.push_back(std::move(message));
      if (Fits(state, piece)) continue;
      message = std::move(piece.messages.back());
      piece.messages.pop_back();
      state.ready.push_back(std::exchange(piece, Batch()));
      piece.bytes = size;
      piece.messages.push_back(std::move(message));
    }
    state.ready.push_back(std::move(piece));
  }
}

void EndpointFunction::OnElement(TaskContext& ctx, const LogRecord& record) {
  at_partition_end_ = false;
  absl::StatusOr<DispatchRecord> decoded = subscriptions::DecodeDispatchRecord(record.value);
  if (absl::IsUnimplemented(decoded.status())) {
    // Of a newer version: some other worker can read it, and it waits until this one is replaced.
    return ctx.Fail(decoded.status());
  }
  if (!decoded.ok() || record.key.size() != 16) {
    // Never written by a matcher: kept for inspection, and the stream goes on.
    program_.metrics().undecodable.Increment();
    POSTRIDER_LOG(kError, "undecodable dispatch record", {"partition", ctx.partition().ToString()},
                  {"offset", record.offset});
    Output output;
    output.record.topic = absl::StrCat(program_.options().topic_prefix, "rejected");
    output.record.key = std::string(record.key);
    output.record.value = std::string(record.value);
    output.record.headers = {{"reason", "undecodable_dispatch_record"},
                             {"source", ctx.partition().ToString()}};
    output.offset = record.offset;
    Emit(std::move(output));
    return;
  }
  auto message = std::make_unique<Message>();
  message->digest = decoded->identity.Digest();
  if (recent_.SeenBefore(message->digest, record.offset)) {
    program_.metrics().duplicates_dropped.Increment();
    ctx.Complete(record.offset);
    return;
  }
  message->offset = record.offset;
  message->bytes = record.bytes();
  message->message_id = subscriptions::FormatMessageId(decoded->message_id);
  message->record = *std::move(decoded);
  EndpointState& state = StateOf(record.key);
  Add(state, std::move(message));
  Schedule(state);
}

void EndpointFunction::OnSkipped(TaskContext&, const LogRecord& record) {
  const absl::StatusOr<DispatchRecord> decoded = subscriptions::DecodeDispatchRecord(record.value);
  if (!decoded.ok()) return;
  static_cast<void>(recent_.SeenBefore(decoded->identity.Digest(), record.offset));
}

void EndpointFunction::Add(EndpointState& state, std::unique_ptr<Message> message) {
  state.messages += 1;
  state.bytes += message->bytes;
  state.last_used = ctx_->clock().Now();
  const size_t size = BodyBytesMax(ViewOf(message->record, message->message_id));
  if (state.streaming) {
    Batch single;
    single.bytes = size;
    single.messages.push_back(std::move(message));
    state.ready.push_back(std::move(single));
    return;
  }
  // A message that would make the batch too large begins the next one; alone it goes as it is.
  if (!state.open.messages.empty() &&
      state.open.bytes + size > static_cast<size_t>(state.bytes_max)) {
    CloseOpen(state);
  }
  if (state.open.messages.empty()) StartOpen(state, *message);
  state.open.bytes += size;
  state.open.messages.push_back(std::move(message));
  if (state.open.messages.size() >= static_cast<size_t>(state.events_max) ||
      state.open.bytes >= static_cast<size_t>(state.bytes_max)) {
    CloseOpen(state);
  }
}

// Sets the clock of a new open batch. It counts from the first message's dispatch, so that a
// restart adds no second wait. One that is due on arrival (we lag) waits for company: for late_wait
// and the partition's end, but no longer than wait_max from now; so batches do not shrink at
// overload.
void EndpointFunction::StartOpen(EndpointState& state, const Message& first) {
  state.open_due = flushing_ || state.wait_max == Duration::zero();
  state.open_late = false;
  if (state.open_due) return;
  const Duration left = state.wait_max - Age(ctx_->clock().Wall(), first.record.dispatch_time);
  const MonotonicTime now = ctx_->clock().Now();
  state.open_since = now;
  if (left > Duration::zero()) {
    ctx_->SetTimer(state.key, kBatchTimer, now + left);
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
  state.ready.push_back(std::exchange(state.open, Batch()));
}

void EndpointFunction::OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag,
                               MonotonicTime time) {
  if (tag == kSweepTimer) return Sweep();
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

void EndpointFunction::OnPartitionEnd(TaskContext& ctx, int64_t) {
  at_partition_end_ = true;
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
  endpoints_.ForEach([&](absl::string_view, EndpointState& state) {
    if (state.messages > 0 || !state.flights.empty() || state.in_line || state.listed_late ||
        state.awaits_snapshot || now < state.hold_until) {
      return;
    }
    const bool gone = snapshot != nullptr && snapshot->FindEndpoint(state.id) == nullptr;
    if (gone || now - state.last_used >= program_.options().forget_after) idle.push_back(state.key);
  });
  for (const std::string& key : idle) endpoints_.Clear(key);
  sweeping_ = endpoints_.size() > 0;
  if (sweeping_) ctx_->SetTimer(kSweepKey, kSweepTimer, now + kSweepInterval);
}

bool EndpointFunction::Sendable(const EndpointState& state) const {
  if (state.awaits_snapshot || state.flights.size() >= state.window.size()) return false;
  const MonotonicTime now = ctx_->clock().Now();
  if (now < state.hold_until) return false;
  if (!state.ready.empty()) return true;
  if (!state.waiting.empty() && state.waiting.begin()->first <= now) return true;
  return OpenMayGo(state);
}

bool EndpointFunction::OpenMayGo(const EndpointState& state) const {
  if (state.open.messages.empty() || !state.open_due) return false;
  // With wait_max 0 a batch gathers while a request is in flight.
  return state.wait_max > Duration::zero() || state.flights.empty() || flushing_;
}

// Puts the endpoint in line when it can send, else sets the timer for when it may.
void EndpointFunction::Schedule(EndpointState& state) {
  if (state.in_line) return;
  if (Sendable(state)) {
    if (!ctx_->MayAct()) return;  // OnResume() comes
    state.in_line = true;
    ++in_line_;
    program_.Enqueue(this, state.key);
    return;
  }
  // A slot that becomes free, a snapshot or a full batch come here by themselves.
  const MonotonicTime now = ctx_->clock().Now();
  const bool fresh = !state.ready.empty() || state.open_due;
  if (fresh && state.hold_until > now) {
    ctx_->SetTimer(state.key, kSendTimer, state.hold_until);
  } else if (!state.waiting.empty()) {
    const MonotonicTime retry = std::max(state.hold_until, state.waiting.begin()->first);
    if (retry > now) ctx_->SetTimer(state.key, kSendTimer, retry);
  }
}

absl::optional<EndpointFunction::Batch> EndpointFunction::TakeNext(EndpointState& state) {
  const auto due = state.waiting.begin();
  const bool retry_due = due != state.waiting.end() && due->first <= ctx_->clock().Now();
  const bool fresh = !state.ready.empty() || OpenMayGo(state);
  if (retry_due && (!fresh || state.fresh_in_a_row >= kFreshInARowMax)) {
    state.fresh_in_a_row = 0;
    Batch batch = std::move(due->second);
    state.waiting.erase(due);
    return batch;
  }
  if (retry_due) ++state.fresh_in_a_row;
  if (state.ready.empty() && OpenMayGo(state)) CloseOpen(state);
  if (state.ready.empty()) return absl::nullopt;
  Batch batch = std::move(state.ready.front());
  state.ready.pop_front();
  return batch;
}

void EndpointFunction::SendNext(const std::string& key) {
  EndpointState* state = endpoints_.Get(key);
  if (state == nullptr) return;
  state->in_line = false;
  --in_line_;
  if (!ctx_->MayAct() || !Sendable(*state)) {
    Schedule(*state);
    return;
  }
  absl::optional<Batch> batch = TakeNext(*state);
  if (batch) Send(*state, *std::move(batch));
  Schedule(*state);
}

// Takes out of the batch what may not be sent any more. kWait: the snapshot is too old to tell.
EndpointFunction::Admission EndpointFunction::Admit(EndpointState& state, Batch& batch) {
  if (!program_.SnapshotUsable()) return Admission::kWait;
  const subscriptions::Snapshot& snapshot = *program_.snapshot();
  const std::shared_ptr<const subscriptions::Endpoint> endpoint = snapshot.FindEndpoint(state.id);
  std::vector<absl::optional<dlq::RefusalReason>> refused(batch.messages.size());
  bool any = false;
  for (size_t i = 0; i < batch.messages.size(); ++i) {
    const DispatchRecord& record = batch.messages[i]->record;
    if (endpoint == nullptr) {
      if (!snapshot.Sees(record.endpoint_xid)) return Admission::kWait;
      refused[i] = dlq::RefusalReason::kEndpointDeleted;
      any = true;
    } else if (!snapshot.Granted(endpoint->customer, record.tenant)) {
      if (!snapshot.Sees(record.grants_xid)) return Admission::kWait;
      refused[i] = dlq::RefusalReason::kGrantWithdrawn;
      any = true;
    }
  }
  if (!any) return Admission::kSend;
  std::vector<std::unique_ptr<Message>> kept;
  for (size_t i = 0; i < batch.messages.size(); ++i) {
    if (refused[i]) {
      Refuse(state, *batch.messages[i], *refused[i]);
    } else {
      kept.push_back(std::move(batch.messages[i]));
    }
  }
  batch.messages = std::move(kept);
  return batch.messages.empty() ? Admission::kDrop : Admission::kSend;
}

const PreparedEndpoint* EndpointFunction::Prepared(EndpointState& state, absl::Status* why) {
  if (state.prepared == nullptr) {
    absl::StatusOr<std::unique_ptr<PreparedEndpoint>> prepared =
        PrepareEndpoint(program_.snapshot()->FindEndpoint(state.id), program_.keys());
    if (!prepared.ok()) {
      *why = prepared.status();
      return nullptr;
    }
    state.prepared = *std::move(prepared);
  }
  return state.prepared.get();
}

absl::StatusOr<HttpRequest> EndpointFunction::MakeRequest(EndpointState& state, Batch& batch,
                                                          const PreparedEndpoint& prepared) {
  const subscriptions::EndpointSettings& settings = prepared.endpoint->settings;
  std::vector<MessageView> views;
  views.reserve(batch.messages.size());
  for (const std::unique_ptr<Message>& message : batch.messages) {
    views.push_back(ViewOf(message->record, message->message_id));
  }
  HttpRequest request;
  request.url = prepared.url;
  request.total_timeout = settings.timeout;
  request.connection_group = std::string(prepared.endpoint->customer.view());
  std::string id;
  if (state.streaming && views.size() == 1) {
    id = batch.messages.front()->message_id;
    request.body = EnvelopeBody(views.front());
  } else {
    id = BatchId(views);
    request.body = BatchBody(views);
  }
  const WallTime now = ctx_->clock().Wall();
  const int64_t seconds = MillisSinceEpoch(now) / 1000;
  const std::string signature = state.prepared->secrets.Sign(id, seconds, request.body, now);
  if (signature.empty()) {
    return absl::FailedPreconditionError("delivery: the endpoint has no valid signing secret");
  }
  DeliveryHeaders headers;
  headers.webhook_id = id;
  headers.timestamp_seconds = seconds;
  headers.signature = signature;
  headers.attempt = batch.tries;
  headers.batch_size = views.size();
  headers.custom = &settings.headers;
  ASSIGN_OR_RETURN(request.headers, MakeDeliveryHeaders(headers));
  return request;
}

void EndpointFunction::Send(EndpointState& state, Batch batch) {
  switch (Admit(state, batch)) {
    case Admission::kDrop:
      return;
    case Admission::kWait:
      state.awaits_snapshot = true;
      awaiting_.push_back(state.key);
      program_.metrics().waiting_for_snapshot.Add(1);
      state.ready.push_front(std::move(batch));
      return;
    case Admission::kSend:
      break;
  }
  batch.tries += 1;
  const MonotonicTime now = ctx_->clock().Now();
  if (!batch.first_try) batch.first_try = now;
  absl::Status why;
  const PreparedEndpoint* prepared = Prepared(state, &why);
  absl::StatusOr<HttpRequest> request =
      prepared == nullptr ? absl::StatusOr<HttpRequest>(why) : MakeRequest(state, batch, *prepared);
  if (!request.ok()) {
    POSTRIDER_LOG(kWarn, "endpoint cannot be sent to", {"endpoint", state.id.ToString()},
                  {"why", request.status().message()});
    Settle(state, std::move(batch), MisconfiguredOutcome());
    return;
  }
  const uint64_t id = next_flight_++;
  const size_t size = batch.messages.size();
  const auto flight = state.flights.emplace(id, Flight{std::move(batch), 0, now}).first;
  ++flights_;
  program_.metrics().requests_in_flight.Add(1);
  program_.metrics().batch_messages.Observe(static_cast<double>(size));
  // It may wait for its name or a slot, and the right to send may end meanwhile.
  request->may_start = [self = std::weak_ptr<EndpointFunction*>(self_)] {
    const std::shared_ptr<EndpointFunction*> function = self.lock();
    return function != nullptr && (*function)->ctx_->MayAct();
  };
  flight->second.request = program_.sink().Send(
      *std::move(request),
      [self = std::weak_ptr<EndpointFunction*>(self_), key = state.key, id](HttpResult result) {
        const std::shared_ptr<EndpointFunction*> function = self.lock();
        if (function != nullptr) (*function)->OnHttpResult(key, id, std::move(result));
      });
}

void EndpointFunction::OnHttpResult(const std::string& key, uint64_t flight_id, HttpResult result) {
  EndpointState* state = endpoints_.Get(key);
  POSTRIDER_CHECK(state != nullptr);
  const auto flight = state->flights.find(flight_id);
  POSTRIDER_CHECK(flight != state->flights.end());
  Batch batch = std::move(flight->second.batch);
  state->flights.erase(flight);
  --flights_;
  state->last_used = ctx_->clock().Now();
  DeliveryMetrics& metrics = program_.metrics();
  metrics.requests_in_flight.Add(-1);
  metrics.attempt_seconds.Observe(Seconds(result.timings.total));
  if (result.resends > 0) metrics.resends.Add(result.resends);
  if (result.failure == HttpFailure::kAborted && !result.request_sent) {
    // As if it had not been tried.
    if (--batch.tries == 0) batch.first_try.reset();
    state->ready.push_front(std::move(batch));
    return Schedule(*state);
  }

  OutcomeContext context;
  context.batch_size = batch.messages.size();
  context.now = ctx_->clock().Wall();
  context.horizon = state->retry.horizon;
  const Outcome outcome = Classify(result, context);
  Settle(*state, std::move(batch), outcome);
  Schedule(*state);
}

void EndpointFunction::Settle(EndpointState& state, Batch batch, const Outcome& outcome) {
  DeliveryMetrics& metrics = program_.metrics();
  metrics.CountOutcome(outcome.kind).Increment();
  state.window.Apply(outcome.window);
  batch.last = outcome;
  const MonotonicTime now = ctx_->clock().Now();
  if (outcome.hold) state.hold_until = std::max(state.hold_until, now + *outcome.hold);
  switch (outcome.verdict) {
    case Verdict::kDone: {
      const WallTime wall = ctx_->clock().Wall();
      metrics.delivered.Add(static_cast<double>(batch.messages.size()));
      for (const std::unique_ptr<Message>& message : batch.messages) {
        metrics.end_to_end_seconds.Observe(Seconds(Age(wall, message->record.event_time)));
        Finish(state, *message);
        ctx_->Complete(message->offset);
      }
      return;
    }
    case Verdict::kDeadLetter:
      if (outcome.charge == Charge::kCharged) batch.attempts += 1;
      GiveUpBatch(state, std::move(batch), outcome.give_up);
      return;
    case Verdict::kRetry:
      break;
  }
  if (outcome.charge == Charge::kCharged) batch.attempts += 1;
  const absl::optional<Duration> delay = NextDelay(state.retry, batch.attempts, program_.random());
  if (!delay) {
    GiveUpBatch(state, std::move(batch),
                outcome.kind == OutcomeKind::kConfiguration ? dlq::DeadReason::kMisconfigured
                                                            : outcome.give_up);
    return;
  }
  // A receiver that names no time is left alone for the normal backoff.
  if (outcome.kind == OutcomeKind::kThrottled && !outcome.hold) {
    state.hold_until = std::max(state.hold_until, now + *delay);
  }
  const MonotonicTime next = std::max(now + *delay, state.hold_until);
  if (next > GiveUpAt(state.retry, *batch.first_try)) {
    GiveUpBatch(state, std::move(batch), dlq::DeadReason::kHorizon);
    return;
  }
  state.waiting.emplace(next, std::move(batch));
}

void EndpointFunction::GiveUpBatch(EndpointState& state, Batch batch, dlq::DeadReason reason) {
  for (const std::unique_ptr<Message>& message : batch.messages) {
    GiveUp(state, *message, reason, batch);
  }
}

void EndpointFunction::GiveUp(EndpointState& state, const Message& message, dlq::DeadReason reason,
                              const Batch& batch) {
  const DispatchRecord& record = message.record;
  dlq::DeadLetterRecord letter;
  letter.letter = dlq::MakeLetterId(record.dispatch_time, message.digest);
  letter.customer = record.customer;
  letter.endpoint = record.identity.endpoint;
  letter.reason = reason;
  letter.attempts = static_cast<uint32_t>(batch.tries);
  letter.last_status = batch.last.status;
  if (batch.tries > 0) letter.last_outcome = std::string(OutcomeName(batch.last.kind));
  letter.message_id = message.message_id;
  letter.event_id = record.event_id;
  letter.type = record.type;
  letter.tenant = record.tenant;
  letter.department = record.department;
  letter.event_time = record.event_time;
  letter.given_up_at = ctx_->clock().Wall();
  letter.data = record.data;
  program_.metrics().CountDeadLetter(reason).Increment();
  Finish(state, message);
  Emit({dlq::MakeDeadLetterAppend(program_.options().topic_prefix, letter), message.offset});
}

void EndpointFunction::Refuse(EndpointState& state, const Message& message,
                              dlq::RefusalReason reason) {
  const DispatchRecord& record = message.record;
  dlq::RefusalReport report;
  report.reason = reason;
  report.customer = record.customer;
  report.endpoint = record.identity.endpoint;
  report.message_id = message.message_id;
  report.event_id = record.event_id;
  report.source_topic = record.identity.source_topic;
  report.source_partition = record.identity.source_partition;
  report.source_offset = record.identity.source_offset;
  report.time = ctx_->clock().Wall();
  program_.metrics().CountRefusal(reason).Increment();
  Finish(state, message);
  Emit({dlq::MakeReportAppend(program_.options().topic_prefix, report), message.offset});
}

void EndpointFunction::Finish(EndpointState& state, const Message& message) {
  state.messages -= 1;
  state.bytes -= message.bytes;
}

// Appends a record whose acknowledgement completes a message.
void EndpointFunction::Emit(Output output) {
  outputs_.push_back(std::move(output));
  if (outputs_.size() == 1) DrainOutputs();
}

void EndpointFunction::DrainOutputs() {
  while (!outputs_.empty()) {
    Output& output = outputs_.front();
    const int64_t offset = output.offset;
    LogProducer::AppendDone done = [this, offset](absl::StatusOr<int64_t> appended) {
      if (appended.ok()) {
        ctx_->Complete(offset);
      } else {
        ctx_->Fail(std::move(appended).status());
      }
    };
    if (!ctx_->Emit(std::move(output.record), std::move(done))) return;
    outputs_.pop_front();
  }
}

void EndpointFunction::OnRoom(TaskContext&) { DrainOutputs(); }

void EndpointFunction::OnResume(TaskContext&) {
  flushing_ = false;
  endpoints_.ForEach([this](absl::string_view, EndpointState& state) { Schedule(state); });
}

void EndpointFunction::OnSnapshot() {
  const subscriptions::Snapshot* snapshot = program_.snapshot();
  const uint64_t contents = snapshot == nullptr ? 0 : snapshot->contents_version();
  const bool changed = std::exchange(contents_read_, contents) != contents;
  if (ctx_ == nullptr) return;
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

bool EndpointFunction::HasFailedOrHanging(const EndpointState& state) const {
  if (!state.waiting.empty()) return true;
  const MonotonicTime hanging = ctx_->clock().Now() - program_.options().hanging_after;
  return std::any_of(state.flights.begin(), state.flights.end(), [hanging](const auto& flight) {
    return flight.second.batch.tries > 1 || flight.second.started <= hanging;
  });
}

void EndpointFunction::OnPressure(TaskContext&) {
  endpoints_.ForEach([this](absl::string_view, EndpointState& state) {
    const size_t share =
        std::max(program_.options().endpoint_share_bytes, static_cast<size_t>(state.bytes_max));
    if (state.bytes > share && HasFailedOrHanging(state)) GiveUpOldest(state, share);
  });
}

// Gives up batches that are not in flight, the oldest first, until the endpoint holds no more than
// `share` bytes. Those that wait for a retry are older than the rest.
void EndpointFunction::GiveUpOldest(EndpointState& state, size_t share) {
  using Waiting = decltype(state.waiting)::iterator;
  std::vector<std::pair<int64_t, Waiting>> retries;
  retries.reserve(state.waiting.size());
  for (auto it = state.waiting.begin(); it != state.waiting.end(); ++it) {
    retries.emplace_back(it->second.messages.front()->offset, it);
  }
  std::sort(retries.begin(), retries.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [offset, place] : retries) {
    if (state.bytes <= share) return;
    Batch batch = std::move(place->second);
    state.waiting.erase(place);
    GiveUpBatch(state, std::move(batch), dlq::DeadReason::kHeldFull);
  }
  while (state.bytes > share && (!state.ready.empty() || !state.open.messages.empty())) {
    if (state.ready.empty()) CloseOpen(state);
    Batch batch = std::move(state.ready.front());
    state.ready.pop_front();
    GiveUpBatch(state, std::move(batch), dlq::DeadReason::kHeldFull);
  }
}

void EndpointFunction::OnDrain(TaskContext&, Drain kind) {
  if (kind != Drain::kShutdown) return;
  flushing_ = true;
  endpoints_.ForEach([this](absl::string_view, EndpointState& state) {
    if (!state.open.messages.empty()) state.open_due = true;
    Schedule(state);
  });
}

size_t EndpointFunction::in_flight() const {
  // What can be sent at once is sent before the process stops; all of that stands in line.
  return flushing_ ? flights_ + in_line_ : flights_;
}

void EndpointFunction::Close(TaskContext&, CloseReason) {
  self_.reset();
  program_.Forget(this);
  endpoints_.ForEach([this](absl::string_view, EndpointState& state) {
    for (const auto& [id, flight] : state.flights) {
      program_.sink().Abort(flight.request);
      program_.metrics().requests_in_flight.Add(-1);
    }
    if (state.awaits_snapshot) program_.metrics().waiting_for_snapshot.Add(-1);
    state.flights.clear();
  });
  flights_ = 0;
  in_line_ = 0;
  ctx_ = nullptr;
}

}  // namespace postrider::delivery
