#include "delivery/erase_line.h"

#include <algorithm>
#include <utility>

namespace postrider::delivery {

void EraseLine::Join(const std::string& key, uint64_t from) {
  const auto [found, joined] = ranges_.try_emplace(key);
  Range& range = found->second;
  if (joined) {
    range.from = from;
    line_.push_back(key);
    return;
  }
  range.until = UINT64_MAX;
  if (from >= range.from) return;
  // What lies between is looked at twice, if both parts of it are apart.
  const bool any = range.again_until > range.again_from;
  range.again_from = any ? std::min(range.again_from, from) : from;
  range.again_until = range.from;
}

void EraseLine::End() {
  std::string key = std::move(line_.front());
  line_.pop_front();
  const auto found = ranges_.find(key);
  Range& range = found->second;
  if (range.again_until <= range.again_from) {
    ranges_.erase(found);
    return;
  }
  range = Range{range.again_from, range.again_until, 0, 0};
  line_.push_back(std::move(key));
}

}  // namespace postrider::delivery
