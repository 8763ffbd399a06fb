#include "subscriptions/registry/pg_snapshot.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace postrider::subscriptions {

absl::optional<PgSnapshot> PgSnapshot::Parse(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  PgSnapshot snapshot;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &snapshot.xmin_) ||
      !absl::SimpleAtoi(parts[1], &snapshot.xmax_) || snapshot.xmin_ > snapshot.xmax_) {
    return absl::nullopt;
  }
  if (!parts[2].empty()) {
    for (const absl::string_view part : absl::StrSplit(parts[2], ',')) {
      uint64_t xid = 0;
      if (!absl::SimpleAtoi(part, &xid) || xid < snapshot.xmin_ || xid >= snapshot.xmax_) {
        return absl::nullopt;
      }
      snapshot.running_.push_back(xid);
    }
  }
  std::sort(snapshot.running_.begin(), snapshot.running_.end());
  return snapshot;
}

std::string PgSnapshot::ToString() const {
  return absl::StrCat(xmin_, ":", xmax_, ":", absl::StrJoin(running_, ","));
}

bool PgSnapshot::Sees(uint64_t xid) const {
  if (xid < xmin_) return true;
  if (xid >= xmax_) return false;
  return !std::binary_search(running_.begin(), running_.end(), xid);
}

}  // namespace postrider::subscriptions
