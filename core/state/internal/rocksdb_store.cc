#include "core/state/rocksdb_store.h"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/iterator.h>
#include <rocksdb/options.h>
#include <rocksdb/perf_context.h>
#include <rocksdb/slice.h>
#include <rocksdb/status.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/thread_name.h"
#include "core/state/internal/full_disk_file_system.h"
#include "core/state/internal/state_directory.h"

namespace postrider {
namespace {

// How many bytes are written between two looks at the size of the store.
constexpr uint64_t kSizeCheckBytes = 1 << 20;
// A store near its bound is compacted when so large a part of its keys was written since it was
// last; and near is what has less than so large a part of it left.
constexpr uint64_t kCompactionPart = 8;
constexpr uint64_t kNearPart = 8;
constexpr size_t kMemtableBytes = 16 << 20;
constexpr double kMemtableBloomPart = 0.005;
// Most of what is parked is removed before long: compactions wait for that.
constexpr int kFilesToCompact = 8;
// Small, for each store has at least one from its first write on.
constexpr size_t kArenaBlockBytes = 256 << 10;
constexpr int kOpenFilesMax = 48;
constexpr int kBloomBitsPerKey = 10;

class Shared final : public RocksdbShared {
 public:
  explicit Shared(const RocksdbSharedOptions& options)
      : cache_(rocksdb::NewLRUCache(options.memory_bytes)),
        memtables_(
            std::make_shared<rocksdb::WriteBufferManager>(options.memory_bytes / 2, cache_)) {
    const int threads = std::clamp(options.background_threads, 1, 16);
    env_->SetBackgroundThreads(threads, rocksdb::Env::Priority::LOW);
    env_->SetBackgroundThreads(1, rocksdb::Env::Priority::HIGH);

    rocksdb::BlockBasedTableOptions table;
    table.block_cache = cache_;
    table.cache_index_and_filter_blocks = true;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kBloomBitsPerKey, false));
    // In pieces: as one block the index of a large file is larger than what a part of the cache has
    // free, and would be read and decompressed for each look-up.
    table.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
    table.partition_filters = true;
    options_.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    options_.env = env_.get();
    options_.create_if_missing = true;
    options_.error_if_exists = true;
    options_.write_buffer_manager = memtables_;
    options_.write_buffer_size = kMemtableBytes;
    // Most look-ups are of keys that are not there: whether an identity was put before.
    options_.memtable_prefix_bloom_size_ratio = kMemtableBloomPart;
    options_.memtable_whole_key_filtering = true;
    options_.arena_block_size = kArenaBlockBytes;
    options_.max_write_buffer_number = 4;
    options_.max_background_jobs = threads + 1;
    options_.max_open_files = kOpenFilesMax;
    options_.compression = rocksdb::kLZ4Compression;
    options_.level_compaction_dynamic_level_bytes = true;
    options_.level0_file_num_compaction_trigger = kFilesToCompact;
    // Compactions that fall behind cost reads and disk, which have bounds of their own; they never
    // hold up a write.
    options_.level0_slowdown_writes_trigger = 200;
    options_.level0_stop_writes_trigger = 400;
    options_.soft_pending_compaction_bytes_limit = 0;
    options_.hard_pending_compaction_bytes_limit = 0;
    options_.avoid_flush_during_shutdown = true;
    options_.info_log_level = rocksdb::InfoLogLevel::FATAL_LEVEL;
    options_.keep_log_file_num = 1;
    options_.stats_dump_period_sec = 0;
    options_.stats_persist_period_sec = 0;
  }

  uint64_t memory_bytes() const override { return cache_->GetUsage(); }
  void SetDiskTight(bool tight) override { disk_tight_ = tight ? ++tight_looks_ : 0; }
  // Another number for each look at the disk that found it tight; 0: it is not.
  uint64_t disk_tight() const { return disk_tight_; }
  const rocksdb::Options& options() const { return options_; }
  // Whether a store is being compacted as a whole.
  std::atomic<bool>& compacting() { return compacting_; }
  // Memtables have taken the blocks' half too: flushes cannot follow the writes.
  bool flushes_behind() const {
    return memtables_->memory_usage() >= 2 * memtables_->buffer_size();
  }

 private:
  const std::unique_ptr<rocksdb::Env> env_ = internal::MakeFullDiskEnv();
  const std::shared_ptr<rocksdb::Cache> cache_;
  const std::shared_ptr<rocksdb::WriteBufferManager> memtables_;
  rocksdb::Options options_;
  std::atomic<bool> compacting_{false};
  std::atomic<uint64_t> tight_looks_{0};
  std::atomic<uint64_t> disk_tight_{0};
};

rocksdb::Slice ToSlice(absl::string_view text) { return rocksdb::Slice(text.data(), text.size()); }
absl::string_view ToView(const rocksdb::Slice& slice) {
  return absl::string_view(slice.data(), slice.size());
}

absl::Status ToStatus(absl::string_view what, const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat("state: ", what, ": ", status.ToString());
  // Incomplete: the write would have had to wait for a flush.
  if (status.IsIncomplete() || status.IsNoSpace() || status.IsBusy() || status.IsTryAgain()) {
    return absl::ResourceExhaustedError(text);
  }
  return absl::DataLossError(text);
}

// Compacts a store as a whole, on a thread of its own: what was deleted or replaced takes its room
// on the disk until that was done, and a few small deletes of large values would never make RocksDB
// do it. One at a time in the process; the work itself is done by the process's few threads.
//
// Threads: of its store.
class WholeCompaction {
 public:
  // `running` is of all stores.
  explicit WholeCompaction(std::atomic<bool>& running) : running_(running) {}
  ~WholeCompaction() { POSTRIDER_CHECK(!thread_.joinable()); }

  // False: one is running.
  [[nodiscard]] bool Begin(rocksdb::DB& db) {
    if (running_.exchange(true)) return false;
    if (thread_.joinable()) thread_.join();  // it has ended
    running_here_ = true;
    thread_ = std::thread([this, &db] {
      NameThread("state-compact");
      rocksdb::CompactRangeOptions options;
      options.exclusive_manual_compaction = false;
      options.allow_write_stall = true;
      options.canceled = &canceled_;
      // What goes wrong shows where the store is written next.
      db.CompactRange(options, nullptr, nullptr).PermitUncheckedError();
      running_here_ = false;
      running_ = false;
    });
    return true;
  }
  // Of this store.
  bool runs() const { return running_here_; }
  // Gives up what runs. Before the database is closed, which takes no write afterwards.
  void Stop(rocksdb::DB& db) {
    if (!thread_.joinable()) return;
    canceled_ = true;
    rocksdb::CancelAllBackgroundWork(&db, false);
    thread_.join();
    canceled_ = false;
  }

 private:
  std::atomic<bool>& running_;
  std::atomic<bool> running_here_{false};
  std::atomic<bool> canceled_{false};
  std::thread thread_;
};

class RocksdbStore final : public StateStore {
 public:
  RocksdbStore(Shared& shared, const RocksdbStoreOptions& options,
               std::unique_ptr<internal::StateDirectory> directory)
      : shared_(shared),
        options_(options),
        directory_(std::move(directory)),
        compaction_(shared.compacting()) {
    write_options_.disableWAL = true;
    write_options_.no_slowdown = true;
  }
  ~RocksdbStore() override {
    Close();
    // The next owner wipes it too: this only gives the space back earlier.
    directory_->Wipe().IgnoreError();
  }

  absl::Status Open() {
    RETURN_IF_ERROR(directory_->Wipe());
    rocksdb::DB* db = nullptr;
    const rocksdb::Status opened =
        rocksdb::DB::Open(shared_.options(), directory_->database(), &db);
    if (!opened.ok()) {
      const std::string text = absl::StrCat("state: open: ", opened.ToString());
      return opened.IsNoSpace() ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
    }
    db_.reset(db);
    return absl::OkStatus();
  }

  absl::Status Apply(const StateBatch& batch) override {
    if (db_ == nullptr) return Closed();
    if (full_ && batch.put_bytes() > 0) {
      LookAtSize();
      if (full_) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "state: the RocksDB store is at its bound of ", options_.bytes_max, " bytes"));
      }
    }
    if (shared_.flushes_behind()) {
      return absl::ResourceExhaustedError("state: flushes to the disk are behind the writes");
    }
    rocksdb::Status status = Fill(batch);
    if (status.ok()) status = db_->Write(write_options_, &write_batch_);
    if (!status.ok()) return ToStatus("write", status);
    written_since_look_ += batch.bytes();
    written_since_compaction_ += batch.size();
    if (written_since_look_ >= std::min(kSizeCheckBytes, options_.bytes_max / 4) ||
        shared_.disk_tight() != disk_tight_) {
      LookAtSize();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Get(absl::string_view key, std::string& value) const override {
    if (db_ == nullptr) return Closed();
    rocksdb::PinnableSlice found;
    const rocksdb::Status status =
        db_->Get(read_options_, db_->DefaultColumnFamily(), ToSlice(key), &found);
    if (status.IsNotFound()) return false;
    if (!status.ok()) return ToReadStatus("get", status);
    value.assign(found.data(), found.size());
    return true;
  }

  absl::StatusOr<ScanEnd> Scan(StateRange& range, absl::string_view from, const ScanLimits& limits,
                               Visitor visit) const override {
    if (db_ == nullptr) return Closed();
    const bool from_head = from <= range.head();
    const std::string start(from_head ? range.head() : from);
    const std::string range_end(range.end());
    const rocksdb::Slice lower(start);
    const rocksdb::Slice upper(range_end);
    rocksdb::ReadOptions options = read_options_;
    options.iterate_lower_bound = &lower;
    options.iterate_upper_bound = &upper;
    options.fill_cache = false;  // what is read once would displace what is looked up
    const uint64_t skipped_before = rocksdb::get_perf_context()->internal_delete_skipped_count;
    const std::unique_ptr<rocksdb::Iterator> entry(db_->NewIterator(options));
    ScanEnd end = ScanEnd::kRangeEnd;
    size_t keys = 0;
    size_t bytes = 0;
    for (entry->Seek(lower); entry->Valid(); entry->Next()) {
      if (keys == 0 && from_head) range.MoveHead(ToView(entry->key()));
      const size_t entry_bytes = entry->key().size() + entry->value().size();
      if (keys >= limits.keys_max || (keys > 0 && bytes + entry_bytes > limits.bytes_max)) {
        end = ScanEnd::kLimit;
        break;
      }
      ++keys;
      bytes += entry_bytes;
      if (!visit(ToView(entry->key()), ToView(entry->value()))) {
        end = ScanEnd::kLimit;
        break;
      }
    }
    tombstones_skipped_ +=
        rocksdb::get_perf_context()->internal_delete_skipped_count - skipped_before;
    if (!entry->status().ok()) return ToReadStatus("scan", entry->status());
    return end;
  }

  absl::Status Clear() override {
    Close();
    absl::Status opened = Open();
    if (opened.ok()) return opened;
    return absl::DataLossError(opened.message());
  }

  StoreFigures figures() const override {
    StoreFigures figures;
    figures.tombstones_skipped = tombstones_skipped_;
    if (db_ == nullptr) return figures;
    figures.memory_bytes = Property(rocksdb::DB::Properties::kSizeAllMemTables);
    figures.disk_bytes = Property(rocksdb::DB::Properties::kTotalSstFilesSize);
    figures.keys = Property(rocksdb::DB::Properties::kEstimateNumKeys);
    figures.may_shrink = (compaction_.runs() && compacting_deletes_) || DeletesAreDue(figures.keys);
    return figures;
  }

 private:
  static absl::Status Closed() { return absl::DataLossError("state: the store is closed"); }
  // A read never says that something is full.
  static absl::Status ToReadStatus(absl::string_view what, const rocksdb::Status& status) {
    return absl::DataLossError(absl::StrCat("state: ", what, ": ", status.ToString()));
  }
  void Close() {
    if (db_ != nullptr) compaction_.Stop(*db_);
    db_.reset();
    full_ = false;
    written_since_look_ = 0;
    written_since_compaction_ = 0;
    deleted_since_compaction_ = 0;
    prefix_deleted_ = false;
  }
  // In the order of the keys: where the memtable has taken one it finds the next one's place at
  // little cost, and keys that are written together often lie together.
  rocksdb::Status Fill(const StateBatch& batch) {
    write_batch_.Clear();
    writes_.clear();
    bool any_order = true;
    batch.ForEach([&](StateBatch::Kind kind, absl::string_view key, absl::string_view value) {
      if (kind == StateBatch::Kind::kDeletePrefix) any_order = false;
      writes_.push_back(Write{kind, key, value});
    });
    if (any_order) {
      std::stable_sort(writes_.begin(), writes_.end(),
                       [](const Write& a, const Write& b) { return a.key < b.key; });
    }
    for (const Write& write : writes_) {
      rocksdb::Status status;
      switch (write.kind) {
        case StateBatch::Kind::kPut:
          status = write_batch_.Put(ToSlice(write.key), ToSlice(write.value));
          break;
        case StateBatch::Kind::kDelete:
          status = write_batch_.Delete(ToSlice(write.key));
          ++deleted_since_compaction_;
          break;
        case StateBatch::Kind::kDeletePrefix: {
          const std::string end = PrefixEnd(write.key);
          POSTRIDER_CHECK(!end.empty());
          status = write_batch_.DeleteRange(ToSlice(write.key), rocksdb::Slice(end));
          prefix_deleted_ = true;
          break;
        }
      }
      if (!status.ok()) return status;
    }
    return rocksdb::Status::OK();
  }
  uint64_t Property(const std::string& name) const {
    uint64_t value = 0;
    return db_->GetIntProperty(name, &value) ? value : 0;
  }
  void LookAtSize() {
    written_since_look_ = 0;
    const uint64_t size = Property(rocksdb::DB::Properties::kCurSizeAllMemTables) +
                          Property(rocksdb::DB::Properties::kLiveSstFilesSize);
    full_ = size >= options_.bytes_max;
    const bool near = size >= options_.bytes_max - options_.bytes_max / kNearPart;
    disk_tight_ = shared_.disk_tight();
    if (near || disk_tight_ != 0) Compact();
  }

  // Near the bound: much of what counts may have been deleted, or written over.
  bool CompactionIsDue(uint64_t keys) const {
    return prefix_deleted_ || written_since_compaction_ > keys / kCompactionPart;
  }
  // What is only put may all live: a store that only grows gives nothing back.
  bool DeletesAreDue(uint64_t keys) const {
    return prefix_deleted_ || deleted_since_compaction_ > keys / kCompactionPart;
  }
  void Compact() {
    const uint64_t keys = Property(rocksdb::DB::Properties::kEstimateNumKeys);
    if (!CompactionIsDue(keys)) return;
    if (!compaction_.Begin(*db_)) return;
    compacting_deletes_ = DeletesAreDue(keys);
    written_since_compaction_ = 0;
    deleted_since_compaction_ = 0;
    prefix_deleted_ = false;
  }

  Shared& shared_;
  const RocksdbStoreOptions options_;
  const std::unique_ptr<internal::StateDirectory> directory_;
  std::unique_ptr<rocksdb::DB> db_;
  WholeCompaction compaction_;
  rocksdb::WriteOptions write_options_;
  rocksdb::ReadOptions read_options_;
  rocksdb::WriteBatch write_batch_;
  struct Write {
    StateBatch::Kind kind;
    absl::string_view key;
    absl::string_view value;
  };
  std::vector<Write> writes_;  // of one Apply()
  uint64_t written_since_look_ = 0;
  uint64_t written_since_compaction_ = 0;  // keys
  uint64_t deleted_since_compaction_ = 0;  // of them
  bool compacting_deletes_ = false;        // the compaction that was begun last
  uint64_t disk_tight_ = 0;                // as it was at the last look
  bool prefix_deleted_ = false;
  bool full_ = false;
  mutable uint64_t tombstones_skipped_ = 0;
};

}  // namespace

std::unique_ptr<RocksdbShared> RocksdbShared::Create(const RocksdbSharedOptions& options) {
  return std::make_unique<Shared>(options);
}

absl::StatusOr<std::unique_ptr<StateStore>> OpenRocksdbStore(RocksdbShared& shared,
                                                             const RocksdbStoreOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<internal::StateDirectory> directory,
                   internal::StateDirectory::Acquire(options.directory));
  auto store =
      std::make_unique<RocksdbStore>(static_cast<Shared&>(shared), options, std::move(directory));
  RETURN_IF_ERROR(store->Open());
  return std::unique_ptr<StateStore>(std::move(store));
}

}  // namespace postrider
