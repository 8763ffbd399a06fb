#pragma once

#include <rocksdb/db.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/embedded_log/internal/acknowledged_mark.h"
#include "core/embedded_log/internal/damage_teller.h"
#include "core/embedded_log/internal/rocks.h"

namespace postrider::embedded_log_internal {

// An open RocksDB with its families, or none.
struct OpenedDb {
  OpenedDb() = default;
  ~OpenedDb() { Close(); }
  OpenedDb(const OpenedDb&) = delete;
  OpenedDb& operator=(const OpenedDb&) = delete;

  void Close();

  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> families;
};

// Opens the RocksDB of a log, whatever a crash or damage has made of its files. Whoever is killed
// meanwhile, at any moment, leaves what the next one opens with no more lost: what is put together
// anew is marked before, and begun again then.
//
// Threads: one at a time.
class Opener {
 public:
  // All that is passed outlives it; `directory` is the database's, `entry_copy` the path of one
  // (entry_copy.h), from which entries come back that damage has taken.
  Opener(std::string directory, std::string entry_copy, const RocksSettings& settings,
         AcknowledgedMark& mark, DamageTeller& teller);
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

  // For the first time. kDataLoss: it is damaged beyond opening.
  absl::Status Open(OpenedDb& opened);
  // From its files anew, after a write that failed.
  absl::Status OpenAgain(OpenedDb& opened);
  // Whether some MB can be written and synced.
  absl::Status TryDisk() const;
  // Without changing anything.
  absl::Status OpenToLook(OpenedDb& opened);
  // The same beside a service that has it, as a secondary of RocksDB.
  absl::Status OpenBeside(OpenedDb& opened);

 private:
  absl::Status OpenFiles(OpenedDb& opened);
  absl::Status OpenOnce(OpenedDb& opened);
  absl::Status OpenPastTornEnd(OpenedDb& opened);
  absl::Status PutDamagedTablesAside(OpenedDb& opened);
  absl::Status Repair(OpenedDb& opened, const absl::Status& why);
  absl::Status MarkRepair();
  // After a repair: what the copy has and the database has not.
  absl::Status RestoreEntries(OpenedDb& opened);
  absl::Status UndoRepair();
  static absl::Status CheckFamilies(OpenedDb& opened);
  // What the database has less than what was acknowledged is lost.
  void TellOfMissingEnd(rocksdb::DB& db);
  bool IsWhole() const;
  // RocksDB would take it for a directory that it may begin anew in.
  bool LacksCurrent() const;
  rocksdb::Env& env() const;
  std::string RepairMark() const;
  std::string RestoreMark() const;
  // Or was, when it was cut short.
  bool IsAmidRepair() const;

  const std::string directory_;
  const std::string entry_copy_;
  const RocksSettings& settings_;
  AcknowledgedMark& mark_;
  DamageTeller& teller_;
};

}  // namespace postrider::embedded_log_internal
