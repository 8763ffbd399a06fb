// What a predecessor has left in the backlog that belongs to no entry.

#include <chrono>

#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"

namespace postrider::delivery {
namespace {

constexpr std::chrono::milliseconds kOrphanInterval{100};

}  // namespace

// Turn by turn, after all batches that are needed have been met. What belongs to an endpoint with
// work goes when that ends.
void EndpointFunction::RemoveOrphans() {
  const auto in_use = [this](absl::string_view key) {
    const EndpointState* const state = endpoints_.Get(key);
    return state != nullptr && !state->idle();
  };
  if (backlog_->RemoveOrphans(in_use, orphans_after_)) return;
  ctx_->SetTimer(kFunctionKey, kOrphanTimer, ctx_->clock().Now() + kOrphanInterval);
}

}  // namespace postrider::delivery
