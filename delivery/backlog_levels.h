#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "delivery/size_counts.h"
#include "subscriptions/registry/ids.h"

namespace postrider::delivery {

// The level at which all that stands above it is cut so that `sizes` make at most `bytes_max`
// together; UINT64_MAX: they do.
uint64_t LevelOf(std::vector<uint64_t> sizes, uint64_t bytes_max);

// What the backlogs of this process hold, endpoint by endpoint, as its functions have told last;
// and how large an endpoint's may be where several have a bound together, a customer's or all of
// them: then the largest make room first, each down to the same level. What is told is some seconds
// old, so that a bound may be passed by what comes in meanwhile.
//
// Threads: any. A lock is held for each function's endpoints once a second, and not by records; a
// level costs no look at the endpoints of others (SizeCounts).
// Bounds:  8 bytes for each endpoint with a backlog, and some 60 for each customer and size.
class BacklogLevels {
 public:
  using Sizes = absl::flat_hash_map<subscriptions::CustomerId, std::vector<uint64_t>>;
  struct Levels {
    uint64_t of_all = UINT64_MAX;
    absl::flat_hash_map<subscriptions::CustomerId, uint64_t> of_customers;  // beyond their bound

    // UINT64_MAX: there is room.
    uint64_t Of(subscriptions::CustomerId customer) const;
  };

  explicit BacklogLevels(uint64_t customer_bytes_max);

  // All that `function` holds; it takes the place of what it told before.
  void Tell(const void* function, Sizes sizes);
  void Forget(const void* function) { Tell(function, {}); }
  // What all may hold together from now on; at first there is no bound.
  void SetBytesMax(uint64_t bytes_max);
  uint64_t held() const;
  std::shared_ptr<const Levels> levels() const;

 private:
  enum class Change : uint8_t { kAdd, kRemove };
  void Count(const Sizes& sizes, Change change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Set(Levels next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t customer_bytes_max_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<const void*, Sizes> told_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<subscriptions::CustomerId, SizeCounts> of_customers_ ABSL_GUARDED_BY(mutex_);
  SizeCounts of_all_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_max_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
  std::shared_ptr<const Levels> levels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace postrider::delivery
