#include "delivery/store_figures.h"

#include <algorithm>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"

namespace postrider::delivery {
namespace {

// The stores with one label.
struct Kind {
  std::string name;
  uint64_t bytes_max;
  Gauge& stores;
  Gauge& memory_bytes;
  Gauge& disk_bytes;
  Gauge& keys;
  Gauge& fullest_ratio;
  Gauge& tombstones_skipped;
};

struct Entry {
  Kind* kind;
  const StateStore* store;
  int32_t partition;
  std::thread::id thread;

  double Fullness() const {
    return static_cast<double>(last.memory_bytes + last.disk_bytes) /
           static_cast<double>(std::max<uint64_t>(kind->bytes_max, 1));
  }
  StoreFigures last;
};

}  // namespace

struct StoreFiguresKeeper::Impl {
  explicit Impl(Metrics& metrics_given) : metrics(metrics_given) {}

  // Of all stores of that kind.
  StoreFigures Sum(const Kind& kind, double* fullest, int64_t* stores) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    StoreFigures sum;
    for (const Entry& entry : entries) {
      if (entry.kind != &kind) continue;
      ++*stores;
      sum.memory_bytes += entry.last.memory_bytes;
      sum.disk_bytes += entry.last.disk_bytes;
      sum.keys += entry.last.keys;
      sum.tombstones_skipped += entry.last.tombstones_skipped;
      *fullest = std::max(*fullest, entry.Fullness());
    }
    return sum;
  }
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (const std::unique_ptr<Kind>& kind : kinds) {
      double fullest = 0;
      int64_t stores = 0;
      const StoreFigures sum = Sum(*kind, &fullest, &stores);
      kind->stores.Set(static_cast<double>(stores));
      kind->memory_bytes.Set(static_cast<double>(sum.memory_bytes));
      kind->disk_bytes.Set(static_cast<double>(sum.disk_bytes));
      kind->keys.Set(static_cast<double>(sum.keys));
      kind->fullest_ratio.Set(fullest);
      kind->tombstones_skipped.Set(static_cast<double>(sum.tombstones_skipped));
    }
  }

  Metrics& metrics;
  mutable absl::Mutex mutex;
  std::vector<std::unique_ptr<Kind>> kinds ABSL_GUARDED_BY(mutex);
  std::list<Entry> entries ABSL_GUARDED_BY(mutex);
};

namespace {

// Passes all on, and is counted while it lives.
class CountedStore final : public StateStore {
 public:
  CountedStore(std::unique_ptr<StateStore> store, absl::AnyInvocable<void() &&> closed)
      : store_(std::move(store)), closed_(std::move(closed)) {}
  ~CountedStore() override { std::move(closed_)(); }

  absl::Status Apply(const StateBatch& batch) override { return store_->Apply(batch); }
  absl::StatusOr<bool> Get(absl::string_view key, std::string& value) const override {
    return store_->Get(key, value);
  }
  absl::StatusOr<ScanEnd> Scan(StateRange& range, absl::string_view from, const ScanLimits& limits,
                               Visitor visit) const override {
    return store_->Scan(range, from, limits, visit);
  }
  absl::Status Clear() override { return store_->Clear(); }
  StoreFigures figures() const override { return store_->figures(); }

 private:
  const std::unique_ptr<StateStore> store_;
  absl::AnyInvocable<void() &&> closed_;
};

}  // namespace

StoreFiguresKeeper::StoreFiguresKeeper(Metrics& metrics) : impl_(std::make_shared<Impl>(metrics)) {}
StoreFiguresKeeper::~StoreFiguresKeeper() = default;

OpenStore StoreFiguresKeeper::Counted(absl::string_view store, uint64_t bytes_max, OpenStore open) {
  Metrics& m = impl_->metrics;
  const MetricLabels labels = {{"store", store}};
  auto made = std::make_unique<Kind>(Kind{
      std::string(store), bytes_max,
      m.AddGauge("postrider_delivery_state_stores", "Stores of durable state that are open.",
                 labels),
      m.AddGauge("postrider_delivery_state_memory_bytes",
                 "Memory that the stores hold; of RocksDB, its memtables.", labels),
      m.AddGauge("postrider_delivery_state_disk_bytes", "What the stores have on disk.", labels),
      m.AddGauge("postrider_delivery_state_keys", "Keys in the stores, estimated on disk.", labels),
      m.AddGauge("postrider_delivery_state_fullest_ratio",
                 "Of the store that is nearest to its bound: what it holds, as a part of that.",
                 labels),
      m.AddGauge("postrider_delivery_state_tombstones_skipped",
                 "Deleted keys that scans of the open stores had to step over; near 0.", labels)});
  Kind* const kind = made.get();
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->kinds.push_back(std::move(made));
  }
  return [impl = impl_, kind, open = std::move(open)](
             const TopicPartition& tp) -> absl::StatusOr<std::unique_ptr<StateStore>> {
    ASSIGN_OR_RETURN(std::unique_ptr<StateStore> opened, open(tp));
    std::list<Entry>::iterator entry;
    {
      absl::MutexLock lock(&impl->mutex);
      entry = impl->entries.insert(
          impl->entries.end(),
          Entry{kind, opened.get(), tp.partition, std::this_thread::get_id(), {}});
      impl->Publish();
    }
    return std::unique_ptr<StateStore>(
        std::make_unique<CountedStore>(std::move(opened), [impl, entry]() {
          absl::MutexLock lock(&impl->mutex);
          impl->entries.erase(entry);
          impl->Publish();
        }));
  };
}

void StoreFiguresKeeper::LookAtMine() {
  std::vector<Entry*> mine;
  {
    absl::MutexLock lock(&impl_->mutex);
    for (Entry& entry : impl_->entries) {
      if (entry.thread == std::this_thread::get_id()) mine.push_back(&entry);
    }
  }
  // Only this thread closes them, so they stay while they are looked at.
  std::vector<StoreFigures> seen;
  seen.reserve(mine.size());
  for (const Entry* entry : mine) seen.push_back(entry->store->figures());
  absl::MutexLock lock(&impl_->mutex);
  for (size_t i = 0; i < mine.size(); ++i) mine[i]->last = seen[i];
  impl_->Publish();
}

StoreFigures StoreFiguresKeeper::Total(absl::string_view store) const {
  absl::MutexLock lock(&impl_->mutex);
  for (const std::unique_ptr<Kind>& kind : impl_->kinds) {
    double fullest = 0;
    int64_t stores = 0;
    if (kind->name == store) return impl_->Sum(*kind, &fullest, &stores);
  }
  return StoreFigures();
}

StoreFullness StoreFiguresKeeper::Fullness(absl::string_view store, int32_t partition) const {
  absl::MutexLock lock(&impl_->mutex);
  StoreFullness fullness;
  for (const Entry& entry : impl_->entries) {
    if (entry.partition != partition || entry.kind->name != store) continue;
    fullness = {entry.Fullness(),
                entry.last.may_shrink};  // the last one made: an earlier one is being closed
  }
  return fullness;
}

}  // namespace postrider::delivery
