#include "core/embedded_log/internal/database.h"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/iterator.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>
#include <rocksdb/status.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/embedded_log/internal/acknowledged_mark.h"
#include "core/embedded_log/internal/damage_teller.h"
#include "core/embedded_log/internal/entry_copy.h"
#include "core/embedded_log/internal/log_directory.h"
#include "core/embedded_log/internal/opener.h"
#include "core/embedded_log/internal/rocks.h"
#include "core/embedded_log/internal/run_finder.h"
#include "core/embedded_log/internal/table_check.h"
#include "core/embedded_log/internal/wal_check.h"

namespace postrider::embedded_log_internal {
namespace {

using rocksdb::Slice;

constexpr std::chrono::seconds kFlushWait{5};
constexpr absl::Duration kFlushLook = absl::Milliseconds(2);
constexpr std::chrono::seconds kAcknowledgedWait{2};
constexpr int kLooksMax = 10;

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

DamageTeller::Mode ModeOf(DatabaseOptions::Access access) {
  if (access == DatabaseOptions::Access::kOwn) return DamageTeller::Mode::kOnce;
  if (access == DatabaseOptions::Access::kLook) return DamageTeller::Mode::kEachTime;
  // Beside a service it may as well be a file that is deleted there.
  return DamageTeller::Mode::kEachTimeUnlogged;
}

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
    opened_.Close();
  }

  absl::Status Start() {
    const bool beside = options_.access == DatabaseOptions::Access::kBeside;
    if (!beside) {
      for (const WalDamage& damage : CheckWals(directory_->database())) teller_.Tell(damage.text);
    }
    absl::MutexLock lock(&mutex_);
    if (!owns()) {
      opened_current_ = ReadCurrent();
      std::error_code error;
      const auto written =
          std::filesystem::last_write_time(directory_->database() + "/CURRENT", error);
      opening_ = absl::StrCat(opened_current_, written.time_since_epoch().count());
    }
    if (beside) return opener_.OpenBeside(opened_);  // CatchUp() follows
    return owns() ? opener_.Open(opened_) : opener_.OpenToLook(opened_);
  }

  absl::Status Write(WriteSet& set) override;
  absl::Status Recover() override;
  absl::Status CatchUp() override;
  absl::Status ForEachEntry(
      absl::string_view prefix,
      absl::FunctionRef<void(absl::string_view, absl::string_view)> visit) override;
  absl::Status CopyEntries() override;
  absl::StatusOr<uint32_t> LastTopicNumber() override;
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
    if (opened_.db == nullptr) return {};
    return embedded_log_internal::CheckTables(*opened_.db, MakeOptions(settings_), tables);
  }
  std::string opening() const override { return opening_; }
  uint64_t disk_bytes() const override {
    absl::ReaderMutexLock lock(&mutex_);
    uint64_t bytes = 0;
    if (opened_.db != nullptr) {
      opened_.db->GetAggregatedIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &bytes);
    }
    return bytes;
  }
  uint64_t memory_bytes() const override { return settings_.cache->GetUsage(); }

 private:
  rocksdb::Env& env() const {
    return options_.env != nullptr ? *options_.env : *rocksdb::Env::Default();
  }
  bool owns() const { return options_.access == DatabaseOptions::Access::kOwn; }
  absl::Status AwaitAcknowledged(uint64_t sequence) const;
  // The name of the list of tables: another one after each time that the service has opened it.
  std::string ReadCurrent() const;
  std::set<std::string> Wals() const;
  void FlushAtEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static absl::Status NotOpen() {
    return absl::UnavailableError("embedded log: the database is not open");
  }

  const DatabaseOptions options_;
  const std::unique_ptr<LogDirectory> directory_;
  AcknowledgedMark mark_;       // of who writes
  std::string opened_current_;  // kLook, kBeside
  // The same with its time, for copies that were put back may give the name again.
  std::string opening_;
  const RocksSettings settings_;
  DamageTeller teller_{ModeOf(options_.access), options_.on_damage};
  Opener opener_{directory_->database(), directory_->entries(), settings_, mark_, teller_};
  std::atomic<bool> canceled_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> failed_{false};  // the last write
  // Held by readers while they read; by Recover() while it opens the database anew.
  mutable absl::Mutex mutex_;
  absl::Mutex copy_mutex_;  // of the file
  OpenedDb opened_ ABSL_GUARDED_BY(mutex_);
};

absl::Status RocksDatabase::Write(WriteSet& set) {
  absl::ReaderMutexLock lock(&mutex_);
  if (opened_.db == nullptr) return NotOpen();
  rocksdb::WriteOptions options;
  options.sync = true;
  options.no_slowdown = true;
  const rocksdb::Status status = opened_.db->Write(options, &set.impl().batch);
  if (status.IsIncomplete()) {
    return absl::AbortedError("embedded log: flushes to the disk are behind the writes");
  }
  failed_ = !status.ok();
  if (status.ok()) mark_.Set(opened_.db->GetLatestSequenceNumber());
  return ToStatus("write", status);
}

// What the system has told of a failed write is not to be had again from it: the write-ahead log
// may end anywhere, and what a failed sync has left in memory looks as if it were on the disk. So
// the files are read anew, once they can be written at all; until then the database stays open for
// readers.
absl::Status RocksDatabase::Recover() {
  {
    absl::ReaderMutexLock lock(&mutex_);
    if (opened_.db != nullptr && !failed_) return absl::OkStatus();
  }
  RETURN_IF_ERROR(opener_.TryDisk());
  canceled_ = true;
  absl::MutexLock lock(&mutex_);
  opened_.Close();
  const absl::Status opened = opener_.OpenAgain(opened_);
  canceled_ = stopped_.load();
  return opened;
}

absl::Status RocksDatabase::CatchUp() {
  uint64_t sequence = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (opened_.db == nullptr) return NotOpen();
    // It reads the list of tables first, then what write-ahead logs there are: one that goes in
    // between, for its records have come to a table, is in neither.
    int looks = 0;
    for (std::set<std::string> before = Wals(), after; looks < kLooksMax; before = after, ++looks) {
      const rocksdb::Status status = opened_.db->TryCatchUpWithPrimary();
      if (!status.ok()) {
        return absl::UnavailableError(absl::StrCat("embedded log: catch up: ", status.ToString()));
      }
      after = Wals();
      if (std::includes(after.begin(), after.end(), before.begin(), before.end())) break;
    }
    if (looks == kLooksMax) {
      return absl::UnavailableError("embedded log: its files come and go too fast");
    }
    sequence = opened_.db->GetLatestSequenceNumber();
  }
  RETURN_IF_ERROR(AwaitAcknowledged(sequence));
  // Else it may show a write that failed, whose numbers others have now.
  if (ReadCurrent() == opened_current_) return absl::OkStatus();
  return absl::UnavailableError("embedded log: the service has opened the database anew");
}

std::set<std::string> RocksDatabase::Wals() const {
  std::vector<std::string> names;
  env().GetChildren(directory_->database(), &names).PermitUncheckedError();
  std::erase_if(names, [](const std::string& name) { return !absl::EndsWith(name, ".log"); });
  return {names.begin(), names.end()};
}

std::string RocksDatabase::ReadCurrent() const {
  std::string name;
  rocksdb::ReadFileToString(&env(), directory_->database() + "/CURRENT", &name)
      .PermitUncheckedError();
  return name;
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

// So that the next start has less to read. What the disk does not take in time is in the
// write-ahead log.
void RocksDatabase::FlushAtEnd() {
  if (opened_.db == nullptr || failed_) return;
  rocksdb::FlushOptions options;
  options.wait = false;
  if (!opened_.db->Flush(options, opened_.families).ok()) return;
  const auto end = std::chrono::steady_clock::now() + kFlushWait;
  uint64_t left = 1;
  while (left > 0 && std::chrono::steady_clock::now() < end) {
    opened_.db->GetAggregatedIntProperty(rocksdb::DB::Properties::kNumImmutableMemTable, &left);
    if (left > 0) absl::SleepFor(kFlushLook);
  }
}

absl::Status RocksDatabase::ForEachEntry(
    absl::string_view prefix, absl::FunctionRef<void(absl::string_view, absl::string_view)> visit) {
  absl::ReaderMutexLock lock(&mutex_);
  if (opened_.db == nullptr) return NotOpen();
  const std::unique_ptr<rocksdb::Iterator> entry(
      opened_.db->NewIterator(rocksdb::ReadOptions(), opened_.families[kEntries]));
  std::string last;
  for (entry->Seek(ToSlice(prefix)); entry->Valid(); entry->Next()) {
    const absl::string_view key = ToView(entry->key());
    if (key.substr(0, prefix.size()) != prefix) break;
    last = std::string(key);
    visit(key, ToView(entry->value()));
  }
  if (!entry->status().IsCorruption()) return ToStatus("read entries", entry->status());
  const absl::StatusOr<Entries> copy = ReadEntryCopy(env(), directory_->entries());
  if (!copy.ok()) return ToStatus("read entries", entry->status());
  teller_.Tell(absl::StrCat("entries cannot be read and come from their copy: ",
                            entry->status().ToString()));
  for (const auto& [key, value] : *copy) {
    if (key > last && absl::StartsWith(key, prefix)) visit(key, value);
  }
  return absl::OkStatus();
}

absl::Status RocksDatabase::CopyEntries() {
  // Also while they are read: the last to write has read last.
  absl::MutexLock lock(&copy_mutex_);
  Entries entries;
  RETURN_IF_ERROR(ForEachEntry("", [&entries](absl::string_view key, absl::string_view value) {
    entries[std::string(key)] = std::string(value);
  }));
  return WriteEntryCopy(env(), directory_->entries(), entries);
}

absl::StatusOr<uint32_t> RocksDatabase::LastTopicNumber() {
  absl::ReaderMutexLock lock(&mutex_);
  if (opened_.db == nullptr) return NotOpen();
  const std::unique_ptr<rocksdb::Iterator> last(
      opened_.db->NewIterator(rocksdb::ReadOptions(), opened_.families[kRuns]));
  last->SeekToLast();
  // What cannot be read tells nothing; the entry that counts topics mostly does.
  return last->Valid() ? PartitionOf(ToView(last->key())).topic : 0;
}

absl::StatusOr<absl::optional<RunPlace>> RocksDatabase::LastRun(PartitionId id) {
  absl::ReaderMutexLock lock(&mutex_);
  if (opened_.db == nullptr) return NotOpen();
  return RunFinder(*opened_.db, opened_.families[kRuns], id, teller_).FindLast();
}

absl::StatusOr<absl::optional<RunPlace>> RocksDatabase::RunAt(PartitionId id, int64_t offset,
                                                              int64_t until) {
  absl::ReaderMutexLock lock(&mutex_);
  if (opened_.db == nullptr) return NotOpen();
  RunPlace run;
  if (!RunFinder(*opened_.db, opened_.families[kRuns], id, teller_).FindAt(offset, until, &run)) {
    return absl::optional<RunPlace>();
  }
  return absl::optional<RunPlace>(run);
}

absl::StatusOr<std::vector<RunPtr>> RocksDatabase::ReadRuns(PartitionId id, int64_t from,
                                                            int64_t until, size_t bytes_max) {
  absl::ReaderMutexLock lock(&mutex_);
  if (opened_.db == nullptr) return NotOpen();
  RunFinder finder(*opened_.db, opened_.families[kRuns], id, teller_);
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
  if (opened_.db == nullptr) return NotOpen();
  RunFinder finder(*opened_.db, opened_.families[kRuns], id, teller_);
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
  if (opened_.db == nullptr || canceled_) return;
  const std::string first = RunKey(id, from);
  const std::string last = RunKey(id, to);
  const Slice begin(first);
  const Slice end(last);
  rocksdb::DeleteFilesInRange(opened_.db.get(), opened_.families[kRuns], &begin, &end, false)
      .PermitUncheckedError();
  rocksdb::CompactRangeOptions options;
  options.exclusive_manual_compaction = false;
  options.canceled = &canceled_;
  opened_.db->CompactRange(options, opened_.families[kRuns], &begin, &end).PermitUncheckedError();
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
