#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider::subscriptions {

// Which transactions' writes a database snapshot shows: PostgreSQL's `pg_snapshot`
// ("xmin:xmax:xip,xip").
class PgSnapshot {
 public:
  // Sees nothing.
  PgSnapshot() = default;
  static absl::optional<PgSnapshot> Parse(absl::string_view text);
  std::string ToString() const;

  // The writes of transaction `xid` (a `xid8`) are in it. Right for transactions that committed.
  bool Sees(uint64_t xid) const;
  uint64_t xmin() const { return xmin_; }
  uint64_t xmax() const { return xmax_; }

 private:
  uint64_t xmin_ = 0;
  uint64_t xmax_ = 0;
  std::vector<uint64_t> running_;  // sorted
};

}  // namespace postrider::subscriptions
