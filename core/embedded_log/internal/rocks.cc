#include "core/embedded_log/internal/rocks.h"

#include <rocksdb/flush_block_policy.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/embedded_log/internal/run_key.h"

namespace postrider::embedded_log_internal {
namespace {

using rocksdb::Slice;

constexpr size_t kMemtableBytesMax = 32 << 20;
constexpr size_t kMemtableBytesMin = 1 << 20;
constexpr uint64_t kWalBytesMax = 128 << 20;
constexpr size_t kBlockBytes = 16 << 10;
constexpr int kOpenFilesMax = 256;

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

}  // namespace

absl::Status ToStatus(absl::string_view what, const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat("embedded log: ", what, ": ", status.ToString());
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(text);
  if (status.IsCorruption() || status.IsPathNotFound() || status.IsInvalidArgument()) {
    return absl::DataLossError(text);
  }
  return absl::UnavailableError(text);
}

rocksdb::Options MakeOptions(const RocksSettings& settings) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = settings.cache;
  table.block_size = kBlockBytes;
  table.cache_index_and_filter_blocks = true;
  // With the first key of each block, so that no partition's reader opens a block of the next
  // partition, which may be damaged.
  table.index_type = rocksdb::BlockBasedTableOptions::kBinarySearchWithFirstKey;
  table.index_shortening = rocksdb::BlockBasedTableOptions::IndexShorteningMode::kNoShortening;
  table.flush_block_policy_factory = std::make_shared<BlockPerPartitionFactory>();
  rocksdb::Options options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  if (settings.env != nullptr) options.env = settings.env;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  // A damaged table costs its records, not the whole log: it neither keeps the others from being
  // opened nor stops writes when a compaction meets it.
  options.paranoid_checks = false;
  // A database that was put together anew from its tables may have what one table was made of
  // beside that table.
  options.force_consistency_checks = false;
  options.write_buffer_manager = settings.memtables;
  options.write_buffer_size =
      std::clamp(settings.memory_bytes / 4, kMemtableBytesMin, kMemtableBytesMax);
  options.max_write_buffer_number = 4;
  options.max_background_jobs = std::clamp(settings.background_threads, 1, 16) + 1;
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

}  // namespace postrider::embedded_log_internal
