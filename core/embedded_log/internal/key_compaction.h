#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/embedded_log/internal/database.h"
#include "core/embedded_log/internal/partition.h"
#include "core/embedded_log/internal/run.h"

namespace postrider::embedded_log_internal {

// Goes through a compacted partition once, from its begin: of each key that was written since the
// last time only the latest record stays, and of tombstones that have been the last word on their
// keys for long enough nothing. The last run is left alone. Records keep their offsets; runs of
// which little is left are put together.
//
// Tombstones may go that were below the end of an earlier round, by then for tombstone_ms: whoever
// read a value before that round had so long to come to the tombstone. As rounds go upward, what a
// tombstone removed is gone before the tombstone is, wherever a round breaks off.
class KeyCompaction {
 public:
  KeyCompaction(Database& database, PartitionId id) : database_(database), id_(id) {}

  // A change that is made as one: the runs at `drop` go, `put` comes.
  struct Step {
    int64_t first = 0;  // the lowest base of all
    std::vector<int64_t> drop;
    RunPtr put;
  };

  int64_t begin = 0;
  int64_t end = 0;
  Cleaned before;
  int64_t now_ms = 0;
  int64_t tombstone_ms = 0;
  int64_t lag_ms = 0;  // records that are younger are left
  size_t keys_max = 0;
  // Makes the change and returns when it is on the disk.
  std::function<absl::Status(Step)> change;
  std::function<bool()> stopping;

  // How far it came; kAborted when it was told to stop or the partition was trimmed meanwhile.
  absl::StatusOr<Cleaned> Run();
  uint64_t dropped() const { return dropped_; }

 private:
  // 128 bits of a key: two that are not equal are never taken for one in practice.
  using KeyHash = std::pair<size_t, size_t>;
  static KeyHash HashOf(absl::string_view key);

  absl::Status LearnKeys();
  absl::Status Rewrite();
  bool Stays(const LogRecord& record) const;
  absl::Status TakeRun(const RunPtr& run);
  absl::Status PutTogether();

  Database& database_;
  const PartitionId id_;
  absl::flat_hash_map<KeyHash, int64_t> latest_;
  int64_t until_ = 0;  // of this round
  bool drop_tombstones_ = false;
  uint64_t dropped_ = 0;
  uint64_t left_bytes_ = 0;

  // What is being put together.
  RunBuilder builder_;
  std::vector<int64_t> bases_;
  int64_t next_ = 0;
  int64_t high_ms_ = 0;
  uint64_t bytes_before_ = 0;
  bool changed_ = false;
};

}  // namespace postrider::embedded_log_internal
