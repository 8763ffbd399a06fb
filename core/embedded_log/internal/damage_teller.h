#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/embedded_log/internal/run_key.h"

namespace postrider::embedded_log_internal {

// Tells of each place that is damaged once, whoever meets it how often: readers come to it from
// where they are, retention and times are looked up by halving.
//
// Threads: any.
// Bounds:  kPlacesMax are remembered; what is found after them is not told of.
class DamageTeller {
 public:
  static constexpr size_t kPlacesMax = 10'000;

  enum class Mode {
    kOnce,
    kEachTime,          // for who verifies
    kEachTimeUnlogged,  // for whom it may be no damage
  };
  // `told` may be empty; called with no lock held.
  DamageTeller(Mode mode, std::function<void(absl::string_view what)> told)
      : mode_(mode), told_to_(std::move(told)) {}

  void Tell(const std::string& what);
  // Records in [from, to), to > from, cannot be read. One that goes on with what was told already
  // is the same place.
  void TellLost(PartitionId id, int64_t from, int64_t to);

 private:
  using Ranges = std::map<int64_t, int64_t>;  // from -> to, apart from each other

  void TellOf(const std::string& what) const;

  const Mode mode_;
  const std::function<void(absl::string_view what)> told_to_;
  absl::Mutex mutex_;
  std::set<std::string> told_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<uint32_t, uint32_t>, Ranges> lost_ ABSL_GUARDED_BY(mutex_);
  size_t places_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace postrider::embedded_log_internal
