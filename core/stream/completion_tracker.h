#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "core/stream/hole_map.h"

namespace postrider {

// Which records of one partition are complete, in whatever order they become so: the watermark
// (everything below it is complete) and the completed offsets above it. Offsets that never come
// (compaction, transaction markers) count as complete.
//
// Threads: owned by one shard.
// Bounds:  memory is 24 bytes per record read above the watermark (a stretch that a predecessor
//          completed counts once); its owner stops reading at its own limits (pending(),
//          pending_bytes(), tracked()).
class CompletionTracker {
 public:
  // Begins at `watermark` with what a predecessor had completed above it.
  CompletionTracker(int64_t watermark, const OffsetSet& completed_above);

  enum class Admission {
    kNew,        // it is pending now
    kCompleted,  // a predecessor finished it: skip it
    kStale,      // below what was read already: skip it (a re-read after a seek)
  };
  // The next record of the partition, of that many bytes. Offsets rise; what lies between the last
  // one and this one never comes.
  Admission Add(int64_t offset, size_t bytes);
  // Nothing below `offset` that was not read yet ever comes: it was trimmed away.
  void SkipTo(int64_t offset);
  // `offset` is complete. Exactly once for each offset that Add() called new: CHECKed.
  void Complete(int64_t offset);
  bool IsPending(int64_t offset) const;

  // All below are complete; the offset to commit.
  int64_t watermark() const { return base_; }
  // One past the highest offset read.
  int64_t next_offset() const { return next_; }
  size_t pending() const { return pending_; }
  size_t pending_bytes() const { return pending_bytes_; }
  // Stretches in memory: what it costs.
  size_t tracked() const { return slots_.size(); }
  // Completed offsets above the watermark, those known from a predecessor too.
  int64_t holes() const { return completed_in_slots_ + inherited_size_; }
  // Of the records among them that were read; of a stretch that a predecessor completed 4 GB at
  // most.
  size_t hole_bytes() const { return hole_bytes_; }
  // Below it lies at least half of the completed offsets above the watermark that were read: once
  // nothing pends below it, they are gone. The watermark when there are none. Linear in tracked().
  int64_t MiddleOfHoles() const;
  // The completed set above the watermark, as ranges.
  OffsetSet CompletedAbove() const;

  // Raised by each change of watermark or completed set.
  uint64_t version() const { return version_; }

 private:
  // A pending or completed record, or a completed stretch.
  struct Slot {
    int64_t begin;
    int64_t end;
    uint32_t bytes;
    bool complete;
  };
  void PushComplete(int64_t begin, int64_t end, size_t bytes);
  void DropInheritedBelow(int64_t offset);
  // The index of the slot that holds `offset`, which is in base_ .. next_-1.
  size_t Find(int64_t offset) const;

  int64_t base_;
  int64_t next_;
  std::deque<Slot> slots_;  // base_ .. next_-1 without a gap; the first one is pending
  OffsetSet inherited_;     // completed by a predecessor, at or above next_
  int64_t inherited_size_;
  size_t pending_ = 0;
  size_t pending_bytes_ = 0;
  size_t hole_bytes_ = 0;
  int64_t completed_in_slots_ = 0;
  uint64_t version_ = 0;
};

}  // namespace postrider
