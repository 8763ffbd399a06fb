#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/stream/byte_map.h"
#include "core/stream/changelog.h"
#include "core/stream/memory_account.h"
#include "core/stream/state_key.h"
#include "core/stream/state_store.h"

namespace postrider {

// Appends to the changelog partition of one task. Threads: the shard's.
class ChangelogWriter {
 public:
  using AppendDone = absl::AnyInvocable<void(absl::Status) &&>;

  virtual ~ChangelogWriter() = default;
  // False: full, nothing was taken. `done` is called once, never from inside this call, and not
  // after the task was closed; answers may come in any order.
  [[nodiscard]] virtual bool Append(EncodedChangelogRecord&& record, AppendDone&& done) = 0;
  // A tombstone for a record that others have replaced: it may wait until those stand for sure.
  [[nodiscard]] virtual bool AppendErasure(EncodedChangelogRecord&& record, AppendDone&& done) {
    return Append(std::move(record), std::move(done));
  }
};

// The versions of a state's values: the one that is written as long as no upgrade is finished (that
// of the binary before, so that it can read them), and the highest that this binary reads.
struct StateVersions {
  uint32_t write = 1;
  uint32_t max = 1;
};

// One state of a task as its backend sees it: turns what is restored into writes of the store.
class DurableState {
 public:
  // CHECKed: 1 <= versions.write <= versions.max.
  DurableState(uint16_t id, std::string name, StateVersions versions = {});
  virtual ~DurableState() = default;
  DurableState(const DurableState&) = delete;
  DurableState& operator=(const DurableState&) = delete;

  uint16_t id() const { return id_; }
  const std::string& name() const { return name_; }
  const StateVersions& versions() const { return versions_; }
  // What is written now: versions().write, or up to versions().max what the changelog says to have
  // been finished.
  uint32_t version_write() const { return version_write_; }

  // The changelog says that `key` has `payload`, put by `epoch`; or that it has no value.
  // kFailedPrecondition: of a version that this binary does not know.
  virtual absl::Status Restore(const StateKey& key, uint64_t epoch, absl::string_view payload) = 0;
  virtual absl::Status RestoreRemoved(const StateKey& key) = 0;
  // An earlier owner had put `key` with `payload`, which this task has put meanwhile without
  // knowing of it. What is to be made of it is put by Reassert().
  virtual absl::Status RestoreBefore(const StateKey& /*key*/, absl::string_view /*payload*/) {
    return absl::OkStatus();
  }
  // Puts the value again under this task's epoch, if an earlier one had put it. False: no room.
  virtual absl::StatusOr<bool> Reassert(const StateKey& key) = 0;
  // The last record has been read.
  virtual void OnRestoreEnd() {}
  // Removes the value of `key` if it expires at `expires_ms`, from changelog and store; kStale: it
  // does not, any more.
  enum class Expiry { kRemoved, kStale, kNoRoom };
  virtual absl::StatusOr<Expiry> Expire(const StateKey& /*key*/, int64_t /*expires_ms*/) {
    return Expiry::kStale;
  }
  // What it holds beside the store, about.
  virtual size_t memory_bytes() const { return 0; }

 private:
  friend class StateBackend;
  const uint16_t id_;
  const std::string name_;
  const StateVersions versions_;
  uint32_t version_write_;
  uint32_t version_declared_ = 0;  // by this owner, in the changelog's table of states
};

struct StateBackendOptions {
  uint64_t epoch = 0;  // of this owner; goes into every record
  // Writes whose answer has not come, and those that the store did not take yet. Removals have
  // removal_bytes_max beside it, which nothing else uses: they are what makes room.
  size_t overlay_bytes_max = 16 << 20;
  size_t removal_bytes_max = 32 << 10;
  // What the overlays of several tasks draw on together; outlives the backend. May be null. It is
  // not asked for the first floor_bytes, nor for removals when it has no more.
  MemoryAccount* overlays = nullptr;
  size_t floor_bytes = 32 << 10;
};

// The durable state of one task: a store, the changelog, and between them an overlay.
//
//   Write() --> changelog            (the overlay shows the change to every read at once)
//   acknowledged, and all before it --> `done`: it is durable; --> the store; out of the overlay
//   refused --> `failed`: the task is to be closed and restored from the log
//
// The store is given the last change of each key, as soon as that is durable, and in no other
// order: reads see the overlay first, and nobody trusts a store across a fault. So what a store at
// its bound refuses holds up nothing but itself; removals go on and make room for it. What a
// restore finds no room for waits in the overlay likewise.
//
// Beside the values it keeps the table of states (state_table.h) and tells when a state's upgrade
// was finished (FinishRecord() in changelog.h): a task learns of that when it is restored.
//
// The store never holds what the log does not, so what is read from it after a fault is true; and
// a `done` says that every earlier write of this backend is durable too.
//
// Threads: owned by one task.
// Bounds:  overlay_bytes_max, a restore a quarter more (then it waits), removal_bytes_max, and what
//          `overlays` has left. Writes without changes count too.
class StateBackend {
 public:
  using WriteDone = absl::AnyInvocable<void() &&>;

  // All outlive the backend; it calls `failed` at most once, after which no write is taken and no
  // `done` runs any more.
  StateBackend(const StateBackendOptions& options, StateStore& store, ChangelogWriter& changelog,
               absl::AnyInvocable<void(absl::Status)> failed);
  ~StateBackend();

  // States register when they are made, before anything is restored; each id once: CHECKed.
  void Register(DurableState& state);

  struct Change {
    std::string key;
    absl::optional<std::string> value;  // none: deleted
  };
  using Changes = absl::InlinedVector<Change, 2>;
  // Appends one record and makes `changes` when it is acknowledged. False: no room (overlay or
  // changelog), or the task has failed; nothing was taken. Changes without a value alone are a
  // removal, for which there is room when there is none for others.
  [[nodiscard]] bool Write(ChangelogRecord&& record, Changes&& changes, WriteDone&& done);
  // `done` runs when all that was written until now is durable. False: it is already, and `done` is
  // untouched.
  [[nodiscard]] bool WhenDurable(WriteDone&& done);
  // Appends a tombstone for a record that nothing needs, when there is room. In the order of the
  // calls, and after what was written before. Never of this epoch: CHECKed.
  void Erase(absl::string_view identity, uint64_t epoch);

  // As the store's, with the overlay's writes in place.
  absl::StatusOr<bool> Get(absl::string_view key, std::string& value) const;
  absl::StatusOr<ScanEnd> Scan(StateRange& range, absl::string_view from, const ScanLimits& limits,
                               StateStore::Visitor visit) const;

  // Restore: Begin, then each record in offset order, then End. The task may read and write
  // meanwhile. kResourceExhausted from RestoreRecord(): the store is full, and the same record may
  // be tried again; any other fault: the restore has failed.
  void BeginRestore(ChangelogReplay& replay);
  absl::Status RestoreRecord(absl::string_view key, absl::string_view value);
  // Re-asserts values of earlier epochs and erases what is not needed: as there is room, see
  // settled().
  void EndRestore();
  // Null when nothing is being restored. For states: tells it of live writes.
  ChangelogReplay* restoring() const { return replay_; }
  bool settled() const {
    return replay_ == nullptr && reassert_.empty() && erase_.empty() && erasing_ == 0;
  }

  // Removes up to `values_max` values whose time has passed by `now`, from changelog and store; how
  // many there were. Nothing while a restore is going on. The cost is that of what has expired, not
  // of what is kept. To be called every second.
  size_t Sweep(WallTime now, size_t values_max);

  // There may be room again in the changelog or the store: goes on with what was left.
  void OnRoom();
  // The store has refused writes that are durable, for want of room on its disk or in its memory,
  // or other tasks have all that the overlays may hold together: nothing but time mends that, so
  // OnRoom() is to be called some 100 ms later.
  bool wants_retry() const { return (store_refused_ || account_refused_) && !failed_; }
  // Runs each time that the overlay is at half of its bound or below (and the overlays together at
  // three quarters of theirs, if that is why) after it had refused a write, and when half of the
  // room for removals is free after it had refused one:
  // never from inside a call of a state, and not after a failure. A changelog that refuses says
  // itself when there is room.
  void SetRoomCallback(absl::AnyInvocable<void()> callback) { room_ = std::move(callback); }

  uint64_t epoch() const { return options_.epoch; }
  bool failed() const { return failed_; }
  size_t overlay_bytes() const { return overlay_bytes_; }
  // What it holds in memory, about: the overlay, what is known of a restore, what the states keep
  // beside the store. Not the store. Costs a call for each state.
  size_t memory_bytes() const;
  // Of that, what is known of a restore.
  size_t restore_bytes() const;
  // Writes that are not acknowledged.
  size_t pending() const { return pending_.size(); }
  // For restored values, which the log holds already: puts and deletes of single keys.
  // kResourceExhausted: neither store nor overlay have room.
  absl::Status ApplyRestored(const StateBatch& batch);
  // Where a state notes, in the same Write() or batch, that a value expires: a key of the store
  // without a value.
  static std::string ExpiryKey(int64_t expires_ms, absl::string_view identity);

 private:
  class Table;
  // What the store takes in one batch.
  static constexpr size_t kApplyChanges = 512;
  static constexpr size_t kApplyBytes = 1 << 20;

  // The last change of a key. `stamp` tells it from those before it.
  struct Overlaid {
    absl::optional<std::string> value;
    uint64_t stamp = 0;    // 0: new
    bool durable = false;  // then it stands in ready_puts_ or ready_removals_
    uint32_t pending = 0;  // changes in pending_ that name it: until then it stays
  };
  using Overlay = ByteMap<Overlaid>;
  // Keys whose last change the store may take, by stamp.
  using Ready = absl::btree_map<uint64_t, Overlay::Entry*>;
  enum class Room { kPut, kRemoval, kRestored };
  struct PendingChange {
    Overlay::Entry* entry;
    uint64_t stamp;
    Room room;
  };
  struct Pending {
    uint64_t write;
    Room room;
    bool acknowledged;
    absl::InlinedVector<PendingChange, 2> changes;
    absl::InlinedVector<WriteDone, 1> done;
  };
  bool Append(ChangelogRecord&& record, Changes&& changes, WriteDone&& done);
  // Whether the table says of the state of `identity` what is to be written; false: no room.
  bool Declare(absl::string_view identity);
  absl::Status OnFinished(const std::string& name, uint32_t version);
  DurableState* FindByName(absl::string_view name) const;
  void NoteExpiry(absl::string_view key);
  void OfferRoom();
  void OnAppended(uint64_t write, const absl::Status& status);
  void GoOn();
  // Asks for room in the overlay for `bytes` more, of which `freed` others go.
  bool TakeRoom(Room room, size_t bytes, size_t freed);
  // Makes what is charged to options_.overlays fit an overlay of `bytes`. False: so much is not
  // left, and nothing was taken.
  bool Charge(size_t bytes);
  void Add(Room room, size_t bytes);
  void GiveBack(Room room, size_t bytes);
  // What the overlay holds of `key` now, and would give back if it changed.
  size_t HeldBytes(absl::string_view key) const;
  static size_t HeldBytes(const Overlay::Entry& entry);
  // Shows a change to every read.
  PendingChange Show(absl::string_view key, absl::optional<std::string> value);
  void OnDurable(const PendingChange& change);
  absl::Status ApplyDurable(bool again);
  void Applied(Ready& ready, size_t changes);
  void Drop(Overlay::Entry& entry);
  absl::Status DropNeedless();
  bool Hold(const StateBatch& batch);
  void Settle();
  void Fail(absl::Status why);
  absl::StatusOr<DurableState*> Find(const absl::optional<StateKey>& key) const;

  const StateBackendOptions options_;
  StateStore& store_;
  ChangelogWriter& changelog_;
  absl::AnyInvocable<void(absl::Status)> fail_;
  absl::flat_hash_map<uint16_t, DurableState*> states_;
  std::unique_ptr<Table> table_;

  Overlay overlay_;
  uint64_t last_stamp_ = 0;
  size_t overlay_bytes_ = 0;
  size_t removal_bytes_ = 0;     // of them, of removals
  size_t charged_ = 0;           // of them, to options_.overlays
  std::deque<Pending> pending_;  // in the order of the writes
  uint64_t last_write_ = 0;
  Ready ready_puts_;
  Ready ready_removals_;
  size_t puts_at_once_ = kApplyChanges;  // fewer, as long as the store is near its bound
  uint64_t needed_ = 0;                  // removals up to this stamp are of keys that the store has
  StateBatch batch_;
  bool puts_refused_ = false;
  bool store_refused_ = false;
  bool overlay_refused_ = false;
  bool removal_refused_ = false;
  bool account_refused_ = false;
  absl::AnyInvocable<void()> room_;
  StateRange expiries_;

  ChangelogReplay* replay_ = nullptr;
  absl::optional<ChangelogReplay::Step> step_;  // read, but not in the store
  std::deque<std::string> reassert_;
  std::deque<std::string> erase_;  // record keys
  size_t erasing_ = 0;             // of those that were given to the changelog, not acknowledged
  size_t left_bytes_ = 0;          // of both
  bool going_on_ = false;          // OnRoom() is running
  bool failed_ = false;
};

}  // namespace postrider
