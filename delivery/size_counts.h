#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace postrider::delivery {

// Sizes, counted by what they are about: each power of two in 32 parts. Finding a level costs a
// look at what was counted together, however many sizes there are.
//
// Bounds: 1,920 counts.
class SizeCounts {
 public:
  void Add(uint64_t size) { Change(size, 1); }
  void Remove(uint64_t size) { Change(size, -1); }
  uint64_t total() const { return total_; }
  bool empty() const { return counts_.empty(); }

  struct Level {
    // UINT64_MAX: all together are within the bound.
    uint64_t bytes = UINT64_MAX;
    size_t looked_at = 0;  // counts
  };
  // A level so that the sizes, cut down to it, make at most `bytes_max` together. It is lower than
  // it had to be by less than a 32nd, if at all, and not where all of one count are cut, or none.
  Level LevelWithin(uint64_t bytes_max) const;

 private:
  struct Count {
    uint64_t sizes = 0;
    uint64_t bytes = 0;
  };
  void Change(uint64_t size, int64_t by);

  std::map<uint64_t, Count> counts_;  // by the least size that is counted there
  uint64_t sizes_ = 0;
  uint64_t total_ = 0;
};

}  // namespace postrider::delivery
