#include "delivery/size_counts.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace postrider::delivery {
namespace {

constexpr int kBits = 5;  // of a size, behind its first one, that tell counts apart

uint64_t LeastOf(uint64_t size) {
  const int width = static_cast<int>(std::bit_width(size));
  const int left_out = std::max(width - 1 - kBits, 0);
  return size >> left_out << left_out;
}

}  // namespace

void SizeCounts::Change(uint64_t size, int64_t by) {
  const auto [place, added] = counts_.try_emplace(LeastOf(size));
  Count& count = place->second;
  // Unsigned: what is taken away was added before.
  count.sizes += static_cast<uint64_t>(by);
  count.bytes += static_cast<uint64_t>(by) * size;
  sizes_ += static_cast<uint64_t>(by);
  total_ += static_cast<uint64_t>(by) * size;
  if (count.sizes == 0) counts_.erase(place);
}

SizeCounts::Level SizeCounts::LevelWithin(uint64_t bytes_max) const {
  Level level;
  if (total_ <= bytes_max) return level;
  uint64_t left = bytes_max;
  uint64_t sizes = sizes_;
  // Those counted below the level stay as they are.
  for (auto place = counts_.begin(); place != counts_.end(); ++place) {
    ++level.looked_at;
    const Count& count = place->second;
    const uint64_t above = sizes - count.sizes;
    const auto next = std::next(place);
    const bool whole = count.bytes <= left;
    if (next != counts_.end() && whole && (left - count.bytes) / above >= next->first) {
      left -= count.bytes;
      sizes = above;
      continue;
    }
    // All from here on are cut, or those above these only: whatever leaves more.
    level.bytes = left / sizes;
    if (above > 0 && whole) level.bytes = std::max(level.bytes, (left - count.bytes) / above);
    break;
  }
  return level;
}

}  // namespace postrider::delivery
