#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/metrics.h"
#include "core/stream/record.h"
#include "core/stream/state_store.h"

namespace postrider::delivery {

using OpenStore = std::function<absl::StatusOr<std::unique_ptr<StateStore>>(const TopicPartition&)>;

struct StoreFullness {
  double ratio = 0;         // what a store takes, as a part of its bound
  bool may_shrink = false;  // StoreFigures
};

// What the stores of a worker hold together, as metrics: a store is its task's alone, so each
// shard's thread looks at those that it has opened.
//
// Threads: any; a store is used, looked at and closed on the thread that opened it.
class StoreFiguresKeeper {
 public:
  // `metrics` outlives it and the stores.
  explicit StoreFiguresKeeper(Metrics& metrics);
  ~StoreFiguresKeeper();

  // `open`, with its stores counted under the label `store` (one of a small closed set) and held
  // against `bytes_max`, which is each one's bound. Before any thread opens one.
  OpenStore Counted(absl::string_view store, uint64_t bytes_max, OpenStore open);
  // Looks at the stores that the calling thread has opened.
  void LookAtMine();
  // What was seen last of all stores with this label.
  StoreFigures Total(absl::string_view store) const;
  // And of that of one partition. Nothing: there is none.
  StoreFullness Fullness(absl::string_view store, int32_t partition) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace postrider::delivery
