#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "subscriptions/registry/ids.h"

namespace postrider::subscriptions {

// How far the rows of the database are; workers do not look at it.
struct ErasureProgress {
  bool erased = false;
  int64_t letters = 0;  // deleted so far
  int64_t attempts = 0;
  absl::optional<WallTime> erased_at;
};

// A wish that all messages be forgotten that are of this customer, tenant and event (of those that
// are given, one at least) and were dispatched until `requested_at`.
struct Erasure {
  ErasureId id;
  absl::optional<CustomerId> customer;
  absl::optional<std::string> tenant;
  absl::optional<std::string> event_id;
  WallTime requested_at;
  ErasureProgress progress;

  // What it wishes.
  friend bool operator==(const Erasure& a, const Erasure& b) {
    return a.id == b.id && a.customer == b.customer && a.tenant == b.tenant &&
           a.event_id == b.event_id && a.requested_at == b.requested_at;
  }
};

// All that a worker has to keep to; immutable. The cost of a question does not grow with their
// number, but with that of wishes about the same event, tenant or customer.
class Erasures {
 public:
  Erasures() = default;
  explicit Erasures(std::vector<Erasure> all);

  bool empty() const { return all_.empty(); }
  absl::Span<const Erasure> all() const { return all_; }  // sorted by id
  // Whether a message is to be forgotten.
  bool Cover(CustomerId customer, absl::string_view tenant, absl::string_view event_id,
             WallTime dispatched_at) const;

 private:
  std::vector<Erasure> all_;
  // By the narrowest of what is given; into all_.
  absl::flat_hash_map<std::string, std::vector<uint32_t>> by_event_;
  absl::flat_hash_map<std::string, std::vector<uint32_t>> by_tenant_;
  absl::flat_hash_map<CustomerId, std::vector<uint32_t>> by_customer_;
};

// Whether `now` has a wish that `before` (null: nobody's) has not.
bool AnyWishIsNew(const Erasures* before, const Erasures& now);

}  // namespace postrider::subscriptions
