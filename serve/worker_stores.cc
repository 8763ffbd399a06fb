#include "serve/worker_stores.h"

#include <sys/statvfs.h>

#include <cstddef>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/status_macros.h"
#include "core/state/heap_store.h"
#include "core/state/lazy_store.h"
#include "delivery/memory_budget.h"
#include "serve/data_directory.h"

namespace postrider {

absl::StatusOr<std::unique_ptr<WorkerStores>> WorkerStores::Open(const ProgramOptions& options,
                                                                 const Clock& clock) {
  auto stores = absl::WrapUnique(new WorkerStores(clock));
  if (options.worker.state_store != "rocksdb") return stores;
  std::string path = options.worker.state_directory;
  if (path.empty()) path = absl::StrCat(options.data_dir, "/state");
  absl::StatusOr<std::unique_ptr<ProcessDirectory>> owned =
      ProcessDirectory::Acquire(path, ProcessDirectory::Contents::kWiped);
  if (!owned.ok()) return WithOption("state.directory", owned.status());
  stores->directory_ = *std::move(owned);
  ASSIGN_OR_RETURN(const delivery::MemoryBudget memory, options.worker.Memory());
  RocksdbSharedOptions shared;
  shared.memory_bytes = static_cast<size_t>(memory.backlog_store);
  stores->rocksdb_ = RocksdbShared::Create(shared);
  return stores;
}

absl::StatusOr<std::unique_ptr<StateStore>> WorkerStores::OpenHeap(const TopicPartition&,
                                                                   uint64_t bytes_max) {
  HeapStoreOptions options;
  options.bytes_max = bytes_max;
  return MakeHeapStore(options);
}

// A directory for each store that was ever opened: one shard may still close a task's store when
// the next one opens it.
absl::StatusOr<std::unique_ptr<StateStore>> WorkerStores::OpenRocksdb(const TopicPartition& tp,
                                                                      uint64_t bytes_max) {
  RocksdbStoreOptions options;
  options.directory = absl::StrCat(directory_->path(), "/", tp.partition, ".", stores_opened_++);
  options.bytes_max = bytes_max;
  return MakeLazyStore(
      clock_, [shared = rocksdb_.get(), options] { return OpenRocksdbStore(*shared, options); });
}

void WorkerStores::AddTo(delivery::WorkerParts& parts) {
  if (rocksdb_ == nullptr) return;
  parts.open_backlog = [this](const TopicPartition& tp, uint64_t bytes_max) {
    return OpenRocksdb(tp, bytes_max);
  };
  parts.backlog_memory = [this] { return rocksdb_->memory_bytes(); };
  parts.disk_free = [this]() -> absl::optional<uint64_t> {
    struct statvfs disk = {};
    if (::statvfs(directory_->path().c_str(), &disk) != 0) return absl::nullopt;
    return uint64_t{disk.f_bavail} * disk.f_frsize;
  };
  parts.set_disk_tight = [this](bool tight) { rocksdb_->SetDiskTight(tight); };
}

}  // namespace postrider
