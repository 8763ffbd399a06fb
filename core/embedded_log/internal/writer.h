#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/steady_wait.h"
#include "core/base/wake_fd.h"
#include "core/embedded_log/internal/core.h"
#include "core/embedded_log/internal/database.h"
#include "core/embedded_log/internal/partition.h"
#include "core/stream/record.h"

namespace postrider::embedded_log_internal {

// Where the writer leaves the answers of one producer, in the order of its appends. It outlives
// the producer. Threads: any.
class AnswerBox {
 public:
  using Answers = std::vector<absl::StatusOr<int64_t>>;

  explicit AnswerBox(WakeFd wake) : wake_(std::move(wake)) {}

  int wake_fd() const { return wake_.get(); }
  void Leave(Answers answers);
  // What is there, and takes the wake-up back.
  Answers Take();

 private:
  WakeFd wake_;
  absl::Mutex mutex_;
  Answers answers_ ABSL_GUARDED_BY(mutex_);
};

// The one thread that changes the database. It gathers what all producers have appended, what
// groups have committed and what else is to be changed, writes it as one and syncs it; then, and
// not before, readers see it and it is answered for. What arrives meanwhile is the next group.
//
// A write that fails is tried again, the same one, until the disk takes it: nothing is answered
// and nothing overtakes it meanwhile, so producers' queues fill. One that does not end is told of
// by a second thread.
//
// Bounds: what is appended waits within its producer's bounds; a group has at most kGroupBytesMax
// and one record more.
class Writer {
 public:
  static constexpr size_t kRecordBytesMax = 1'000'000;
  static constexpr size_t kGroupBytesMax = 4 << 20;

  struct Options {
    // From one sync to the next, unless much waits: what comes alone is written at once.
    Duration sync_interval{};
    Duration retry_interval{};  // of a write that failed
    Duration slow_after{};      // of a write: the log counts as not writable until it has ended
    // Less than so much free, or than an eighth of the disk: records of topics that say nothing of
    // how long they keep them are refused.
    uint64_t reserve_bytes = 0;
    std::function<std::filesystem::space_info()> space;
  };
  Writer(Core& core, const Options& options);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Threads: any.
  void Append(const std::shared_ptr<AnswerBox>& box, AppendRecord&& record);

  // A change besides appends. `prepare` runs on the writer's thread and may refuse; `done` runs
  // there when it is on the disk or was refused. kAborted: the log was closed before.
  struct Change {
    absl::AnyInvocable<absl::Status(WriteSet&)> prepare;
    absl::AnyInvocable<void(const absl::Status&) &&> done;
  };
  // Threads: any.
  void Submit(Change change);

  // Writes what is there, answers the rest with kAborted and ends the thread.
  void Stop();

  // For the thread itself, from Change::prepare, and before Start().
  using Topics = absl::flat_hash_map<std::string, TopicPtr>;
  Topics& topics() { return topics_; }
  void Start();

 private:
  struct Item {
    std::shared_ptr<AnswerBox> box;
    AppendRecord record;
  };

  void Run();
  // False: the end.
  bool Gather();
  void Compose();
  // `ms` stamps it, by `age_ms` it ages.
  absl::StatusOr<int64_t> Place(AppendRecord& record, int64_t ms, int64_t age_ms);
  void CutRun(const PartitionPtr& partition);
  // False: it was told to stop.
  bool WriteUntilDone();
  absl::Status Write();
  // The second thread, which tells of a write that does not end and looks at the disk.
  void Watch();
  // Whether there is room for records from outside. Threads: both.
  void LookAtSpace();
  void TakeSpace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mutex_);
  void TellFailure(const absl::Status& status);
  void AnswerAll();
  bool stopping() {
    absl::MutexLock lock(&mutex_);
    return stopping_;
  }

  Core& core_;
  const Options options_;
  absl::Mutex mutex_;
  SteadyWait wait_;  // for many bytes, or the end
  std::vector<Item> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Change> changes_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyWait watch_wait_;  // for the end
  absl::Mutex space_mutex_;
  absl::optional<std::chrono::steady_clock::time_point> write_began_ ABSL_GUARDED_BY(core_.mutex);

  // The thread's own.
  Topics topics_;
  std::vector<Item> items_;
  size_t next_item_ = 0;
  std::vector<Change> group_changes_;
  std::vector<absl::Status> change_status_;
  std::vector<PartitionPtr> touched_;
  // A few producers: a list is faster than a map.
  std::vector<std::pair<std::shared_ptr<AnswerBox>, AnswerBox::Answers>> answers_;
  uint64_t group_records_ = 0;
  uint64_t group_bytes_ = 0;
  WriteSet set_;
  std::chrono::steady_clock::time_point synced_;
  uint64_t bytes_since_look_ = 0;
  std::thread thread_;
  std::thread watch_;
};

}  // namespace postrider::embedded_log_internal
