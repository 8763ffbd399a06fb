#include "delivery/key_group_members.h"

#include <cstddef>
#include <numeric>

#include "core/stream/key_groups.h"

namespace postrider::delivery {

absl::Span<const uint32_t> KeyGroupMembers::Of(const subscriptions::Snapshot& snapshot,
                                               int32_t key_group, int32_t key_groups) {
  if (key_group < 0 || key_group >= key_groups) return {};
  if (contents_ != snapshot.contents_version() ||
      begins_.size() != static_cast<size_t>(key_groups) + 1) {
    Sort(snapshot, key_groups);
  }
  const auto place = static_cast<size_t>(key_group);
  return absl::MakeConstSpan(members_).subspan(begins_[place], begins_[place + 1] - begins_[place]);
}

void KeyGroupMembers::Sort(const subscriptions::Snapshot& snapshot, int32_t key_groups) {
  const auto endpoints = snapshot.endpoints();
  std::vector<int32_t> key_group_of;
  key_group_of.reserve(endpoints.size());
  begins_.assign(static_cast<size_t>(key_groups) + 1, 0);
  for (const auto& endpoint : endpoints) {
    key_group_of.push_back(KeyGroupOf(endpoint->id.view(), 0, key_groups));
    ++begins_[static_cast<size_t>(key_group_of.back()) + 1];
  }
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  std::vector<uint32_t> next(begins_.begin(), begins_.end() - 1);
  members_.resize(endpoints.size());
  for (size_t i = 0; i < endpoints.size(); ++i) {
    members_[next[static_cast<size_t>(key_group_of[i])]++] = static_cast<uint32_t>(i);
  }
  contents_ = snapshot.contents_version();
}

}  // namespace postrider::delivery
