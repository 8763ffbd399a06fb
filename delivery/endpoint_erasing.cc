// What waits and is to be forgotten: each backlog is looked through once per change of the wishes,
// in turns. What was tried, or is in memory to be sent, meets Admit() at its turn.

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"

namespace postrider::delivery {
namespace {

// What one turn looks at and gives up, so that others have theirs.
constexpr size_t kLookedAtMax = 2'000;
constexpr size_t kErasedMax = 500;
constexpr std::chrono::milliseconds kTurnEvery{20};

}  // namespace

// With a new snapshot, and when all that predecessors had parked is known.
void EndpointFunction::LookAtErasures() {
  if (backlog_ == nullptr || !backlog_->restored() || program_.snapshot() == nullptr) return;
  const std::shared_ptr<const subscriptions::Erasures>& wishes = program_.snapshot()->erasures();
  if (std::exchange(erasures_, wishes) == wishes || wishes->empty()) return;
  if (erase_line_.empty()) ctx_->SetTimer(kFunctionKey, kEraseTimer, ctx_->clock().Now());
  // One that is under way begins anew.
  erase_line_.clear();
  for (std::string& key : backlog_->Keys()) erase_line_.push_back(std::move(key));
  erase_from_ = 0;
}

bool EndpointFunction::IsToBeForgotten(const subscriptions::DispatchRecordView& record) const {
  return program_.snapshot() != nullptr &&
         program_.snapshot()->erasures()->Cover(record.customer, record.tenant, record.event_id,
                                                record.dispatch_time);
}

void EndpointFunction::EraseSome() {
  if (erase_line_.empty()) return;
  // While their reports find no room there is none for more.
  if (outputs_.empty()) {
    EndpointState& state = StateOf(erase_line_.front());
    if (IsRestored(state) && EraseFrom(state)) {
      erase_line_.pop_front();
      erase_from_ = 0;
    }
  }
  if (!erase_line_.empty()) {
    ctx_->SetTimer(kFunctionKey, kEraseTimer, ctx_->clock().Now() + kTurnEvery);
  }
}

// One step; whether the end was reached.
bool EndpointFunction::EraseFrom(EndpointState& state) {
  const absl::optional<absl::flat_hash_set<IdBytes>> left_out = LeftOut(state);
  if (!left_out) return true;
  size_t looked_at = 0;
  std::vector<Message> found;
  const bool at_end = backlog_->Scan(
      state.key, erase_from_,
      [&](uint64_t order, const IdBytes& digest, absl::string_view encoded) {
        erase_from_ = order;
        if (++looked_at > kLookedAtMax || found.size() >= kErasedMax) return false;
        if (state.claimed.contains(digest) || left_out->contains(digest)) return true;
        absl::StatusOr<std::unique_ptr<MessageContent>> content = MakeMessageContent(encoded);
        // One that cannot be read is met where it is drained.
        if (!content.ok()) return true;
        const subscriptions::DispatchRecordView& record = (*content)->record;
        if (!erasures_->Cover(record.customer, record.tenant, record.event_id,
                              record.dispatch_time)) {
          return true;
        }
        found.push_back(MakeMessage(*std::move(content), order, digest, state.format));
        found.back().listed = true;
        return true;
      });
  for (const Message& message : found) state.claimed.insert(message.digest);
  for (const Message& message : found) {
    Refuse(state, message, dlq::RefusalReason::kErased, nullptr);
  }
  return at_end;
}

}  // namespace postrider::delivery
