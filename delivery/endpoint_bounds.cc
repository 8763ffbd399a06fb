// The bounds of an endpoint's backlog, and what becomes of its oldest messages there.

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"

namespace postrider::delivery {
namespace {

// What one turn gives up or looks at, so that others have theirs.
constexpr size_t kGivenUpMax = 500;
constexpr size_t kLookedAtMax = 2'000;
constexpr uint64_t kReadMax = 1 << 20;
constexpr std::chrono::milliseconds kTurnEvery{20};
// After a collapse there is room for a while, or the oldest ones make it.
constexpr double kShareAfterCollapse = 0.9;
// How often the age of what waits is looked at.
constexpr std::chrono::seconds kLookAtAgeEvery{10};
// How much of its bound a key group's store holds before the largest backlogs make room: at the
// bound nothing could be parked any more, of nobody.
constexpr double kStoreShare = 0.9;
// And while it is about to shrink, for what was removed or will be: what lives is not given up for
// what does not, as long as there is time.
constexpr double kShrinkingStoreShare = 0.97;
constexpr double kStoreUnits = 1e6;
// A bound together with others comes and goes as room is made and taken; its customer is not told
// each time.
constexpr std::chrono::minutes kLevelTold{10};

}  // namespace

const subscriptions::BacklogSettings* EndpointFunction::BoundsOf(const EndpointState& state) const {
  if (backlog_ == nullptr || state.absent || state.desired == nullptr || !IsRestored(state) ||
      backlog_->size(state.key) == 0) {
    return nullptr;
  }
  return &state.desired->settings.backlog;
}

// Looks for endpoints beyond their bounds; what is to be done is done in turns.
void EndpointFunction::LookAtBounds(EndpointState& state) {
  const subscriptions::BacklogSettings* bounds = BoundsOf(state);
  if (bounds == nullptr) state.backlog_oldest.reset();
  if (bounds == nullptr || beyond_.contains(state.key)) return;
  const MonotonicTime now = ctx_->clock().Now();
  const uint64_t bytes = backlog_->bytes(state.key);
  state.level = std::min(levels_->Of(state.customer), store_level_);
  if (state.level != UINT64_MAX) {
    state.told_level = state.level;
    state.told_level_until = now + kLevelTold;
  } else if (now >= state.told_level_until) {
    state.told_level = UINT64_MAX;
  }
  bool beyond =
      bytes > std::min(static_cast<uint64_t>(state.share.Of(bounds->bytes_max)), state.level);
  if (!beyond && now >= state.look_at_age) {
    state.look_at_age = now + kLookAtAgeEvery;
    const absl::optional<Oldest> oldest = FindOldest(state);
    beyond = oldest && Age(ctx_->clock().Wall(), oldest->dispatch_time) > bounds->age_max;
    state.backlog_oldest.reset();
    if (oldest) state.backlog_oldest = oldest->dispatch_time;
  }
  if (!beyond) return;
  if (beyond_.empty()) ctx_->SetTimer(kFunctionKey, kBoundsTimer, now);
  beyond_.insert(state.key);
  beyond_line_.push_back(state.key);
}

// What endpoints hold here, for the bounds that they have together; and what deleted ones hold.
void EndpointFunction::TellSizes(BacklogLevels::Sizes sizes, uint64_t bytes_to_go) {
  DeliveryCommon& common = program_.common();
  if (common.backlog_fullness != nullptr && backlog_known_) {
    std::vector<uint64_t> all;
    for (const auto& [customer, of_endpoints] : sizes) {
      all.insert(all.end(), of_endpoints.begin(), of_endpoints.end());
    }
    const StoreFullness store = common.backlog_fullness(ctx_->partition().partition);
    const auto units = [](double ratio) { return static_cast<uint64_t>(ratio * kStoreUnits); };
    const bool shrinks = store.may_shrink || bytes_to_go > 0;
    const uint64_t bytes_max =
        store_bound_.Look(units(store.ratio), units(kStoreShare),
                          std::accumulate(all.begin(), all.end(), uint64_t{0}), 0,
                          shrinks ? units(kShrinkingStoreShare) : 0);
    store_level_ = bytes_max == UINT64_MAX ? UINT64_MAX : LevelOf(std::move(all), bytes_max);
  }
  common.backlog_levels.Tell(this, std::move(sizes));
}

// One turn for the endpoint that has waited longest for one.
void EndpointFunction::KeepBounds() {
  if (beyond_line_.empty()) return;
  std::string key = std::move(beyond_line_.front());
  beyond_line_.pop_front();
  EndpointState* state = endpoints_.Get(key);
  // While letters find no room there is none for more.
  if (state != nullptr && (!outputs_.empty() || state->bound_endings > 0 || KeepBounds(*state))) {
    beyond_line_.push_back(std::move(key));
  } else {
    beyond_.erase(key);
  }
  if (!beyond_line_.empty()) {
    ctx_->SetTimer(kFunctionKey, kBoundsTimer, ctx_->clock().Now() + kTurnEvery);
  }
}

// Whether there is more to be done.
bool EndpointFunction::KeepBounds(EndpointState& state) {
  const subscriptions::BacklogSettings* bounds = BoundsOf(state);
  if (bounds == nullptr) return false;
  // There may be room by now.
  state.level = std::min(levels_->Of(state.customer), store_level_);
  const uint64_t bytes_max =
      std::min(static_cast<uint64_t>(state.share.Of(bounds->bytes_max)), state.level);
  if (backlog_->bytes(state.key) > bytes_max && state.collapse == nullptr &&
      bounds->policy == subscriptions::BacklogPolicy::kCollapseByKey && !state.collapsed) {
    state.collapse = std::make_unique<BacklogCollapse>(*bounds);
  }
  if (state.collapse != nullptr) {
    if (!Collapse(state)) return true;
    state.collapse.reset();
    state.collapsed = true;
    return true;
  }
  const uint64_t bytes = backlog_->bytes(state.key);
  const uint64_t goal =
      state.collapsed ? static_cast<uint64_t>(static_cast<double>(bytes_max) * kShareAfterCollapse)
                      : bytes_max;
  const WallTime wall = ctx_->clock().Wall();
  uint64_t freed = 0;
  for (size_t left = kGivenUpMax; left > 0;) {
    const absl::optional<Oldest> oldest = FindOldest(state);
    if (!oldest) break;
    dlq::DeadReason reason = dlq::DeadReason::kBacklogFull;
    if (bytes <= goal + freed) {
      if (Age(wall, oldest->dispatch_time) <= bounds->age_max) break;
      reason = dlq::DeadReason::kBacklogAge;
    }
    const size_t count = GiveUpOldest(state, *oldest, reason, std::min(left, kGivenUpMax),
                                      bytes > goal + freed ? bytes - goal - freed : 0, &freed);
    if (count == 0) break;
    left -= std::min(left, count);
    if (left == 0 || freed >= kReadMax) return true;
  }
  state.collapsed = false;
  state.level = UINT64_MAX;
  return false;
}

// The oldest batch that waits, or the first entry that nobody has read. Batches whose members were
// left out come first, what may be in flight is left alone.
absl::optional<EndpointFunction::Oldest> EndpointFunction::FindOldest(EndpointState& state) {
  absl::optional<Oldest> oldest;
  auto first = state.waiting.end();
  for (auto it = state.waiting.begin(); it != state.waiting.end(); ++it) {
    const Batch& batch = it->second;
    if (batch.bisection != nullptr || inherited_.Find(*batch.key) != nullptr) continue;
    const uint64_t order = batch.messages.empty() ? 0 : batch.messages.front().order;
    if (oldest && order >= oldest->order) continue;
    oldest = Oldest{order, WallTime(), it};
    first = it;
  }
  if (oldest) oldest->dispatch_time = DispatchTimeOf(state, first->second);
  if (state.members_left_out > 0) return oldest;
  // What is claimed is stepped over; with much of it the search begins where reading does.
  constexpr size_t kClaimedMax = 5'000;
  const uint64_t from = state.claimed.size() > kClaimedMax ? state.drain_from : 0;
  backlog_->Scan(state.key, from,
                 [&](uint64_t order, const IdBytes& digest, absl::string_view encoded) {
                   if (oldest && order >= oldest->order) return false;
                   if (state.claimed.contains(digest)) return true;
                   const auto record = subscriptions::DecodeDispatchRecord(encoded);
                   // One that cannot be read is met where it is drained.
                   if (!record.ok()) return true;
                   oldest = Oldest{order, record->dispatch_time, state.waiting.end()};
                   return false;
                 });
  return oldest;
}

// When the youngest message of a batch was dispatched: none is given up for age before its time.
WallTime EndpointFunction::DispatchTimeOf(EndpointState& state, const Batch& batch) {
  const WallTime first_try =
      ctx_->clock().Wall() -
      std::chrono::duration_cast<std::chrono::milliseconds>(ctx_->clock().Now() - batch.first_try);
  if (batch.messages.empty()) return first_try;
  const Message& last = batch.messages.back();
  if (last.dispatch_time != WallTime()) return last.dispatch_time;
  WallTime found = first_try;
  backlog_->Scan(state.key, last.order,
                 [&](uint64_t order, const IdBytes& digest, absl::string_view encoded) {
                   if (order != last.order) return false;
                   if (digest != last.digest) return true;
                   const auto record = subscriptions::DecodeDispatchRecord(encoded);
                   if (record.ok()) found = record->dispatch_time;
                   return false;
                 });
  return found;
}

// Gives up the oldest batch, or entries from the oldest on: at most `count_max`, and for want of
// room no more than frees `bytes`; for age as long as they are too old. Returns how many.
size_t EndpointFunction::GiveUpOldest(EndpointState& state, const Oldest& oldest,
                                      dlq::DeadReason reason, size_t count_max, uint64_t bytes,
                                      uint64_t* freed) {
  if (oldest.batch != state.waiting.end()) {
    Batch batch = TakeWaiting(state, oldest.batch);
    if (!ReadMembers(state, batch)) return 1;
    for (const Message& message : batch.messages) *freed += message.bytes;
    const size_t count = batch.messages.size();
    GiveUpBatch(state, std::move(batch), reason);
    return std::max<size_t>(count, 1);
  }
  uint64_t before = UINT64_MAX;
  for (const auto& [due, batch] : state.waiting) {
    if (!batch.messages.empty()) before = std::min(before, batch.messages.front().order);
  }
  const Duration age_max = state.desired->settings.backlog.age_max;
  const WallTime wall = ctx_->clock().Wall();
  uint64_t gathered = 0;
  std::vector<Message> messages;
  backlog_->Scan(state.key, oldest.order,
                 [&](uint64_t order, const IdBytes& digest, absl::string_view encoded) {
                   if (order >= before || messages.size() >= count_max) return false;
                   if (state.claimed.contains(digest)) return true;
                   absl::StatusOr<std::unique_ptr<MessageContent>> content =
                       MakeMessageContent(encoded);
                   if (!content.ok()) return true;
                   Message message = MakeMessage(*std::move(content), order, digest, state.format);
                   const bool wanted = reason == dlq::DeadReason::kBacklogAge
                                           ? Age(wall, message.dispatch_time) > age_max
                                           : gathered < bytes;
                   if (!wanted || gathered >= kReadMax) return false;
                   gathered += message.bytes;
                   SetOrderKey(state, message);
                   message.listed = true;
                   messages.push_back(std::move(message));
                   return true;
                 });
  *freed += gathered;
  for (const Message& message : messages) state.claimed.insert(message.digest);
  const Batch untried;
  for (Message& message : messages) GiveUp(state, message, reason, untried, nullptr);
  return messages.size();
}

// One step of a run that keeps the newest message of each key. Returns whether it has ended.
bool EndpointFunction::Collapse(EndpointState& state) {
  BacklogCollapse& run = *state.collapse;
  const absl::optional<absl::flat_hash_set<IdBytes>> left_out = LeftOut(state);
  if (!left_out) return true;
  size_t looked_at = 0;
  uint64_t read = 0;
  std::vector<Message> overtaken;
  const bool at_end = backlog_->Scan(
      state.key, run.from(), [&](uint64_t order, const IdBytes& digest, absl::string_view encoded) {
        if (++looked_at > kLookedAtMax || read >= kReadMax || overtaken.size() >= kGivenUpMax) {
          return false;
        }
        read += encoded.size();
        absl::StatusOr<std::unique_ptr<MessageContent>> content = MakeMessageContent(encoded);
        if (!content.ok()) {
          run.Pass(order);
          return true;
        }
        // What was tried, or is to be sent now, is not taken out; but it may overtake.
        if (!run.Show(order, **content) || state.claimed.contains(digest) ||
            left_out->contains(digest)) {
          return true;
        }
        overtaken.push_back(MakeMessage(*std::move(content), order, digest, state.format));
        overtaken.back().listed = true;
        return true;
      });
  for (const Message& message : overtaken) state.claimed.insert(message.digest);
  for (const Message& message : overtaken) {
    Refuse(state, message, dlq::RefusalReason::kCollapsed, nullptr);
  }
  if (!at_end) return false;
  if (run.phase() == BacklogCollapse::Phase::kTaking) return true;
  run.BeginTaking();
  return false;
}

}  // namespace postrider::delivery
