#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/random.h"
#include "rocksdb/env.h"

namespace postrider::tests {

// A disk for RocksDB that can be full, fail to sync, or lose its power: then nothing is written any
// more, and what was not synced is lost in whole or in part. Reads always go. Threads: any.
class FaultDisk {
 public:
  FaultDisk();
  ~FaultDisk();

  rocksdb::Env* env() { return env_.get(); }

  void SetFull(bool full);
  void SetSyncFails(bool fails);
  // A sync that begins does not end until it is no longer so.
  void SetSyncHangs(bool hangs);
  // After so many writes and syncs more, 0: from here on, nothing reaches the disk.
  void CutPowerAfter(uint64_t actions);
  bool cut();
  // After the database was closed: of what was not synced a random part stays, of which the last
  // bytes may be anything. The power is there again.
  void LoseUnsynced(Random& random);

  // For its files.
  enum class Action { kWrite, kSync };
  // Empty: it goes well.
  std::string Fault(Action action, bool* full);
  void Wrote(const std::string& name, uint64_t bytes);
  void Synced(const std::string& name);
  void Renamed(const std::string& from, const std::string& to);
  void Opened(const std::string& name);
  void Deleted(const std::string& name);

 private:
  static constexpr uint64_t kNever = ~uint64_t{0};
  struct File {
    uint64_t written = 0;
    uint64_t synced = 0;
  };

  absl::Mutex mutex_;
  bool full_ ABSL_GUARDED_BY(mutex_) = false;
  bool sync_fails_ ABSL_GUARDED_BY(mutex_) = false;
  bool sync_hangs_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t until_cut_ ABSL_GUARDED_BY(mutex_) = kNever;
  std::map<std::string, File> files_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<rocksdb::Env> env_;
};

}  // namespace postrider::tests
