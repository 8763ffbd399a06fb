#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/stream/operation.h"

namespace postrider {

// What predecessors of a function had in flight and what it waits for therefore: which operation
// carries a record, and from when on nobody will tell what came of it. That is when its deadline
// has passed and the partition has been read to its end once: a result that was appended before the
// deadline stands before that end. Who lags and finds no end waits kReadingMax for it.
//
// Threads: its task's. Bounds: kOperationsMax of each predecessor's record.
class InheritedOperations {
 public:
  // A deadline that a predecessor's clock has set is taken to lie no further ahead.
  static constexpr Duration kDeadlineMax = std::chrono::minutes(2);
  static constexpr Duration kReadingMax = std::chrono::seconds(5);

  // From OnInherited().
  void Add(std::vector<Operation> operations, const Clock& clock);
  // From OnPartitionEnd().
  void OnPartitionEnd() { end_seen_ = true; }

  bool empty() const { return operations_.empty(); }
  size_t size() const { return operations_.size(); }
  // The awaited operation that carries the record, or that has this id; null when there is none.
  // Good until the next call that is not const.
  const Operation* Carrying(int64_t offset) const;
  const Operation* Find(const IdBytes& id) const;
  // No result comes later; no time without an operation of this id.
  MonotonicTime DeadlineOf(const IdBytes& id) const;
  // It is awaited no longer than that, whatever is read.
  MonotonicTime LastWaitOf(const IdBytes& id) const { return DeadlineOf(id) + kReadingMax; }
  // Its result is here. False: it is not awaited.
  bool Remove(const IdBytes& id);
  // Takes out those of which no result will come.
  std::vector<Operation> TakeLapsed(MonotonicTime now);
  // When TakeLapsed() will give something as things stand; none when nothing is awaited.
  absl::optional<MonotonicTime> NextLapse() const;
  // All that are awaited: a successor will have to as well.
  std::vector<Operation> All() const;

 private:
  struct Awaited {
    Operation operation;
    MonotonicTime deadline;  // not before it was inherited
  };
  MonotonicTime LapseOf(const Awaited& awaited) const {
    return end_seen_ ? awaited.deadline : awaited.deadline + kReadingMax;
  }

  absl::flat_hash_map<IdBytes, Awaited> operations_;
  absl::flat_hash_map<int64_t, IdBytes> carrying_;  // by offset
  bool end_seen_ = false;
};

}  // namespace postrider
