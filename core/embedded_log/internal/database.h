#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/embedded_log/internal/run.h"
#include "core/embedded_log/internal/run_key.h"
#include "core/embedded_log/internal/write_set.h"

namespace rocksdb {
class Env;
}

namespace postrider::embedded_log_internal {

struct DatabaseOptions {
  std::string directory;  // made when it is missing, its parent exists
  // For blocks and memtables together; the memtables get half of it.
  size_t memory_bytes = 64 << 20;
  int background_threads = 2;
  // kLook: nothing in the directory is changed, what is damaged is told of and left as it is, and
  // Write() fails; others may look at it too. kBeside: the same while a service has it; what it
  // shows is as of the last CatchUp().
  enum class Access { kOwn, kLook, kBeside };
  Access access = Access::kOwn;
  // In place of the system's, for tests; outlives the database.
  rocksdb::Env* env = nullptr;
  // Told of records that cannot be read any more; from any thread.
  std::function<void(absl::string_view what)> on_damage;
};

// A table that cannot be read whole.
struct TableDamage {
  std::string file;
  std::string what;
  bool runs = false;  // else it has entries
  // Of the runs that it is known to have.
  PartitionId first;
  int64_t first_base = 0;
  PartitionId last;
  int64_t last_base = 0;
};

// The RocksDB that the embedded log lies in, with its directory: `FORMAT` (the version), `lock`
// (held while it is open) and `db`. Two column families: entries (topics, positions of groups,
// where partitions begin) and runs, keyed by partition and first offset.
//
// Threads: Write() and Recover() from one, all else from any.
class Database {
 public:
  // kFailedPrecondition: another process holds it, it is of a newer version, or no log of ours;
  // kUnavailable: it cannot be made, read or written; kDataLoss: it is damaged beyond opening, or
  // so that only one who owns it can put it together anew; kNotFound: there is none to look at.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const DatabaseOptions& options);
  virtual ~Database() = default;

  // On the disk when it returns OK. kResourceExhausted (the disk is full) and kUnavailable (it
  // failed): nothing was written, or it may show after the next start; the same set may be written
  // again after Recover(). kAborted: it would have had to wait for a flush; try again soon.
  virtual absl::Status Write(WriteSet& set) = 0;
  // Makes it writable again after a Write() that failed, if the disk lets it. Readers wait
  // meanwhile, and find it not open when it can be closed but not opened again.
  virtual absl::Status Recover() = 0;
  // kBeside: shows what the service has written since. After OK all that it shows was acknowledged,
  // and stays readable until the next call though the service deletes files; but records that move
  // from one file to another may be missing until a later call. After an error open it anew.
  virtual absl::Status CatchUp() = 0;

  // Entries whose keys begin with `prefix`, in their order; those that cannot be read come after
  // the others, as CopyEntries() has kept them.
  virtual absl::Status ForEachEntry(
      absl::string_view prefix,
      absl::FunctionRef<void(absl::string_view key, absl::string_view value)> visit) = 0;

  // Keeps a copy of the entries as they are now, in place of the one before. Writes a file.
  virtual absl::Status CopyEntries() = 0;

  // The greatest number of a topic of which there are runs; 0: of none.
  virtual absl::StatusOr<uint32_t> LastTopicNumber() = 0;
  // The last run of a partition. Damaged ones are passed over.
  virtual absl::StatusOr<absl::optional<RunPlace>> LastRun(PartitionId id) = 0;
  // The first run that ends behind `offset`, within [., until).
  virtual absl::StatusOr<absl::optional<RunPlace>> RunAt(PartitionId id, int64_t offset,
                                                         int64_t until) = 0;
  // The runs from the one that `from` lies in, at least one, until `bytes_max` is reached; without
  // a gap between them: what cannot be read or was compacted away is an empty run, up to `until`.
  virtual absl::StatusOr<std::vector<RunPtr>> ReadRuns(PartitionId id, int64_t from, int64_t until,
                                                       size_t bytes_max) = 0;
  // The first run in [begin, end) for which `reached` holds, which holds for all that follow it.
  virtual absl::StatusOr<absl::optional<RunPlace>> FirstRunWhere(
      PartitionId id, int64_t begin, int64_t end,
      absl::FunctionRef<bool(const RunPlace&)> reached) = 0;

  // Gives the disk back what was deleted in [from, to). Slow.
  virtual void CompactRuns(PartitionId id, int64_t from, int64_t to) = 0;
  // Stops CompactRuns(), for good.
  virtual void StopCompacting() = 0;

  // Reads each table whole. `tables` is how many there are.
  virtual std::vector<TableDamage> CheckTables(size_t* tables) = 0;
  // kLook, kBeside: another one after each time that the service has opened it.
  virtual std::string opening() const = 0;
  virtual uint64_t disk_bytes() const = 0;
  virtual uint64_t memory_bytes() const = 0;
};

}  // namespace postrider::embedded_log_internal
