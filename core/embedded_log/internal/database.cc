#include "core/embedded_log/internal/database.h"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/flush_block_policy.h>
#include <rocksdb/iterator.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/status.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <atomic>
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
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/embedded_log/internal/log_directory.h"
#include "core/embedded_log/internal/wal_check.h"

namespace postrider::embedded_log_internal {
namespace {

using rocksdb::ColumnFamilyHandle;
using rocksdb::Iterator;
using rocksdb::Slice;

constexpr size_t kPartitionKeyBytes = 8;
constexpr size_t kRunKeyBytes = 16;
constexpr size_t kMemtableBytesMax = 32 << 20;
constexpr size_t kMemtableBytesMin = 1 << 20;
constexpr uint64_t kWalBytesMax = 128 << 20;
constexpr size_t kBlockBytes = 16 << 10;
constexpr int kOpenFilesMax = 256;
// No run has more records.
constexpr int64_t kLookBackMax = 1 << 20;
constexpr absl::Duration kFlushWait = absl::Seconds(5);
constexpr absl::Duration kFlushLook = absl::Milliseconds(2);
// Room for what a start writes at least.
constexpr char kProbeName[] = "probe.tmp";
constexpr size_t kProbeBlockBytes = 1 << 20;
constexpr size_t kProbeBlocks = 8;
// So many places of damage are remembered, so that each is told of once.
constexpr size_t kDamageMax = 10'000;

enum Family : uint32_t { kEntries = 0, kRuns = 1 };
constexpr char kRunsName[] = "runs";

Slice ToSlice(absl::string_view text) { return Slice(text.data(), text.size()); }
absl::string_view ToView(const Slice& slice) {
  return absl::string_view(slice.data(), slice.size());
}

absl::Status ToStatus(absl::string_view what, const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat("embedded log: ", what, ": ", status.ToString());
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(text);
  if (status.IsCorruption() || status.IsPathNotFound() || status.IsInvalidArgument()) {
    return absl::DataLossError(text);
  }
  return absl::UnavailableError(text);
}

// Ends a block where the partition changes, besides where it is large enough.
class BlockPerPartition final : public rocksdb::FlushBlockPolicy {
 public:
  bool Update(const Slice& key, const Slice& value) override {
    const Slice partition(key.data(), std::min(key.size(), kPartitionKeyBytes));
    const bool ends = bytes_ > 0 && (bytes_ >= kBlockBytes || partition != Slice(partition_));
    if (ends) bytes_ = 0;
    bytes_ += key.size() + value.size();
    partition_.assign(partition.data(), partition.size());
    return ends;
  }

 private:
  size_t bytes_ = 0;
  std::string partition_;
};

class BlockPerPartitionFactory final : public rocksdb::FlushBlockPolicyFactory {
 public:
  const char* Name() const override { return "PostriderBlockPerPartition"; }
  rocksdb::FlushBlockPolicy* NewFlushBlockPolicy(const rocksdb::BlockBasedTableOptions&,
                                                 const rocksdb::BlockBuilder&) const override {
    return new BlockPerPartition();  // RocksDB's interface: it takes it
  }
};

void PutBigEndian(std::string& out, uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
}

std::string PartitionKey(PartitionId id) {
  std::string key;
  key.reserve(kRunKeyBytes);
  PutBigEndian(key, id.topic, 4);
  PutBigEndian(key, id.partition, 4);
  return key;
}

int64_t BaseOf(const Slice& key) {
  uint64_t base = 0;
  for (size_t i = kPartitionKeyBytes; i < kRunKeyBytes; ++i) {
    base = base << 8 | static_cast<uint8_t>(key.data()[i]);
  }
  return static_cast<int64_t>(base);
}

// The first key behind those of a partition.
std::string PartitionEndKey(PartitionId id) {
  std::string key = PartitionKey(id);
  key.append(8, '\xff');
  return key;
}

}  // namespace

std::string RunKey(PartitionId id, int64_t base) {
  std::string key = PartitionKey(id);
  PutBigEndian(key, static_cast<uint64_t>(base), 8);
  return key;
}

// The families' handles are of the database, which a WriteSet does not know: the changes are kept
// by the numbers that families have in it.
struct WriteSet::Impl {
  struct Handle final : public ColumnFamilyHandle {
    explicit Handle(uint32_t number) : id(number), name(number == kRuns ? kRunsName : "default") {}
    const std::string& GetName() const override { return name; }
    uint32_t GetID() const override { return id; }
    rocksdb::Status GetDescriptor(rocksdb::ColumnFamilyDescriptor*) override {
      return rocksdb::Status::NotSupported();
    }
    const rocksdb::Comparator* GetComparator() const override {
      return rocksdb::BytewiseComparator();
    }
    const uint32_t id;
    const std::string name;
  };
  rocksdb::WriteBatch batch;
  Handle runs{kRuns};
};

WriteSet::WriteSet() : impl_(std::make_unique<Impl>()) {}
WriteSet::~WriteSet() = default;
void WriteSet::PutRun(PartitionId id, const Run& run) {
  impl_->batch.Put(&impl_->runs, RunKey(id, run.base), run.bytes).PermitUncheckedError();
}
void WriteSet::DeleteRun(PartitionId id, int64_t base) {
  impl_->batch.Delete(&impl_->runs, RunKey(id, base)).PermitUncheckedError();
}
void WriteSet::DeleteRuns(PartitionId id, int64_t from, int64_t to) {
  if (from >= to) return;
  impl_->batch.DeleteRange(&impl_->runs, RunKey(id, from), RunKey(id, to)).PermitUncheckedError();
}
void WriteSet::DeletePartition(PartitionId id) {
  impl_->batch.DeleteRange(&impl_->runs, PartitionKey(id), PartitionEndKey(id))
      .PermitUncheckedError();
}
void WriteSet::PutEntry(absl::string_view key, absl::string_view value) {
  impl_->batch.Put(ToSlice(key), ToSlice(value)).PermitUncheckedError();
}
void WriteSet::DeleteEntry(absl::string_view key) {
  impl_->batch.Delete(ToSlice(key)).PermitUncheckedError();
}
void WriteSet::Clear() { impl_->batch.Clear(); }
bool WriteSet::empty() const { return impl_->batch.Count() == 0; }
size_t WriteSet::bytes() const { return impl_->batch.GetDataSize(); }

namespace {

class RocksDatabase final : public Database {
 public:
  RocksDatabase(const DatabaseOptions& options, std::unique_ptr<LogDirectory> directory)
      : options_(options),
        directory_(std::move(directory)),
        cache_(rocksdb::NewLRUCache(options.memory_bytes)),
        memtables_(
            std::make_shared<rocksdb::WriteBufferManager>(options.memory_bytes / 2, cache_)) {}
  ~RocksDatabase() override {
    absl::MutexLock lock(&mutex_);
    FlushAtEnd();
    CloseDb();
  }

  absl::Status Start() {
    for (const WalDamage& damage : CheckWals(directory_->database())) Tell(damage.text);
    absl::MutexLock lock(&mutex_);
    if (LacksCurrent()) {
      return Repair(absl::DataLossError("embedded log: the database's file CURRENT is missing"));
    }
    absl::Status opened = OpenDb();
    if (absl::IsDataLoss(opened)) opened = Repair(opened);
    return opened.ok() ? PutDamagedTablesAside() : opened;
  }

  absl::Status Write(WriteSet& set) override;
  absl::Status Recover() override;
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
  uint64_t memory_bytes() const override { return cache_->GetUsage(); }

 private:
  // Where a reading iterator stands.
  struct Place {
    std::string lower;
    std::string upper;
    Slice lower_slice;
    Slice upper_slice;
    std::unique_ptr<Iterator> entry;
  };

  rocksdb::Options MakeOptions() const;
  absl::Status OpenDb() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PutDamagedTablesAside() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Repair(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
    POSTRIDER_LOG(kError, "the embedded log is damaged", {"what", what});
    if (options_.on_damage) options_.on_damage(what);
  }

  std::unique_ptr<Place> Look(PartitionId id) ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void Renew(Place& place) ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  static bool Take(const Place& place, RunPlace* run);
  bool SeekFrom(PartitionId id, Place& place, int64_t from, int64_t until, RunPlace* run)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool FindFromBefore(PartitionId id, Place& place, int64_t offset, RunPlace* run)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool Find(PartitionId id, Place& place, int64_t offset, int64_t until, RunPlace* run)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const DatabaseOptions options_;
  const std::unique_ptr<LogDirectory> directory_;
  const std::shared_ptr<rocksdb::Cache> cache_;
  const std::shared_ptr<rocksdb::WriteBufferManager> memtables_;
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

rocksdb::Options RocksDatabase::MakeOptions() const {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache_;
  table.block_size = kBlockBytes;
  table.cache_index_and_filter_blocks = true;
  // With the first key of each block, so that no partition's reader opens a block of the next
  // partition, which may be damaged.
  table.index_type = rocksdb::BlockBasedTableOptions::kBinarySearchWithFirstKey;
  table.index_shortening = rocksdb::BlockBasedTableOptions::IndexShorteningMode::kNoShortening;
  table.flush_block_policy_factory = std::make_shared<BlockPerPartitionFactory>();
  rocksdb::Options options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  if (options_.env != nullptr) options.env = options_.env;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  // A damaged table costs its records, not the whole log: it neither keeps the others from being
  // opened nor stops writes when a compaction meets it.
  options.paranoid_checks = false;
  options.write_buffer_manager = memtables_;
  options.write_buffer_size =
      std::clamp(options_.memory_bytes / 4, kMemtableBytesMin, kMemtableBytesMax);
  options.max_write_buffer_number = 4;
  options.max_background_jobs = std::clamp(options_.background_threads, 1, 16) + 1;
  options.max_total_wal_size = kWalBytesMax;
  options.max_open_files = kOpenFilesMax;
  options.compression = rocksdb::kLZ4Compression;
  options.level_compaction_dynamic_level_bytes = true;
  // Compactions that fall behind cost reads and disk; they never hold up a write.
  options.level0_slowdown_writes_trigger = 200;
  options.level0_stop_writes_trigger = 400;
  options.soft_pending_compaction_bytes_limit = 0;
  options.hard_pending_compaction_bytes_limit = 0;
  // What is behind a damaged place is served too; CheckWals() has told what was damaged.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
  options.avoid_flush_during_shutdown = true;
  options.info_log_level = rocksdb::InfoLogLevel::FATAL_LEVEL;
  options.keep_log_file_num = 1;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

absl::Status RocksDatabase::OpenDb() {
  const rocksdb::Options options = MakeOptions();
  const std::vector<rocksdb::ColumnFamilyDescriptor> descriptors = {
      {rocksdb::kDefaultColumnFamilyName, options}, {kRunsName, options}};
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened =
      rocksdb::DB::Open(options, directory_->database(), descriptors, &families_, &db);
  if (!opened.ok()) return ToStatus(absl::StrCat("open ", directory_->database()), opened);
  db_.reset(db);
  if (families_.size() == 2 && families_[kRuns]->GetID() == kRuns) return absl::OkStatus();
  CloseDb();
  return absl::DataLossError("embedded log: the database is no log of ours");
}

// A table whose index cannot be read would make all that lies in its range unreadable, in other
// tables too.
absl::Status RocksDatabase::PutDamagedTablesAside() {
  std::vector<rocksdb::LiveFileMetaData> files;
  db_->GetLiveFilesMetaData(&files);
  std::vector<std::string> damaged;
  for (const rocksdb::LiveFileMetaData& file : files) {
    rocksdb::SstFileReader reader(MakeOptions());
    const rocksdb::Status opened = reader.Open(file.db_path + file.name);
    if (opened.ok()) continue;
    if (file.column_family_name != kRunsName) {
      return absl::DataLossError(
          absl::StrCat("embedded log: the table ", file.name,
                       ", which tells of topics and groups, is damaged: ", opened.ToString()));
    }
    damaged.push_back(file.name);
  }
  if (damaged.empty()) return absl::OkStatus();
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
  const rocksdb::Options options = MakeOptions();
  const rocksdb::Status repaired =
      rocksdb::RepairDB(directory_->database(), options,
                        {{rocksdb::kDefaultColumnFamilyName, options}, {kRunsName, options}});
  if (!repaired.ok()) return ToStatus("repair", repaired);
  return OpenDb();
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
  const absl::Status opened = OpenDb();
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
  const absl::Time end = absl::Now() + kFlushWait;
  uint64_t left = 1;
  while (left > 0 && absl::Now() < end) {
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
  const std::unique_ptr<Iterator> entry(
      db_->NewIterator(rocksdb::ReadOptions(), families_[kEntries]));
  for (entry->Seek(ToSlice(prefix)); entry->Valid(); entry->Next()) {
    const absl::string_view key = ToView(entry->key());
    if (key.substr(0, prefix.size()) != prefix) break;
    visit(key, ToView(entry->value()));
  }
  return ToStatus("read entries", entry->status());
}

std::unique_ptr<RocksDatabase::Place> RocksDatabase::Look(PartitionId id) {
  auto place = std::make_unique<Place>();
  place->lower = PartitionKey(id);
  place->upper = PartitionEndKey(id);
  place->lower_slice = place->lower;
  place->upper_slice = place->upper;
  Renew(*place);
  return place;
}

// After a fault too: an iterator of RocksDB 7.8 may go on failing wherever it is set then.
void RocksDatabase::Renew(Place& place) {
  rocksdb::ReadOptions options;
  options.iterate_lower_bound = &place.lower_slice;
  options.iterate_upper_bound = &place.upper_slice;
  options.fill_cache = false;  // what is read once would displace what is looked up
  place.entry.reset(db_->NewIterator(options, families_[kRuns]));
}

// False: it is no run; whoever meets it passes it over.
bool RocksDatabase::Take(const Place& place, RunPlace* run) {
  const absl::optional<RunHeader> header = ReadRunHeader(ToView(place.entry->value()));
  if (!header.has_value()) return false;
  run->base = BaseOf(place.entry->key());
  run->bytes = place.entry->value().size();
  run->header = *header;
  return header->next > run->base;
}

// Stands at the first run whose base is at least `from`, below `until`. Damaged blocks are found
// by trying further and further on, then halving back to where reading goes again.
bool RocksDatabase::SeekFrom(PartitionId id, Place& place, int64_t from, int64_t until,
                             RunPlace* run) {
  if (from >= until) return false;
  int64_t bad = -1;
  int64_t step = 1;
  int64_t at = from;
  const auto seek_fails = [&](int64_t base) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    place.entry->Seek(RunKey(id, base));
    if (place.entry->Valid() || place.entry->status().ok()) return false;
    Renew(place);
    return true;
  };
  while (at < until && seek_fails(at)) {
    bad = at;
    at = at + step;
    step *= 2;
  }
  if (bad < 0 && !place.entry->Valid()) return false;  // the end
  if (bad >= 0) {
    int64_t good = std::min(at, until);
    while (good - bad > 1) {
      const int64_t middle = bad + (good - bad) / 2;
      (seek_fails(middle) ? bad : good) = middle;
    }
    if (good < until) place.entry->Seek(RunKey(id, good));
    Tell(absl::StrCat("topic ", id.topic, " partition ", id.partition, ": records from ", from,
                      " to ",
                      good < until && place.entry->Valid() ? BaseOf(place.entry->key()) : until,
                      " cannot be read"));
    if (good >= until) return false;
  }
  while (place.entry->Valid() && BaseOf(place.entry->key()) < until) {
    if (Take(place, run)) return true;
    const int64_t base = BaseOf(place.entry->key());
    Tell(absl::StrCat("topic ", id.topic, " partition ", id.partition, ": the run at ", base,
                      " cannot be read"));
    return SeekFrom(id, place, base + 1, until, run);
  }
  return false;
}

// Looking back meets damage of what lies before, even of another partition: looks from further and
// further before `offset` on for the run that it lies in.
bool RocksDatabase::FindFromBefore(PartitionId id, Place& place, int64_t offset, RunPlace* run) {
  for (int64_t step = 1;; step *= 2) {
    Renew(place);
    Iterator& entry = *place.entry;
    const int64_t at = std::max<int64_t>(0, offset - step);
    for (entry.Seek(RunKey(id, at)); entry.Valid() && BaseOf(entry.key()) <= offset; entry.Next()) {
      if (Take(place, run) && run->header.next > offset) return true;
    }
    if (at == 0 || (entry.Valid() && step > kLookBackMax)) return false;
  }
}

// Stands at the first run that ends behind `offset`.
bool RocksDatabase::Find(PartitionId id, Place& place, int64_t offset, int64_t until,
                         RunPlace* run) {
  place.entry->SeekForPrev(RunKey(id, offset));
  if (place.entry->Valid() && Take(place, run) && run->header.next > offset) return true;
  const bool unsure = !place.entry->status().ok();
  if (unsure && FindFromBefore(id, place, offset, run)) return true;
  if (unsure) Renew(place);
  const bool found = SeekFrom(id, place, offset + 1, until, run);
  if (unsure && (!found || run->base > offset)) {
    Tell(absl::StrCat("topic ", id.topic, " partition ", id.partition, ": records from ", offset,
                      " to ", found ? run->base : until, " cannot be read"));
  }
  return found;
}

absl::StatusOr<absl::optional<Database::RunPlace>> RocksDatabase::LastRun(PartitionId id) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr) return NotOpen();
  const std::unique_ptr<Place> place = Look(id);
  RunPlace run;
  for (place->entry->SeekToLast(); place->entry->Valid(); place->entry->Prev()) {
    if (Take(*place, &run)) return absl::optional<RunPlace>(run);
    Tell(absl::StrCat("topic ", id.topic, " partition ", id.partition, ": the run at ",
                      BaseOf(place->entry->key()), " cannot be read"));
  }
  if (place->entry->status().ok()) return absl::optional<RunPlace>();
  // The end is in a damaged place: the last one that can be read before it.
  Renew(*place);
  int64_t from = 0;
  absl::optional<RunPlace> last;
  const int64_t none = int64_t{1} << 62;
  while (SeekFrom(id, *place, from, none, &run)) {
    last = run;
    for (place->entry->Next(); place->entry->Valid(); place->entry->Next()) {
      if (Take(*place, &run)) last = run;
    }
    if (place->entry->status().ok()) break;
    Renew(*place);
    from = last->header.next;
  }
  return last;
}

absl::StatusOr<absl::optional<Database::RunPlace>> RocksDatabase::RunAt(PartitionId id,
                                                                        int64_t offset,
                                                                        int64_t until) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr) return NotOpen();
  const std::unique_ptr<Place> place = Look(id);
  RunPlace run;
  if (!Find(id, *place, offset, until, &run)) return absl::optional<RunPlace>();
  return absl::optional<RunPlace>(run);
}

absl::StatusOr<std::vector<RunPtr>> RocksDatabase::ReadRuns(PartitionId id, int64_t from,
                                                            int64_t until, size_t bytes_max) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr) return NotOpen();
  const std::unique_ptr<Place> place = Look(id);
  std::vector<RunPtr> runs;
  size_t bytes = 0;
  int64_t next = from;
  RunPlace found;
  bool there = Find(id, *place, from, until, &found);
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
    run->bytes.assign(place->entry->value().data(), place->entry->value().size());
    bytes += run->bytes.size();
    next = run->next;
    runs.push_back(std::move(run));
    if (next >= until || bytes >= bytes_max) return runs;
    place->entry->Next();
    if (place->entry->Valid() && BaseOf(place->entry->key()) < until && Take(*place, &found)) {
      continue;
    }
    there = SeekFrom(id, *place, next, until, &found);
  }
}

absl::StatusOr<absl::optional<Database::RunPlace>> RocksDatabase::FirstRunWhere(
    PartitionId id, int64_t begin, int64_t end, absl::FunctionRef<bool(const RunPlace&)> reached) {
  absl::ReaderMutexLock lock(&mutex_);
  if (db_ == nullptr) return NotOpen();
  const std::unique_ptr<Place> place = Look(id);
  absl::optional<RunPlace> first;
  int64_t low = begin;
  int64_t high = end;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    RunPlace run;
    if (!Find(id, *place, middle, high, &run)) {
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
  ASSIGN_OR_RETURN(std::unique_ptr<LogDirectory> directory,
                   LogDirectory::Acquire(options.directory));
  auto database = std::make_unique<RocksDatabase>(options, std::move(directory));
  RETURN_IF_ERROR(database->Start());
  return std::unique_ptr<Database>(std::move(database));
}

}  // namespace postrider::embedded_log_internal
