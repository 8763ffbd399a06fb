#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/stream/function.h"
#include "core/stream/operation.h"
#include "core/stream/record.h"

namespace postrider {

struct AsyncLimits {
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  size_t in_all = kNone;   // over all functions of the shard; not counted: what has moved
  size_t per_key = kNone;  // of one function
};

// The asynchronous sink of one shard: what its functions have begun in the outside world. Each such
// operation ends once, with a Result, and may outlive the ownership of its partition:
//
//   in flight --End()--> the owner's OnEnded()
//       |--GiveBack()--> its end is kept --Resume()--> OnEnded()
//       |                                '--Move()---> a `result` record of its partition
//       |--Move()------> its end becomes a `result` record of its partition
//       '--Abort()-----> nobody hears of its end
//
// It does not do what is begun: who begins an operation calls End().
//
// Threads: the shard's. Bounds: the limits, which callers ask for by CanBegin(). What has moved is
// bounded by what was in flight when it moved, and by the operations' own deadlines.
template <typename Result>
class AsyncOperations {
 public:
  // What a new owner is told of an operation, made of its end.
  using Telling = absl::AnyInvocable<OperationResult(const Result&) &&>;

  // A function that begins operations. It stays where it is until Move() or Abort().
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnEnded(const std::string& key, uint64_t number, Result result) = 0;
    // For the successor; asked at a handover. None: it does not outlive its owner, and nobody waits
    // for it.
    virtual absl::optional<Operation> Describe(const std::string& key, uint64_t number) const = 0;
    // It goes on without the owner, to whom it is of no interest from now on. Null: it is aborted.
    virtual Telling Leave(const std::string& key, uint64_t number) = 0;
  };

  // `results` outlives it.
  explicit AsyncOperations(ResultSink& results, AsyncLimits limits = {})
      : results_(results), limits_(limits) {}
  AsyncOperations(const AsyncOperations&) = delete;
  AsyncOperations& operator=(const AsyncOperations&) = delete;

  bool CanBegin(const Owner& owner, absl::string_view key) const {
    if (flights_.size() >= limits_.in_all) return false;
    if (limits_.per_key == AsyncLimits::kNone) return true;
    const auto found = owners_.find(&owner);
    if (found == owners_.end()) return true;
    const auto count = found->second.keys.find(key);
    return count == found->second.keys.end() || count->second < limits_.per_key;
  }

  // Names the operation over all functions of the shard; End() is not called from inside.
  uint64_t Begin(Owner& owner, std::string key) {
    POSTRIDER_CHECK(CanBegin(owner, key));
    Owned& owned = owners_[&owner];
    ++owned.in_flight;
    if (limits_.per_key != AsyncLimits::kNone) ++owned.keys[key];
    flights_.emplace(++last_, Flight{&owner, std::move(key)});
    return last_;
  }

  // Nothing happens for one that was aborted.
  void End(uint64_t number, Result result) {
    const auto moved = moved_.find(number);
    if (moved != moved_.end()) {
      Moved ended = std::move(moved->second);
      moved_.erase(moved);
      return results_.Append(ended.tp, std::move(ended.telling)(result));
    }
    const auto found = flights_.find(number);
    if (found == flights_.end()) return;
    Flight flight = std::move(found->second);
    flights_.erase(found);
    Owned& owned = owners_.at(flight.owner);
    --owned.in_flight;
    if (limits_.per_key != AsyncLimits::kNone && --owned.keys.at(flight.key) == 0) {
      owned.keys.erase(flight.key);
    }
    if (owned.given_back) {
      owned.kept.push_back({number, std::move(flight.key), std::move(result)});
      return;
    }
    if (owned.in_flight == 0) owners_.erase(flight.owner);
    flight.owner->OnEnded(flight.key, number, std::move(result));
  }

  // Those without an end; what is kept has one.
  size_t in_flight(const Owner& owner) const {
    const auto found = owners_.find(&owner);
    return found == owners_.end() ? 0 : found->second.in_flight;
  }
  // Of partitions that have moved.
  size_t moved() const { return moved_.size(); }

  // For KeyedProcessFunction::Operations(): those in flight, in the order in which they were begun,
  // and those whose end is kept, which only the owner's memory knows.
  std::vector<Operation> Operations(const Owner& owner) const {
    std::vector<Operation> operations;
    const auto found = owners_.find(&owner);
    if (found == owners_.end()) return operations;
    const auto describe = [&](const std::string& key, uint64_t number) {
      absl::optional<Operation> operation = owner.Describe(key, number);
      if (operation) operations.push_back(*std::move(operation));
    };
    for (const Kept& one : found->second.kept) describe(one.key, one.number);
    for (const auto& [number, flight] : flights_) {
      if (flight.owner == &owner) describe(flight.key, number);
    }
    return operations;
  }

  // From OnGivenBack(): nobody would know of what came of an end now.
  void GiveBack(Owner& owner) { owners_[&owner].given_back = true; }

  // From OnResume(): the partition has come straight back, or was never gone.
  void Resume(Owner& owner) {
    const auto found = owners_.find(&owner);
    if (found == owners_.end() || !std::exchange(found->second.given_back, false)) return;
    std::vector<Kept> kept = std::exchange(found->second.kept, {});
    if (found->second.in_flight == 0) owners_.erase(found);
    for (Kept& one : kept) owner.OnEnded(one.key, one.number, std::move(one.result));
  }

  // From Close(kMoved); `tp` is the partition that has moved.
  void Move(Owner& owner, const TopicPartition& tp) {
    auto owned = owners_.extract(&owner);
    if (owned.empty()) return;
    for (Kept& one : owned.mapped().kept) {
      Telling telling = owner.Leave(one.key, one.number);
      if (telling) results_.Append(tp, std::move(telling)(one.result));
    }
    if (owned.mapped().in_flight == 0) return;
    for (auto at = flights_.begin(); at != flights_.end();) {
      if (at->second.owner != &owner) {
        ++at;
        continue;
      }
      Telling telling = owner.Leave(at->second.key, at->first);
      if (telling) moved_.emplace(at->first, Moved{tp, std::move(telling)});
      at = flights_.erase(at);
    }
  }

  // From Close(kEnded). What is in flight may be aborted in the outside world then.
  void Abort(Owner& owner) {
    const auto found = owners_.find(&owner);
    if (found == owners_.end()) return;
    if (found->second.in_flight > 0) {
      for (auto at = flights_.begin(); at != flights_.end();) {
        at = at->second.owner == &owner ? flights_.erase(at) : std::next(at);
      }
    }
    owners_.erase(found);
  }

  // The shard ends: nobody is told any more.
  void AbortMoved() { moved_.clear(); }

 private:
  struct Flight {
    Owner* owner;
    std::string key;
  };
  struct Kept {
    uint64_t number;
    std::string key;
    Result result;
  };
  struct Owned {
    size_t in_flight = 0;
    bool given_back = false;
    std::vector<Kept> kept;
    absl::flat_hash_map<std::string, size_t> keys;
  };
  struct Moved {
    TopicPartition tp;
    Telling telling;
  };

  ResultSink& results_;
  const AsyncLimits limits_;
  uint64_t last_ = 0;
  absl::btree_map<uint64_t, Flight> flights_;
  absl::flat_hash_map<const Owner*, Owned> owners_;  // of these, and of what is kept
  absl::flat_hash_map<uint64_t, Moved> moved_;
};

}  // namespace postrider
