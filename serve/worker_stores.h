#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/state/process_directory.h"
#include "core/state/rocksdb_store.h"
#include "core/stream/log.h"
#include "core/stream/state_store.h"
#include "delivery/worker_role.h"
#include "serve/program_options.h"

namespace postrider {

// Where the tasks of a worker keep what is durable: in memory or, by state.store, the backlog on
// the disk, in a directory that is this process's own and wiped at the start.
//
// Threads: made on the main thread; stores are opened on shards' threads, several at once.
class WorkerStores {
 public:
  // `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<WorkerStores>> Open(const ProgramOptions& options,
                                                            const Clock& clock);

  // For state of endpoints, and for the backlog unless AddTo() says otherwise.
  static absl::StatusOr<std::unique_ptr<StateStore>> OpenHeap(const TopicPartition& tp,
                                                              uint64_t bytes_max);

  // Gives `parts` the backlog's stores. This outlives the worker.
  void AddTo(delivery::WorkerParts& parts);

 private:
  explicit WorkerStores(const Clock& clock) : clock_(clock) {}

  absl::StatusOr<std::unique_ptr<StateStore>> OpenRocksdb(const TopicPartition& tp,
                                                          uint64_t bytes_max);

  const Clock& clock_;
  std::unique_ptr<ProcessDirectory> directory_;
  std::unique_ptr<RocksdbShared> rocksdb_;  // null: in memory
  std::atomic<uint64_t> stores_opened_{0};
};

}  // namespace postrider
