#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace postrider::delivery {

// The backlogs of a key group that are to be looked through, one after the other, and of each what
// is left to be looked at. One that is wished for anew while it is under way goes on from where it
// is: what was looked at before the wish comes once more, after all others that wait. So each wish
// costs one round, and a stream of them keeps none from its end.
//
// Threads: one. Bounds: each backlog once.
class EraseLine {
 public:
  // All entries at `from` and behind it are to be looked at from now on.
  void Join(const std::string& key, uint64_t from = 0);

  bool empty() const { return line_.empty(); }
  // Of the first one, which is there: its entries at from() to before until() are next.
  const std::string& key() const { return line_.front(); }
  uint64_t from() const { return ranges_.at(line_.front()).from; }
  uint64_t until() const { return ranges_.at(line_.front()).until; }
  // Those before `next` have been looked at.
  void Advance(uint64_t next) { ranges_.at(line_.front()).from = next; }
  // All of them have been: it leaves the line, or goes behind the others.
  void End();

 private:
  struct Range {
    uint64_t from = 0;
    uint64_t until = UINT64_MAX;
    // Then once more from `again_from` to before this; not before it: nothing.
    uint64_t again_from = 0;
    uint64_t again_until = 0;
  };

  std::deque<std::string> line_;
  absl::flat_hash_map<std::string, Range> ranges_;  // of those in line
};

}  // namespace postrider::delivery
