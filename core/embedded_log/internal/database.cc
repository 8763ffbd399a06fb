#include "core/embedded_log/internal/database.h"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/iterator.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/status.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/embedded_log/internal/acknowledged_mark.h"
#include "core/embedded_log/internal/log_directory.h"
#include "core/embedded_log/internal/rocks.h"
#include "core/embedded_log/internal/run_finder.h"
#include "core/embedded_log/internal/table_check.h"
#include "core/embedded_log/internal/torn_manifest.h"
#include "core/embedded_log/internal/wal_check.h"

namespace postrider::embedded_log_internal {
namespace {

using rocksdb::ColumnFamilyHandle;
using rocksdb::Slice;

constexpr std::chrono::seconds kFlushWait{5};
constexpr absl::Duration kFlushLook = absl::Milliseconds(2);
constexpr std::chrono::seconds kAcknowledgedWait{2};
// Room for what a start writes at least.
constexpr char kProbeName[] = "probe.tmp";
constexpr size_t kProbeBlockBytes = 1 << 20;
constexpr size_t kProbeBlocks = 8;
// So many places of damage are remembered, so that each is told of once.
constexpr size_t kDamageMax = 10'000;

std::vector<rocksdb::ColumnFamilyDescriptor> FamiliesOf(const rocksdb::Options& options) {
  return {{rocksdb::kDefaultColumnFamilyName, options}, {kRunsName, options}};
}

absl::StatusOr<std::unique_ptr<LogDirectory>> OpenDirectory(const DatabaseOptions& options) {
  switch (options.access) {
    case DatabaseOptions::Access::kOwn:
      return LogDirectory::Acquire(options.directory);
    case DatabaseOptions::Access::kLook:
      return LogDirectory::Look(options.directory);
    case DatabaseOptions::Access::kBeside:
      break;
  }
  return LogDirectory::LookBeside(options.directory);
}

class NoLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

RocksSettings SettingsOf(const DatabaseOptions& options) {
  RocksSettings settings;
  settings.memory_bytes = options.memory_bytes;
  settings.background_threads = options.background_threads;
  settings.env = options.env;
  settings.cache = rocksdb::NewLRUCache(options.memory_bytes);
  settings.memtables =
      std::make_shared<rocksdb::WriteBufferManager>(options.memory_bytes / 2, settings.cache);
  return settings;
}

class RocksDatabase final : public Database {
 public:
  RocksDatabase(const DatabaseOptions& options, std::unique_ptr<LogDirectory> directory)
      : options_(options),
        directory_(std::move(directory)),
        mark_(directory_->acknowledged(),
              owns() ? AcknowledgedMark::Access::kWrite : AcknowledgedMark::Access::kRead),
        settings_(SettingsOf(options)) {}
  ~RocksDatabase() override {
    absl::MutexLock lock(&mutex_);
    if (owns()) FlushAtEnd();
    CloseDb();
  }

  absl::Status Start() {
    if (options_.access == DatabaseOptions::Access::kBeside) return StartBeside();
    for (const WalDamage& damage : CheckWals(directory_->database())) Tell(damage.text);
    absl::MutexLock lock(&mutex_);
    if (!owns()) {
      RETURN_IF_ERROR(OpenToLook());
      CheckAcknowledged();
      return absl::OkStatus();
    }
    if (LacksCurrent()) {
      return Repair(absl::DataLossError("embedded log: the database's file CURRENT is missing"));
    }
    absl::Status opened = OpenPastTornEnd();
    if (opened.ok()) {
      CheckAcknowledged();
    } else if (absl::IsDataLoss(opened)) {
      opened = Repair(opened);
    }
    return opened.ok() ? PutDamagedTablesAside() : opened;
  }

  absl::Status Write(WriteSet& set) override;
  absl::Status Recover() override;
  absl::Status CatchUp() override;
  absl::Status ForEachEntry(
      absl::string_view prefix,
      absl::FunctionRef<void(absl::string_view, absl::string_view)> visit) override;
  absl::StatusOr<absl::optional<RunPlace>> LastRun(PartitionId id) override;
  absl::StatusOr<absl::optional<RunPlace>> RunAt(PartitionId id, int64_t offset,
                                                 int64_t until) override;
  absl::StatusOr<std::vector<RunPtr>> ReadRuns(PartitionId id, int64_t from, int64_t until,
                                               size_t bytes_max) override;
  absl::StatusOr<absl::optional<RunPlace>> FirstRunWhere(
      PartitionId id, int64_t begin, int64_t end,
      absl::FunctionRef<bool(const RunPlace&)> reached) override;
  void CompactRuns(PartitionId id, int64_t from, int64_t to) override;
  void StopCompacting() override {
    stopped_ = true;
    canceled_ = true;
  }
  std::vector<TableDamage> CheckTables(size_t* tables) override {
    absl::ReaderMutexLock lock(&mutex_);
    *tables = 0;
    if (db_ == nullptr) return {};
    return embedded_log_internal::CheckTables(*db_, MakeOptions(settings_), tables);
  }
  bool damaged() const override {
    absl::MutexLock lock(&told_mutex_);
    return !told_.empty();
  }
  uint64_t disk_bytes() const override {
    absl::ReaderMutexLock lock(&mutex_);
    uint64_t bytes = 0;
    if (db_ != nullptr) {
      db_->GetAggregatedIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &bytes);
    }
    return bytes;
  }
  uint64_t memory_bytes() const override { return settings_.cache->GetUsage(); }

 private:
  bool owns() const { return options_.access == DatabaseOptions::Access::kOwn; }
  absl::Status StartBeside();
  absl::Status AwaitAcknowledged(uint64_t sequence) const;
  absl::Status OpenDb() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OpenToLook() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckFamilies() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OpenPastTornEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsWhole() const;
  absl::Status PutDamagedTablesAside() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Repair(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckAcknowledged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FlushAtEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether some MB can be written and synced.
  absl::Status TryDisk() const;
  // RocksDB would take it for a directory that it may begin anew in.
  bool LacksCurrent() const;
  void CloseDb() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (db_ == nullptr) return;
    for (ColumnFamilyHandle* family : families_) {
      db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
    }
    families_.clear();
    db_.reset();
  }
  static absl::Status NotOpen() {
    return absl::UnavailableError("embedded log: the database is not open");
  }
  void Tell(const std::string& what) {
    {
      absl::MutexLock lock(&told_mutex_);
      if (told_.size() >= kDamageMax || !told_.insert(what).second) return;
    }
    // Beside a service it may as well be a file that is deleted there.
    if (options_.access != DatabaseOptions::Access::kBeside) {
      POSTRIDER_LOG(kError, "the embedded log is damaged", {"what", what});
    }
    if (options_.on_damage) options_.on_damage(what);
  }

  const DatabaseOptions options_;
  const std::unique_ptr<LogDirectory> directory_;
  AcknowledgedMark mark_;  // of who writes
  const RocksSettings settings_;
  const RunFinder::Tell tell_ = [this](const std::string& what) { Tell(what); };
  std::atomic<bool> canceled_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> failed_{false};  // the last write
  // Held by readers while they read; by Recover() while it opens the database anew.
  mutable absl::Mutex mutex_;
  std::unique_ptr<rocksdb::DB> db_ ABSL_GUARDED_BY(mutex_);
  std::vector<ColumnFamilyHandle*> families_ ABSL_GUARDED_BY(mutex_);
  mutable absl::Mutex told_mutex_;
  std::set<std::string> told_ ABSL_GUARDED_BY(told_mutex_);
};

bool RocksDatabase::LacksCurrent() const {
  std::error_code error;
  bool files = false;
  for (const auto& entry : std::filesystem::directory_iterator(directory_->database(), error)) {
    if (entry.path().filename() == "CURRENT") return false;
    files = files || entry.path().extension() == ".sst";
  }
  return files;
}

absl::Status RocksDatabase::OpenPastTornEnd() {
  absl::Status opened = OpenDb();
  if (!absl::IsDataLoss(opened)) return opened;
  const std::unique_ptr<TornManifest> torn = TornManifest::Cut(directory_->database());
  if (torn == nullptr) return opened;
  if (IsWhole()) {
    POSTRIDER_LOG(kInfo, "the embedded log's list of tables ends where a crash has torn it");
    return OpenDb();
  }
  torn->Restore();
  return opened;
}

// Whether the tables that it lists are there, and all that was acknowledged. Changes nothing.
bool RocksDatabase::IsWhole() const {
  const rocksdb::Options options = MakeOptions(settings_);
  std::vector<ColumnFamilyHandle*> families;
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened = rocksdb::DB::OpenForReadOnly(options, directory_->database(),
                                                              FamiliesOf(options), &families, &raw);
  if (!opened.ok()) return false;
  const std::unique_ptr<rocksdb::DB> db(raw);
  std::vector<rocksdb::LiveFileMetaData> files;
  db->GetLiveFilesMetaData(&files);
  bool whole = db->GetLatestSequenceNumber() >= mark_.sequence();
  for (const rocksdb::LiveFileMetaData& file : files) {
    std::error_code error;
    whole = whole && std::filesystem::exists(file.db_path + file.name, error);
  }
  for (ColumnFamilyHandle* family : families) {
    db->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  }
  return whole;
}

absl::Status RocksDatabase::OpenDb() {
  const rocksdb::Options options = MakeOptions(settings_);
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened =
      rocksdb::DB::Open(options, directory_->database(), FamiliesOf(options), &families_, &db);
  if (!opened.ok()) return ToStatus(absl::StrCat("open ", directory_->database()), opened);
  db_.reset(db);
  return CheckFamilies();
}

absl::Status RocksDatabase::OpenToLook() {
  rocksdb::Options options = MakeOptions(settings_);
  options.create_if_missing = false;
  options.create_missing_column_families = false;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::OpenForReadOnly(options, directory_->database(),
                                                              FamiliesOf(options), &families_, &db);
  if (!opened.ok()) {
    return absl::DataLossError(absl::StrCat(
        "embedded log: what tells of the tables in ", directory_->database(),
        " cannot be read: ", opened.ToString(), "; a start of the service puts it together anew"));
  }
  db_.reset(db);
  return CheckFamilies();
}

absl::Status RocksDatabase::StartBeside() {
  absl::MutexLock lock(&mutex_);
  rocksdb::Options options = MakeOptions(settings_);
  options.create_if_missing = false;
  options.create_missing_column_families = false;
  // All are held open, so that they can be read when the service has deleted them.
  options.max_open_files = -1;
  options.paranoid_checks = true;
  // With a logger nothing is made in the directory of its own that it asks for.
  options.info_log = std::make_shared<NoLogger>();
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened =
      rocksdb::DB::OpenAsSecondary(options, directory_->database(), directory_->database(),
                                   FamiliesOf(options), &families_, &db);
  if (!opened.ok()) {
    return absl::UnavailableError(absl::StrCat("embedded log: look at ", directory_->database(),
                                               " beside the service: ", opened.ToString()));
  }
  db_.reset(db);
  return CheckFamilies();
}

absl::Status RocksDatabase::CatchUp() {
  uint64_t sequence = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (db_ == nullptr) return NotOpen();
    const rocksdb::Status status = db_->TryCatchUpWithPrimary();
    if (!status.ok()) {
      return absl::UnavailableError(absl::StrCat("embedded log: catch up: ", status.ToString()));
    }
    sequence = db_->GetLatestSequenceNumber();
  }
  return AwaitAcknowledged(sequence);
}

// The service syncs after it has written: until then a power loss may take what can be read.
absl::Status RocksDatabase::AwaitAcknowledged(uint64_t sequence) const {
  const auto end = std::chrono::steady_clock::now() + kAcknowledgedWait;
  while (true) {
    const AcknowledgedMark mark(directory_->acknowledged(), AcknowledgedMark::Access::kRead);
    if (mark.sequence() >= sequence) return absl::OkStatus();
    if (std::chrono::steady_clock::now() >= end) {
      return absl::UnavailableError(
          "embedded log: the service has written what it does not acknowledge");
    }
    absl::SleepFor(kFlushLook);
  }
}

absl::Status RocksDatabase::CheckFamilies() {
  if (families_.size() == 2 && families_[kRuns]->GetID() == kRuns) return absl::OkStatus();
  CloseDb();
  return absl::DataLossError("embedded log: the database is no log of ours");
}

// A table whose index cannot be read would make all that lies in its range unreadable, in other
// tables too.
absl::Status RocksDatabase::PutDamagedTablesAside() {
  // A start may compact at once: what is compacted away meanwhile must not be missed.
  RETURN_IF_ERROR(ToStatus("keep the tables", db_->DisableFileDeletions()));
  std::vector<rocksdb::LiveFileMetaData> files;
  db_->GetLiveFilesMetaData(&files);
  std::vector<std::string> damaged;
  for (const rocksdb::LiveFileMetaData& file : files) {
    rocksdb::SstFileReader reader(MakeOptions(settings_));
    const rocksdb::Status opened = reader.Open(file.db_path + file.name);
    if (opened.ok()) continue;
    if (file.column_family_name != kRunsName) {
      return absl::DataLossError(
          absl::StrCat("embedded log: the table ", file.name,
                       ", which tells of topics and groups, is damaged: ", opened.ToString()));
    }
    damaged.push_back(file.name);
  }
  if (damaged.empty()) return ToStatus("let tables go", db_->EnableFileDeletions());
  CloseDb();
  const std::string aside = directory_->database() + "/damaged";
  std::error_code error;
  std::filesystem::create_directory(aside, error);
  for (const std::string& name : damaged) {
    std::filesystem::rename(directory_->database() + name, aside + name, error);
    if (error) return absl::UnavailableError("embedded log: " + error.message());
  }
  return Repair(
      absl::DataLossError(absl::StrCat("embedded log: tables are damaged and put aside in ", aside,
                                       ": ", absl::StrJoin(damaged, " "))));
}

// What the database knows of its tables is damaged: it is put together anew from the tables and the
// write-ahead logs, which each carry what they need.
absl::Status RocksDatabase::Repair(const absl::Status& why) {
  Tell(absl::StrCat(std::string(why.message()), "; it is put together anew from its tables"));
  const rocksdb::Options options = MakeOptions(settings_);
  const rocksdb::Status repaired =
      rocksdb::RepairDB(directory_->database(), options, FamiliesOf(options));
  if (!repaired.ok()) return ToStatus("repair", repaired);
  const absl::Status opened = OpenDb();
  if (opened.ok()) mark_.Set(db_->GetLatestSequenceNumber());
  return opened;
}

// What the database has less than what was acknowledged is lost. A repair may count anew, so it is
// not asked after one, which has told of the damage.
void RocksDatabase::CheckAcknowledged() {
  const uint64_t there = db_->GetLatestSequenceNumber();
  if (mark_.sequence() > there) {
    Tell(absl::StrCat("the last ", mark_.sequence() - there,
                      " changes that were acknowledged are not on the disk any more"));
  }
  if (owns()) mark_.Set(there);
}

absl::Status RocksDatabase::Write(WriteSet& set) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr) return NotOpen();
  rocksdb::WriteOptions options;
  options.sync = true;
  options.no_slowdown = true;
  const rocksdb::Status status = db_->Write(options, &set.impl().batch);
  if (status.IsIncomplete()) {
    return absl::AbortedError("embedded log: flushes to the disk are behind the writes");
  }
  failed_ = !status.ok();
  if (status.ok()) mark_.Set(db_->GetLatestSequenceNumber());
  return ToStatus("write", status);
}

// What the system has told of a failed write is not to be had again from it: the write-ahead log
// may end anywhere, and what a failed sync has left in memory looks as if it were on the disk. So
// the files are read anew, once they can be written at all; until then the database stays open for
// readers.
absl::Status RocksDatabase::Recover() {
  {
    absl::ReaderMutexLock lock(&mutex_);
    if (db_ != nullptr && !failed_) return absl::OkStatus();
  }
  RETURN_IF_ERROR(TryDisk());
  canceled_ = true;
  absl::MutexLock lock(&mutex_);
  CloseDb();
  const absl::Status opened = OpenPastTornEnd();
  if (opened.ok()) CheckAcknowledged();
  canceled_ = stopped_.load();
  return opened;
}

// So that the next start has less to read. What the disk does not take in time is in the
// write-ahead log.
void RocksDatabase::FlushAtEnd() {
  if (db_ == nullptr || failed_) return;
  rocksdb::FlushOptions options;
  options.wait = false;
  if (!db_->Flush(options, families_).ok()) return;
  const auto end = std::chrono::steady_clock::now() + kFlushWait;
  uint64_t left = 1;
  while (left > 0 && std::chrono::steady_clock::now() < end) {
    db_->GetAggregatedIntProperty(rocksdb::DB::Properties::kNumImmutableMemTable, &left);
    if (left > 0) absl::SleepFor(kFlushLook);
  }
}

absl::Status RocksDatabase::TryDisk() const {
  rocksdb::Env* const env = options_.env != nullptr ? options_.env : rocksdb::Env::Default();
  const std::string name = directory_->database() + "/" + kProbeName;
  std::unique_ptr<rocksdb::WritableFile> file;
  rocksdb::Status status = env->NewWritableFile(name, &file, rocksdb::EnvOptions());
  const std::string block(kProbeBlockBytes, 'p');
  for (size_t i = 0; i < kProbeBlocks && status.ok(); ++i) status = file->Append(block);
  if (status.ok()) status = file->Sync();
  if (file != nullptr) file->Close().PermitUncheckedError();
  env->DeleteFile(name).PermitUncheckedError();
  return ToStatus("try the disk", status);
}

absl::Status RocksDatabase::ForEachEntry(
    absl::string_view prefix, absl::FunctionRef<void(absl::string_view, absl::string_view)> visit) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr) return NotOpen();
  const std::unique_ptr<rocksdb::Iterator> entry(
      db_->NewIterator(rocksdb::ReadOptions(), families_[kEntries]));
  for (entry->Seek(ToSlice(prefix)); entry->Valid(); entry->Next()) {
    const absl::string_view key = ToView(entry->key());
    if (key.substr(0, prefix.size()) != prefix) break;
    visit(key, ToView(entry->value()));
  }
  return ToStatus("read entries", entry->status());
}

absl::StatusOr<absl::optional<RunPlace>> RocksDatabase::LastRun(PartitionId id) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr) return NotOpen();
  return RunFinder(*db_, families_[kRuns], id, tell_).FindLast();
}

absl::StatusOr<absl::optional<RunPlace>> RocksDatabase::RunAt(PartitionId id, int64_t offset,
                                                              int64_t until) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr) return NotOpen();
  RunPlace run;
  if (!RunFinder(*db_, families_[kRuns], id, tell_).FindAt(offset, until, &run)) {
    return absl::optional<RunPlace>();
  }
  return absl::optional<RunPlace>(run);
}

absl::StatusOr<std::vector<RunPtr>> RocksDatabase::ReadRuns(PartitionId id, int64_t from,
                                                            int64_t until, size_t bytes_max) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr) return NotOpen();
  RunFinder finder(*db_, families_[kRuns], id, tell_);
  std::vector<RunPtr> runs;
  size_t bytes = 0;
  int64_t next = from;
  RunPlace found;
  bool there = finder.FindAt(from, until, &found);
  while (true) {
    if (!there || found.base > next) {
      auto gap = std::make_shared<Run>();
      gap->base = next;
      gap->next = there ? std::min(found.base, until) : until;
      next = gap->next;
      runs.push_back(std::move(gap));
      if (!there) return runs;
    }
    auto run = std::make_shared<Run>();
    run->base = found.base;
    run->next = found.header.next;
    run->bytes = std::string(finder.stored());
    bytes += run->bytes.size();
    next = run->next;
    runs.push_back(std::move(run));
    if (next >= until || bytes >= bytes_max) return runs;
    there = finder.StepTo(until, &found) || finder.FindFrom(next, until, &found);
  }
}

absl::StatusOr<absl::optional<RunPlace>> RocksDatabase::FirstRunWhere(
    PartitionId id, int64_t begin, int64_t end, absl::FunctionRef<bool(const RunPlace&)> reached) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr) return NotOpen();
  RunFinder finder(*db_, families_[kRuns], id, tell_);
  absl::optional<RunPlace> first;
  int64_t low = begin;
  int64_t high = end;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    RunPlace run;
    if (!finder.FindAt(middle, high, &run)) {
      high = middle;
    } else if (reached(run)) {
      first = run;
      high = std::min(middle, run.base);
    } else {
      low = run.header.next;
    }
  }
  return first;
}

void RocksDatabase::CompactRuns(PartitionId id, int64_t from, int64_t to) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr || canceled_) return;
  const std::string first = RunKey(id, from);
  const std::string last = RunKey(id, to);
  const Slice begin(first);
  const Slice end(last);
  rocksdb::DeleteFilesInRange(db_.get(), families_[kRuns], &begin, &end, false)
      .PermitUncheckedError();
  rocksdb::CompactRangeOptions options;
  options.exclusive_manual_compaction = false;
  options.canceled = &canceled_;
  db_->CompactRange(options, families_[kRuns], &begin, &end).PermitUncheckedError();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const DatabaseOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<LogDirectory> directory, OpenDirectory(options));
  auto database = std::make_unique<RocksDatabase>(options, std::move(directory));
  const absl::Status started = database->Start();
  if (absl::IsDataLoss(started) && options.access == DatabaseOptions::Access::kOwn) {
    return absl::DataLossError(
        absl::StrCat(std::string(started.message()), "; put a sound copy of ", options.directory,
                     " in its place, or move it away to begin with an empty log"));
  }
  RETURN_IF_ERROR(started);
  return std::unique_ptr<Database>(std::move(database));
}

}  // namespace postrider::embedded_log_internal
