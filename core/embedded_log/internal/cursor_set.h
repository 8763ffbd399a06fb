#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "core/base/wake_fd.h"
#include "core/embedded_log/internal/core.h"
#include "core/embedded_log/internal/fetcher.h"
#include "core/embedded_log/internal/partition.h"
#include "core/embedded_log/internal/run.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::embedded_log_internal {

class CursorSet;

// How far one reader is in one partition. Of the core's mutex, but for `position`, `run` and
// `reader`, which only the owner's thread touches.
struct Cursor {
  CursorSet* set = nullptr;
  StartPosition start;
  PartitionPtr partition;  // null: there is none yet
  int64_t position = -1;   // not known before the partition exists
  int64_t end_told = -1;
  bool out_of_range = false;
  bool ready = false;     // stands in the set's line
  bool fetching = false;  // the fetcher is at it
  bool dead = false;      // taken out of its set
  bool hungry = false;    // waits for room to fetch into
  bool fed = false;       // there is room for it, which it has not taken yet
  // Of the set's room: what is asked for, fetched and being read.
  int64_t held_bytes = 0;
  int64_t run_bytes = 0;  // of it, for `run`
  std::deque<RunPtr> fetched;
  RunPtr run;
  RunReader reader;
};

// The partitions that a member or a reader reads, and which of them have something for it: those
// alone are looked at in a Poll(). The latest records come from memory, older ones through the
// fetcher.
//
// Threads: its owner's, but for what says that it needs the core's mutex only.
// Bounds:  what is asked of the fetcher, fetched and being read of it has at most `prefetch_bytes`
// together, or one cursor's fetch if that is more; a run of a record larger than kFetchRunBytes
// comes on top. Cursors wait for room in a line.
class CursorSet {
 public:
  // A fetch may bring a run more than it asks for.
  static constexpr int64_t kFetchRunBytes = 128 << 10;

  enum class Outside {
    kTold,     // a position outside of the log is told, and not read from
    kClamped,  // it goes on from the log's start or its end
  };
  CursorSet(Core& core, Fetcher& fetcher, WakeFd wake, Outside outside, int64_t prefetch_bytes);
  ~CursorSet();
  CursorSet(const CursorSet&) = delete;
  CursorSet& operator=(const CursorSet&) = delete;

  int wake_fd() const { return wake_.get(); }
  // Takes the wake-up back, at the beginning of a poll.
  void BeginPoll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex) {
    woken_ = false;
    wake_.Clear();
  }
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex) {
    if (woken_) return;
    woken_ = true;
    wake_.Wake();
  }

  void Add(const StartPosition& position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void Remove(const TopicPartition& tp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);

  // What there is to tell next.
  struct News {
    enum class Kind { kNone, kRecords, kPartitionEnd, kOutOfRange };
    Kind kind = Kind::kNone;
    std::shared_ptr<Cursor> cursor;
    int64_t offset = 0;
  };
  News Next(bool records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  // Passes records of News::kRecords, at most `records_max` and so many as come in a row; stops
  // when the cursor is taken out meanwhile. Without the mutex. Returns how many.
  size_t Pass(const std::shared_ptr<Cursor>& cursor, size_t records_max,
              absl::FunctionRef<void(const LogRecord&)> to);

  // For whoever changes what there is to read.
  void MakeReady(Cursor& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void LookForPartitions(const std::string& topic) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void Lose(Cursor& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  // For the fetcher: what it has found, which may be nothing that is of use any more.
  void TakeFetched(Cursor& cursor, const PartitionPtr& partition, int64_t asked_bytes,
                   std::vector<RunPtr> runs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);

 private:
  enum class Step { kAgain, kTell, kNothing };
  Step Look(const std::shared_ptr<Cursor>& cursor, bool records, News* news)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  Step TakeRun(const std::shared_ptr<Cursor>& cursor, News* news)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  bool Resolve(Cursor& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void Ask(const std::shared_ptr<Cursor>& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void Hold(Cursor& cursor, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void DropFetched(Cursor& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  int64_t FetchBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  // Those that wait for room, in their order, as far as there is some.
  void FeedHungry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void Unfeed(Cursor& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void Kill(Cursor& cursor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);

  Core& core_;
  Fetcher& fetcher_;
  const Outside outside_;
  const int64_t prefetch_bytes_;
  WakeFd wake_;
  bool woken_ ABSL_GUARDED_BY(core_.mutex) = false;
  std::map<TopicPartition, std::shared_ptr<Cursor>> cursors_ ABSL_GUARDED_BY(core_.mutex);
  std::deque<std::shared_ptr<Cursor>> line_ ABSL_GUARDED_BY(core_.mutex);
  std::deque<std::shared_ptr<Cursor>> hungry_ ABSL_GUARDED_BY(core_.mutex);
  int64_t held_bytes_ ABSL_GUARDED_BY(core_.mutex) = 0;
  int64_t fed_ ABSL_GUARDED_BY(core_.mutex) = 0;  // cursors
};

}  // namespace postrider::embedded_log_internal
