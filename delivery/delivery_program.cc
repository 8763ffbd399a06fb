#include "delivery/delivery_program.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/http/address_guard.h"
#include "delivery/endpoint_function.h"
#include "delivery/outcome.h"
#include "delivery/partial_ack.h"

namespace postrider::delivery {
namespace {

// What one turn of the loop may cost in sending (see FairQueue): some 20 ms.
constexpr uint64_t kTurnCostMax = 1 << 20;
constexpr std::chrono::milliseconds kEraseTurnEvery{20};

}  // namespace

DeliveryProgram::DeliveryProgram(const ShardEnvironment& environment,
                                 const DeliveryOptions& options, std::unique_ptr<HttpSink> sink,
                                 const KeyRing& keys, DeliveryMetrics& metrics, uint64_t seed,
                                 DeliveryCommon* common)
    : loop_(environment.loop),
      producer_(environment.producer),
      options_(options),
      backlog_room_(options.backlog_room_bytes),
      line_(options.requests_max),
      unreached_hosts_(options_.health.breaker),
      own_common_(common == nullptr ? std::make_unique<DeliveryCommon>(options_) : nullptr),
      common_(common == nullptr ? own_common_.get() : common),
      sink_(std::move(sink)),
      keys_(keys),
      metrics_(metrics),
      random_(seed),
      tokens_(loop_.clock(), *sink_, TokenCacheOptions(), metrics.token_fetches,
              metrics.token_failures,
              [this](const std::string& source) { token_lines_.ReleaseAll(source, line_); }),
      operations_(environment.results) {
  if (options_.reports) {
    reporting_ = std::make_unique<EndpointReporting>(*options_.reports, options_.topic_prefix,
                                                     metrics_.reports, random_);
  }
}

// Outside of a turn of the loop: what is still in flight (a stop that waited no longer) ends here,
// and its functions are gone.
DeliveryProgram::~DeliveryProgram() {
  POSTRIDER_CHECK(functions_.empty());
  LookAtMemory();
  // Nobody may be told any more.
  metrics_.requests_in_flight.Add(-static_cast<double>(operations_.moved()));
  operations_.AbortMoved();
  sink_->AbortAll();
  while (sink_->in_flight() > 0) loop_.RunOnce(Duration::zero());
}

void DeliveryProgram::LookAtMemory() {
  uint64_t bytes = 0;
  for (const EndpointFunction* function : functions_) bytes += function->identity_bytes();
  common_->identity_bytes += bytes - std::exchange(identity_bytes_, bytes);
}

std::unique_ptr<KeyedProcessFunction> DeliveryProgram::CreateFunction(const TopicPartition&) {
  auto function = std::make_unique<EndpointFunction>(*this);
  functions_.insert(function.get());
  return function;
}

void DeliveryProgram::AwaitRoom(EndpointFunction* function, std::string key,
                                BacklogRoom::Owner* owner, size_t bytes) {
  room_lines_[owner->failing ? 1 : 0].push_back({function, std::move(key), owner, bytes});
  // Those before it may all have their share.
  room_given_ = backlog_room_.given() - 1;
}

MonotonicTime DeliveryProgram::NextEraseTurn(MonotonicTime now) {
  next_erase_turn_ = std::max(next_erase_turn_ + kEraseTurnEvery, now);
  return next_erase_turn_;
}

// In the order of the lines: the first one that finds no room keeps what becomes free for itself,
// but who has its share already keeps nobody waiting.
void DeliveryProgram::GiveRoom() {
  if (!RoomChanged()) return;
  room_given_ = backlog_room_.given();
  for (std::deque<AwaitsRoom>& line : room_lines_) {
    size_t round = line.size();
    while (round-- > 0) {
      AwaitsRoom first = std::move(line.front());
      if (!backlog_room_.InShare(*first.owner, first.bytes)) {
        line.pop_front();
        line.push_back(std::move(first));
        continue;
      }
      if (!backlog_room_.HasRoom(*first.owner, first.bytes)) {
        line.front() = std::move(first);
        break;
      }
      line.pop_front();
      first.function->OnBacklogRoom(first.key, backlog_room_.TakeAnyway(*first.owner, first.bytes));
    }
  }
}

void DeliveryProgram::OnTurnEnd() {
  GiveRoom();
  host_lines_.Release([this](const std::string& host) { return sink_->RoomFor(host); }, line_);
  uint64_t cost = 0;
  while (cost < kTurnCostMax && !line_.empty() && MayServe()) {
    cost += line_.Serve(
        [](EndpointFunction* function, const std::string& key) { return function->SendNext(key); });
  }
  const bool room = RoomChanged() && !(room_lines_[0].empty() && room_lines_[1].empty());
  // What is left over for lack of time, not of room, goes on in the next turn at once.
  if (room || (!line_.empty() && MayServe())) {
    EventLoop::Callback again = [] {};
    static_cast<void>(loop_.Post(std::move(again)));
  }
}

void DeliveryProgram::SetSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot) {
  snapshot_ = std::move(snapshot);
  for (EndpointFunction* function : functions_) function->OnSnapshot();
}

void DeliveryProgram::SetDraining(bool draining) {
  if (std::exchange(draining_, draining) == draining) return;
  for (EndpointFunction* function : functions_) function->OnDraining();
}

void DeliveryProgram::SetAddressRules(std::shared_ptr<const AddressRules> rules) {
  sink_->SetAddressRules(std::move(rules));
}

bool DeliveryProgram::SnapshotUsable() const {
  return snapshot_ != nullptr &&
         loop_.clock().Wall() - snapshot_->confirmed_at() <= options_.snapshot_age_max;
}

void DeliveryProgram::Enqueue(EndpointFunction* function, const EndpointState& state) {
  line_.Enqueue(state.customer, function, state.key);
}

void DeliveryProgram::EnqueueForHost(const std::string& authority, EndpointFunction* function,
                                     const EndpointState& state) {
  host_lines_.Add(authority, {state.customer, function, state.key});
}

void DeliveryProgram::EnqueueForToken(const std::string& source, EndpointFunction* function,
                                      const EndpointState& state) {
  token_lines_.Add(source, {state.customer, function, state.key});
}

void DeliveryProgram::Forget(EndpointFunction* function) {
  functions_.erase(function);
  token_lines_.Forget(function);
  common_->backlog_levels.Forget(function);
  line_.Forget(function);
  host_lines_.Forget(function);
  unreached_hosts_.Forget(function);
  for (std::deque<AwaitsRoom>& line : room_lines_) {
    line.erase(
        std::remove_if(line.begin(), line.end(),
                       [function](const AwaitsRoom& one) { return one.function == function; }),
        line.end());
  }
}

void DeliveryProgram::Wake(const UnreachedHosts::Woken& woken, Reached reached) {
  for (const auto& [function, key] : woken) {
    function->OnHostChanged(key, reached == Reached::kYes);
  }
}

OperationResult DeliveryProgram::Tell(MovedFlight moved, const HttpResult& result) {
  OutcomeContext context;
  context.batch_size = moved.batch_size;
  context.now = loop_.clock().Wall();
  context.horizon = moved.horizon;
  FlightResult flight = moved.flight;
  const Answer answer = ReadAnswer(result, context, moved.message_ids);
  flight.outcome = answer.outcome;
  for (const size_t place : answer.failed) flight.failed.push_back(moved.digests[place]);
  if (answer.foreign > 0) metrics_.foreign_acks.Add(static_cast<double>(answer.foreign));
  flight.untried = result.failure == HttpFailure::kAborted && !result.request_sent;
  if (reporting_ != nullptr && !flight.untried && reporting_->WantsAttempt(flight.outcome)) {
    reporting_->TellAttempt(
        producer_,
        MakeAttemptReport(moved.endpoint, std::move(moved.facts), moved.batch_size,
                          static_cast<int>(flight.tries), result, flight.outcome, loop_.clock()));
  }
  OperationResult told = moved.result;
  told.outcome = EncodeFlightResult(flight);
  metrics_.requests_in_flight.Add(-1);
  metrics_.results_passed_on.Increment();
  return told;
}

}  // namespace postrider::delivery
