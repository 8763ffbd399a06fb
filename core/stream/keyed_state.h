#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/stream/changelog.h"
#include "core/stream/identity_filter.h"
#include "core/stream/state_backend.h"
#include "core/stream/state_key.h"
#include "core/stream/state_store.h"

namespace postrider {

// Keyed state of the replayable kind: one value of T per key, in memory only. What it holds was
// made from records that are still pending, so the log restores it. The durable kinds are below.
//
// Threads: owned by one task. Bounds: by the records that its owner lets pend; Clear() what is
// empty.
template <typename T>
class ReplayableValueState {
 public:
  // Null when the key has no value. The pointer stays good until Clear(key).
  T* Get(absl::string_view key) {
    auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  const T* Get(absl::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  // The key's value, made by T(args...) if there is none.
  template <typename... Args>
  T& GetOrCreate(absl::string_view key, Args&&... args) {
    auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    return values_.try_emplace(std::string(key), std::forward<Args>(args)...).first->second;
  }
  void Clear(absl::string_view key) {
    auto found = values_.find(key);
    if (found != values_.end()) values_.erase(found);
  }
  size_t size() const { return values_.size(); }
  template <typename Visitor>
  void ForEach(Visitor&& visit) {
    for (auto& [key, value] : values_) visit(absl::string_view(key), value);
  }
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    for (const auto& [key, value] : values_) visit(absl::string_view(key), value);
  }

 private:
  absl::node_hash_map<std::string, T> values_;
};

// Durable keyed state: what a task keeps beyond its records. A write is shown by every read at
// once, is durable when its `done` runs, and comes back wherever the task is opened next. Calls
// that write say whether there was room; false means that nothing was taken (see
// StateBackend::OnRoom()). Reads fail with kDataLoss (the store), or kFailedPrecondition (a value
// of a newer version).

// How values of T are written. As long as no upgrade is finished a binary writes `version_write`,
// the highest that the binary before it reads too, so that one may go back to that; it reads up to
// `version_max`, and that is what it writes when the changelog says that the upgrade was finished
// (`postrider state upgrade --finish`). Both are the same where nothing has changed.
template <typename T>
struct StateSerializer {
  uint32_t version_write = 1;
  uint32_t version_max = 1;
  std::function<std::string(const T& value, uint32_t version)> encode;
  // No value for bytes that encode() would not have written in that version.
  std::function<absl::optional<T>(absl::string_view bytes, uint32_t version)> decode;
};

struct StateDescriptor {
  uint16_t id = 0;   // never used again for anything else
  std::string name;  // in messages and in savepoints
  // Values are missing this long after their last write, by the wall clock (it is stored, and other
  // machines read it): a clock that jumps shifts it by as much. StateBackend::Sweep() removes them.
  // 0: never.
  std::chrono::milliseconds ttl{0};
};

// A value as it is stored and logged: everything but who put it.
struct StatePayload {
  uint32_t version = 0;
  int64_t expires_ms = 0;  // ms since the Unix epoch; 0: never
  uint64_t order = 0;      // of a list's entry
  absl::string_view bytes;
};
std::string EncodeStatePayload(const StatePayload& payload);
absl::optional<StatePayload> DecodeStatePayload(absl::string_view encoded);

// What ValueState and MapState have in common: a value per (key, sub-key) that changes in place.
class InPlaceState : public DurableState {
 public:
  InPlaceState(StateBackend& backend, const Clock& clock, StateDescriptor descriptor,
               StateVersions versions);

  struct Found {
    uint32_t version = 0;
    std::string bytes;
  };
  absl::StatusOr<absl::optional<Found>> Get(absl::string_view key, absl::string_view sub_key) const;
  [[nodiscard]] bool Put(absl::string_view key, absl::string_view sub_key, uint32_t version,
                         absl::string_view bytes, StateBackend::WriteDone&& done);
  // Is written though there is no value: an earlier clear may not be durable yet.
  [[nodiscard]] bool Clear(absl::string_view key, absl::string_view sub_key,
                           StateBackend::WriteDone&& done);
  // The sub-keys of `key` from `from` on, in the order of their bytes, expired ones left out. Where
  // the first one is is remembered for each key that was asked for and has any. The visitor makes
  // no call on this state.
  using Visitor = absl::FunctionRef<bool(absl::string_view sub_key, const Found& value)>;
  absl::StatusOr<ScanEnd> ForEach(absl::string_view key, absl::string_view from,
                                  const ScanLimits& limits, Visitor visit);

  // The keys above `after` that have values, expired ones too, each once and in the order of their
  // bytes. `limits` are of the values that are looked at; kLimit: go on after the last key that was
  // shown (an empty `after`: from the start). The visitor makes no call on this state.
  absl::StatusOr<ScanEnd> ForEachKey(absl::string_view after, const ScanLimits& limits,
                                     absl::FunctionRef<bool(absl::string_view key)> visit);

  absl::Status Restore(const StateKey& key, uint64_t epoch, absl::string_view payload) override;
  absl::Status RestoreRemoved(const StateKey& key) override;
  absl::StatusOr<bool> Reassert(const StateKey& key) override;
  absl::StatusOr<Expiry> Expire(const StateKey& key, int64_t expires_ms) override;
  size_t memory_bytes() const override;

  static absl::Status Unreadable(const std::string& name);

 private:
  struct Stored {
    uint64_t epoch = 0;
    std::string payload;
  };
  absl::StatusOr<absl::optional<Stored>> Read(const std::string& identity) const;
  absl::Status CheckVersion(const StatePayload& payload) const;
  // kErase takes the record out of the log as if it had never been there: right when nothing else
  // of this identity can be in it.
  [[nodiscard]] bool Write(ChangelogKind kind, absl::string_view key, absl::string_view sub_key,
                           std::string payload, StateBackend::WriteDone&& done);
  void Include(absl::string_view key, absl::string_view identity);

  StateBackend& backend_;
  const Clock& clock_;
  const std::chrono::milliseconds ttl_;
  absl::flat_hash_map<std::string, StateRange> scanned_;  // by key
  StateRange keys_;                                       // all of it
};

// One value of T per key.
template <typename T>
class ValueState {
 public:
  ValueState(StateBackend& backend, const Clock& clock, StateDescriptor descriptor,
             StateSerializer<T> serializer)
      : serializer_(std::move(serializer)),
        state_(backend, clock, std::move(descriptor),
               StateVersions{serializer_.version_write, serializer_.version_max}) {}

  absl::StatusOr<absl::optional<T>> Get(absl::string_view key) const {
    absl::StatusOr<absl::optional<InPlaceState::Found>> found = state_.Get(key, {});
    if (!found.ok()) return found.status();
    if (!*found) return absl::optional<T>();
    absl::optional<T> value = serializer_.decode((*found)->bytes, (*found)->version);
    if (!value) return InPlaceState::Unreadable(state_.name());
    return value;
  }
  [[nodiscard]] bool Put(absl::string_view key, const T& value, StateBackend::WriteDone done = {}) {
    const uint32_t version = state_.version_write();
    return state_.Put(key, {}, version, serializer_.encode(value, version), std::move(done));
  }
  [[nodiscard]] bool Clear(absl::string_view key, StateBackend::WriteDone done = {}) {
    return state_.Clear(key, {}, std::move(done));
  }
  // As InPlaceState::ForEachKey().
  absl::StatusOr<ScanEnd> ForEachKey(absl::string_view after, const ScanLimits& limits,
                                     absl::FunctionRef<bool(absl::string_view key)> visit) {
    return state_.ForEachKey(after, limits, visit);
  }

 private:
  const StateSerializer<T> serializer_;
  InPlaceState state_;
};

// A map from byte strings to T per key, ordered by them.
template <typename T>
class MapState {
 public:
  MapState(StateBackend& backend, const Clock& clock, StateDescriptor descriptor,
           StateSerializer<T> serializer)
      : serializer_(std::move(serializer)),
        state_(backend, clock, std::move(descriptor),
               StateVersions{serializer_.version_write, serializer_.version_max}) {}

  absl::StatusOr<absl::optional<T>> Get(absl::string_view key, absl::string_view sub_key) const {
    absl::StatusOr<absl::optional<InPlaceState::Found>> found = state_.Get(key, sub_key);
    if (!found.ok()) return found.status();
    if (!*found) return absl::optional<T>();
    absl::optional<T> value = serializer_.decode((*found)->bytes, (*found)->version);
    if (!value) return InPlaceState::Unreadable(state_.name());
    return value;
  }
  [[nodiscard]] bool Put(absl::string_view key, absl::string_view sub_key, const T& value,
                         StateBackend::WriteDone done = {}) {
    const uint32_t version = state_.version_write();
    return state_.Put(key, sub_key, version, serializer_.encode(value, version), std::move(done));
  }
  [[nodiscard]] bool Remove(absl::string_view key, absl::string_view sub_key,
                            StateBackend::WriteDone done = {}) {
    return state_.Clear(key, sub_key, std::move(done));
  }
  // visit(sub_key, value), from `from` on; false stops. It makes no call on this state.
  absl::StatusOr<ScanEnd> ForEach(absl::string_view key, absl::string_view from,
                                  const ScanLimits& limits,
                                  absl::FunctionRef<bool(absl::string_view, const T&)> visit) {
    bool unreadable = false;
    absl::StatusOr<ScanEnd> end = state_.ForEach(
        key, from, limits, [&](absl::string_view sub_key, const InPlaceState::Found& found) {
          absl::optional<T> value = serializer_.decode(found.bytes, found.version);
          unreadable = !value;
          return value && visit(sub_key, *value);
        });
    if (unreadable) return InPlaceState::Unreadable(state_.name());
    return end;
  }
  // As InPlaceState::ForEachKey().
  absl::StatusOr<ScanEnd> ForEachKey(absl::string_view after, const ScanLimits& limits,
                                     absl::FunctionRef<bool(absl::string_view key)> visit) {
    return state_.ForEachKey(after, limits, visit);
  }

 private:
  const StateSerializer<T> serializer_;
  InPlaceState state_;
};

// A FIFO of byte strings per key, whose entries are named by an identity and stand in ascending
// `order` (and identity within it), which the caller gives: where it stands is a property of the
// entry and no position, so that writing twice, late or after a restore changes nothing.
//
// Bounds: about 200 bytes of memory for each key that has entries, and 2 for each entry that was
//         put since there was none (IdentityFilter).
class ListState final : public DurableState {
 public:
  ListState(StateBackend& backend, const Clock& clock, StateDescriptor descriptor,
            StateVersions versions);
  ListState(StateBackend& backend, const Clock& clock, StateDescriptor descriptor, uint32_t version)
      : ListState(backend, clock, std::move(descriptor), StateVersions{version, version}) {}

  enum class Pushed {
    kTaken,
    kThere,   // this epoch has put it before; `done` is dropped: see StateBackend::WhenDurable()
    kNoRoom,  // nothing was taken
  };
  // `version` is that of `value`: version_write(). An identity that an earlier epoch had put keeps
  // its place and is put again under this one.
  absl::StatusOr<Pushed> Push(absl::string_view key, uint64_t order, absl::string_view identity,
                              uint32_t version, absl::string_view value,
                              StateBackend::WriteDone done = {});
  // Is written though no such entry is there: while the state is being restored it may not have
  // been met yet, and an earlier removal may not be durable yet. False: no room.
  [[nodiscard]] absl::StatusOr<bool> Remove(absl::string_view key, absl::string_view identity,
                                            StateBackend::WriteDone done = {});
  // Where an entry stands and who put it, as a scan has shown it.
  class Place {
   public:
    Place() = default;

   private:
    friend class ListState;
    uint64_t order_ = 0;
    uint64_t epoch_ = 0;
    uint64_t bytes_ = 0;    // of the value
    uint64_t changes_ = 0;  // as the list's when it was shown
  };
  // The same without a look-up, of an entry that is still there as the caller knows: it was shown,
  // and has not been removed by what was shown. (All that else happens to the entries of `key`
  // meanwhile is noticed: then it is looked up.)
  [[nodiscard]] absl::StatusOr<bool> Remove(absl::string_view key, absl::string_view identity,
                                            const Place& shown);

  // Whether there is such an entry, of whatever epoch and an expired one too. While the state is
  // being restored it may not have been met yet.
  absl::StatusOr<bool> Has(absl::string_view key, absl::string_view identity) const;
  // Where it stands; none: there is no such entry. As Has().
  absl::StatusOr<absl::optional<uint64_t>> OrderOf(absl::string_view key,
                                                   absl::string_view identity) const;

  struct Entry {
    uint64_t order = 0;
    absl::string_view identity;
    uint32_t version = 0;
    absl::string_view value;
    Place place;
  };
  // The entries of `key` in their order, from the first or from (order, identity) on; false stops.
  // The visitor makes no call on this state.
  absl::StatusOr<ScanEnd> Scan(absl::string_view key, const ScanLimits& limits,
                               absl::FunctionRef<bool(const Entry&)> visit);
  absl::StatusOr<ScanEnd> Scan(absl::string_view key, uint64_t from_order,
                               absl::string_view from_identity, const ScanLimits& limits,
                               absl::FunctionRef<bool(const Entry&)> visit);
  // Entries of `key`, expired ones too; and of all keys.
  uint64_t size(absl::string_view key) const;
  uint64_t size() const { return entries_; }
  // The bytes of their values.
  uint64_t bytes(absl::string_view key) const;
  uint64_t bytes() const { return bytes_; }
  // The keys that have entries, in no order. For waking them after a restore.
  template <typename Visitor>
  void ForEachKey(Visitor&& visit) const {
    for (const auto& [key, queue] : queues_) visit(absl::string_view(key), queue.entries);
  }

  absl::Status Restore(const StateKey& key, uint64_t epoch, absl::string_view payload) override;
  absl::Status RestoreRemoved(const StateKey& key) override;
  absl::Status RestoreBefore(const StateKey& key, absl::string_view payload) override;
  absl::StatusOr<bool> Reassert(const StateKey& key) override;
  absl::StatusOr<Expiry> Expire(const StateKey& key, int64_t expires_ms) override;
  size_t memory_bytes() const override {
    return (queues_.size() + first_orders_.size()) * kQueueBytes + ever_put_.memory_bytes();
  }

 private:
  static constexpr size_t kQueueBytes = 200;
  struct Queue {
    StateRange range;
    uint64_t entries = 0;
    uint64_t bytes = 0;
    uint64_t changes = 0;  // what was shown before them is not relied on
  };
  absl::StatusOr<absl::optional<Place>> Find(absl::string_view key,
                                             absl::string_view identity) const;
  absl::StatusOr<bool> Put(absl::string_view key, absl::string_view identity, const Place& place,
                           const absl::optional<Place>& before, std::string payload,
                           StateBackend::WriteDone&& done);
  enum class Known { kFound, kShown };  // how a place is known
  absl::StatusOr<bool> RemoveAt(absl::string_view key, absl::string_view identity,
                                const absl::optional<Place>& place, Known known,
                                StateBackend::WriteDone&& done);
  Place MakePlace(uint64_t order, uint64_t epoch, uint64_t bytes) const;
  // When the entry there expires; 0: never, or none is there.
  absl::StatusOr<int64_t> ExpiresMsOf(const std::string& queue_key) const;
  void Added(absl::string_view key, absl::string_view identity, const std::string& queue_key,
             uint64_t bytes, const absl::optional<Place>& before);
  void Removed(absl::string_view key, const Place& place, Known known);

  StateBackend& backend_;
  const Clock& clock_;
  const std::chrono::milliseconds ttl_;
  bool expires_;  // values may have a time to live, now or by an earlier binary
  absl::flat_hash_map<std::string, Queue> queues_;
  uint64_t entries_ = 0;
  uint64_t bytes_ = 0;
  // Lists that began, and entries that were put again or removed but by a place.
  uint64_t changes_ = 0;
  // Of entries that were put while the log was read, and stood in it with a lower order.
  absl::flat_hash_map<std::string, uint64_t> first_orders_;
  // Since the list was empty: most of what is pushed was never put before, and needs no look-up.
  IdentityFilter ever_put_;
};

// The rule of ChangelogReplay for each state: kOnce for lists, which are named by their ids.
// Lists have odd ids, values and maps even ones: CHECKed when they are made.
ChangelogReplay::Rule ReplayRuleOf(absl::string_view identity);

}  // namespace postrider
