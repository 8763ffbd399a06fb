#pragma once

#include <cstdint>

namespace postrider::delivery {

// A bound of files, said in bytes of what they hold. Files shrink some time after their contents
// were removed, when they are compacted: so what may be held is cut once by as much as the files
// are too large, and again only by as much as they have grown since. A compaction is worth its
// while when a part of the files has gone out of use: so contents are held by that part below what
// files may take, or those would stay beyond their bound for good.
//
// Threads: one.
class FilesBound {
 public:
  // What contents may be of files that may not grow; the rest is for what was removed.
  static constexpr double kContents = 0.85;

  // `used` is what the files take, `allowed` what they may, `held` their contents. Returns what may
  // be held, never less than `held_least`; UINT64_MAX: there is room. Nothing is cut at the first
  // look that finds none: what is held may have been told before the files were looked at. Nor for
  // files that are about to shrink, as long as they take at most `shrinking_max` (0: they are not).
  uint64_t Look(uint64_t used, uint64_t allowed, uint64_t held, uint64_t held_least = 0,
                uint64_t shrinking_max = 0);

 private:
  bool beyond_ = false;
  uint64_t held_max_ = UINT64_MAX;
  double cut_at_ = 1;  // how much of what is allowed was used then
};

}  // namespace postrider::delivery
