#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/stream/state_store.h"

namespace postrider {

struct RocksdbSharedOptions {
  // For the blocks and the memtables of all stores of the process together.
  size_t memory_bytes = 128 << 20;
  int background_threads = 2;  // for flushes and compactions, in the whole process; 1..16
};

// What the stores of one process share: the block cache, the budget of their memtables (half of the
// memory, charged to the cache) and the threads. Made once, outlives its stores. Threads: any.
class RocksdbShared {
 public:
  static std::unique_ptr<RocksdbShared> Create(const RocksdbSharedOptions& options);
  virtual ~RocksdbShared() = default;

  // What blocks and memtables hold now; at most memory_bytes and what is being flushed.
  virtual uint64_t memory_bytes() const = 0;
  // Whether the disk is wanted: then stores are compacted as if they were near their bound. Said
  // whenever the disk was looked at: each store looks at itself once for it, at its next write.
  virtual void SetDiskTight(bool tight) = 0;
};

struct RocksdbStoreOptions {
  // Its own, and it is wiped. Made if it is missing (its parent exists).
  std::string directory;
  // On disk and in memtables; looked at after each 1 MB of writes. What was deleted counts until a
  // compaction; from seven eighths of the bound on one is begun when an eighth of the keys has been
  // written since.
  uint64_t bytes_max = uint64_t{10} << 30;
};

// A StateStore on a RocksDB of its own (one per key group), write-ahead log off, LZ4. Calls may
// read the disk; a write that would have to wait for a flush is refused instead. So is every write,
// a delete too, while the disk is full (ENOSPC, EDQUOT, EFBIG): reads go on, nothing that was taken
// is lost, and about a second after there is space again RocksDB has flushed by itself.
//
// Errors: kFailedPrecondition (another running process or store owns the directory, or it holds
// something that is not ours: nothing was touched), kResourceExhausted (the disk is full),
// kUnavailable (it cannot be made or opened for another reason).
absl::StatusOr<std::unique_ptr<StateStore>> OpenRocksdbStore(RocksdbShared& shared,
                                                             const RocksdbStoreOptions& options);

}  // namespace postrider
