#pragma once

#include <rocksdb/db.h>
#include <rocksdb/iterator.h>
#include <rocksdb/slice.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/embedded_log/internal/damage_teller.h"
#include "core/embedded_log/internal/run.h"
#include "core/embedded_log/internal/run_key.h"

namespace postrider::embedded_log_internal {

// Finds the runs of one partition in the database, past whatever cannot be read, and tells of that.
//
// Threads: one; the database stays open while it lives.
class RunFinder {
 public:
  // All outlive it.
  RunFinder(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* runs, PartitionId id,
            DamageTeller& teller);
  RunFinder(const RunFinder&) = delete;
  RunFinder& operator=(const RunFinder&) = delete;

  // Each stands at what it found; false: there is none.
  // The first run that ends behind `offset`, below `until`.
  bool FindAt(int64_t offset, int64_t until, RunPlace* run);
  // The first run whose base is at least `from`, below `until`.
  bool FindFrom(int64_t from, int64_t until, RunPlace* run);
  // The run behind the one where it stands, if it can be read and its base is below `until`; else
  // look from there with FindFrom().
  bool StepTo(int64_t until, RunPlace* run);
  // The last run that can be read.
  absl::optional<RunPlace> FindLast();

  // The run where it stands, as it is stored; until the next call.
  absl::string_view stored() const;

 private:
  void Renew();
  bool Take(RunPlace* run) const;
  bool SeekFrom(int64_t from, int64_t until);
  bool FindFromBefore(int64_t offset, RunPlace* run);
  int64_t base() const;

  rocksdb::DB& db_;
  rocksdb::ColumnFamilyHandle* const runs_;
  const PartitionId id_;
  DamageTeller& teller_;
  const std::string lower_;
  const std::string upper_;
  const rocksdb::Slice lower_slice_;
  const rocksdb::Slice upper_slice_;
  std::unique_ptr<rocksdb::Iterator> entry_;
};

}  // namespace postrider::embedded_log_internal
