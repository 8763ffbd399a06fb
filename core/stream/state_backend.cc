#include "core/stream/state_backend.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/stream/state_table.h"

namespace postrider {
namespace {

// What a write, a change of it and an entry of the overlay cost beside their bytes.
constexpr size_t kWriteBytes = 96;
constexpr size_t kChangeBytes = 64;
constexpr size_t kOverlaidBytes = 96;
// Of an expiry key: the time, as a part of a state key.
constexpr size_t kExpiryBytes = 8;

size_t OverlaidCost(absl::string_view key, size_t value_bytes) {
  return key.size() + value_bytes + kOverlaidBytes;
}
size_t ChangeCost(absl::string_view key) { return key.size() + kChangeBytes; }

size_t LeftCost(const std::string& key) { return sizeof(std::string) + key.size(); }

bool IsOfState(uint16_t state, absl::string_view key) {
  return key.size() >= 2 && static_cast<unsigned char>(key[0]) == state >> 8 &&
         static_cast<unsigned char>(key[1]) == (state & 0xff);
}

}  // namespace

DurableState::DurableState(uint16_t id, std::string name, StateVersions versions)
    : id_(id), name_(std::move(name)), versions_(versions), version_write_(versions.write) {
  POSTRIDER_CHECK(versions.write >= 1 && versions.write <= versions.max);
}

// The states that the changelog knows, by name. In memory only: there are few.
class StateBackend::Table final : public DurableState {
 public:
  explicit Table(StateBackend& backend)
      : DurableState(kStateTableId, "states"), backend_(backend) {}

  // Says in the changelog that `state` has values of this version. False: no room.
  bool Declare(const DurableState& state, uint32_t version) {
    return Put(state.name(), StateTableEntry{state.id(), version, state.versions().max});
  }

  absl::Status Restore(const StateKey& key, uint64_t epoch, absl::string_view payload) override {
    const absl::optional<StateTableEntry> entry = DecodeStateTableEntry(payload);
    if (!entry || !key.sub_key.empty()) {
      return absl::DataLossError("state: an entry of the table of states cannot be read");
    }
    DurableState* const state = backend_.FindByName(key.key);
    if (state == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("state: the changelog holds state '", key.key, "' (id ", entry->id,
                       "), which this binary does not know; run the binary that wrote it, or a "
                       "newer one"));
    }
    if (state->id() != entry->id) {
      return absl::FailedPreconditionError(absl::StrCat(
          "state: '", key.key, "' has id ", entry->id, " in the changelog and ", state->id(),
          " in this binary, which would mix it up with another; run the "
          "binary that wrote it"));
    }
    if (entry->version > state->versions().max) {
      return absl::FailedPreconditionError(
          absl::StrCat("state: '", key.key, "' is written in version ", entry->version,
                       "; this binary reads up to ", state->versions().max,
                       "; its upgrade was finished, so run the newer binary"));
    }
    state->version_write_ = std::max(state->version_write_, entry->version);
    restored_[key.key] = Restored{epoch, *entry};
    return absl::OkStatus();
  }

  absl::Status RestoreRemoved(const StateKey& key) override {
    restored_.erase(key.key);
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Reassert(const StateKey& key) override {
    const auto found = restored_.find(key.key);
    if (found == restored_.end() || found->second.epoch >= backend_.epoch()) return true;
    const DurableState* const state = backend_.FindByName(key.key);
    // Declared by this owner meanwhile: the record stands.
    if (state == nullptr || state->version_declared_ < found->second.entry.version) {
      StateTableEntry entry = found->second.entry;
      if (state != nullptr) entry.version_max = state->versions().max;
      if (!Put(key.key, entry)) return false;
    }
    backend_.Erase(StateTableIdentity(key.key), found->second.epoch);
    restored_.erase(key.key);
    return true;
  }

 private:
  struct Restored {
    uint64_t epoch;
    StateTableEntry entry;
  };

  bool Put(absl::string_view name, const StateTableEntry& entry) {
    ChangelogRecord record;
    record.epoch = backend_.epoch();
    record.identity = StateTableIdentity(name);
    record.payload = EncodeStateTableEntry(entry);
    // What is restored is looked at even if it was declared live: it may be what cannot be read.
    if (!backend_.Append(std::move(record), {}, {})) return false;
    if (DurableState* const state = backend_.FindByName(name)) {
      state->version_declared_ = std::max(state->version_declared_, entry.version);
    }
    return true;
  }

  StateBackend& backend_;
  absl::flat_hash_map<std::string, Restored> restored_;  // of earlier owners
};

StateBackend::StateBackend(const StateBackendOptions& options, StateStore& store,
                           ChangelogWriter& changelog,
                           absl::AnyInvocable<void(absl::Status)> failed)
    : options_(options),
      store_(store),
      changelog_(changelog),
      fail_(std::move(failed)),
      table_(std::make_unique<Table>(*this)),
      expiries_(StatePrefix(kExpiryIndexId)) {
  Register(*table_);
}

StateBackend::~StateBackend() {
  if (options_.overlays != nullptr) options_.overlays->Give(charged_);
}

void StateBackend::Register(DurableState& state) {
  POSTRIDER_CHECK(state.id() != kExpiryIndexId && state.id() != kPlaceIndexId);
  POSTRIDER_CHECK(FindByName(state.name()) == nullptr);
  const bool added = states_.try_emplace(state.id(), &state).second;
  POSTRIDER_CHECK(added);
}

DurableState* StateBackend::FindByName(absl::string_view name) const {
  for (const auto& [id, state] : states_) {
    if (state->name() == name) return state;
  }
  return nullptr;
}

bool StateBackend::Declare(absl::string_view identity) {
  POSTRIDER_CHECK(identity.size() >= 2);
  const auto found = states_.find(static_cast<uint16_t>(
      static_cast<unsigned char>(identity[0]) << 8 | static_cast<unsigned char>(identity[1])));
  POSTRIDER_CHECK(found != states_.end());
  const DurableState& state = *found->second;
  return state.version_declared_ >= state.version_write_ ||
         table_->Declare(state, state.version_write_);
}

bool StateBackend::Write(ChangelogRecord&& record, Changes&& changes, WriteDone&& done) {
  if (failed_) return false;
  if (record.kind == ChangelogKind::kPut && !Declare(record.identity)) return false;
  return Append(std::move(record), std::move(changes), std::move(done));
}

bool StateBackend::Append(ChangelogRecord&& record, Changes&& changes, WriteDone&& done) {
  if (failed_) return false;
  Room room = Room::kRemoval;
  size_t bytes = kWriteBytes;
  size_t freed = 0;
  for (const Change& change : changes) {
    if (change.value) room = Room::kPut;
    bytes +=
        ChangeCost(change.key) + OverlaidCost(change.key, change.value ? change.value->size() : 0);
    freed += HeldBytes(change.key);
  }
  if (!TakeRoom(room, bytes, freed)) return false;
  const uint64_t write = last_write_ + 1;
  if (!changelog_.Append(EncodeChangelogRecord(record),
                         [this, write](absl::Status status) { OnAppended(write, status); })) {
    Charge(overlay_bytes_);
    return false;
  }
  last_write_ = write;
  Add(room, kWriteBytes);
  pending_.push_back(Pending{write, room, false, {}, {}});
  Pending& pending = pending_.back();
  for (Change& change : changes) {
    pending.changes.push_back(Show(change.key, std::move(change.value)));
  }
  if (done) pending.done.push_back(std::move(done));
  return true;
}

bool StateBackend::TakeRoom(Room room, size_t bytes, size_t freed) {
  const size_t total = overlay_bytes_ - freed + bytes;
  if (total <= overlay_bytes_) return true;
  if (room == Room::kRemoval && removal_bytes_ + bytes <= options_.removal_bytes_max) {
    Charge(total);
    return true;
  }
  const size_t bound = options_.overlay_bytes_max;
  const bool fits = total <= (room == Room::kRestored ? bound + bound / 4 : bound);
  if (fits && Charge(total)) return true;
  if (fits) account_refused_ = true;
  if (room == Room::kPut) overlay_refused_ = true;
  if (room == Room::kRemoval) removal_refused_ = true;
  return false;
}

bool StateBackend::Charge(size_t bytes) {
  if (options_.overlays == nullptr) return true;
  const size_t due = bytes - std::min(bytes, options_.floor_bytes);
  if (due > charged_ && !options_.overlays->Take(due - charged_)) return false;
  if (due < charged_) options_.overlays->Give(charged_ - due);
  charged_ = due;
  return true;
}

void StateBackend::Add(Room room, size_t bytes) {
  overlay_bytes_ += bytes;
  if (room == Room::kRemoval) removal_bytes_ += bytes;
}

void StateBackend::GiveBack(Room room, size_t bytes) {
  overlay_bytes_ -= bytes;
  if (room == Room::kRemoval) removal_bytes_ -= bytes;
}

size_t StateBackend::HeldBytes(absl::string_view key) const {
  const Overlay::Entry* const found = overlay_.Find(key);
  return found == nullptr ? 0 : HeldBytes(*found);
}

size_t StateBackend::HeldBytes(const Overlay::Entry& entry) {
  const Overlaid& held = entry.value;
  return OverlaidCost(entry.key(), held.value ? held.value->size() : 0) +
         (held.durable ? ChangeCost(entry.key()) : 0);
}

StateBackend::PendingChange StateBackend::Show(absl::string_view key,
                                               absl::optional<std::string> value) {
  if (value) NoteExpiry(key);
  const Room room = value ? Room::kPut : Room::kRemoval;
  Overlay::Entry& entry = overlay_.FindOrInsert(key);
  Overlaid& shown = entry.value;
  if (shown.stamp != 0) {
    GiveBack(shown.value ? Room::kPut : Room::kRemoval, HeldBytes(entry));
    if (shown.durable) (shown.value ? ready_puts_ : ready_removals_).erase(shown.stamp);
  }
  Add(room, OverlaidCost(key, value ? value->size() : 0) + ChangeCost(key));
  shown.value = std::move(value);
  shown.stamp = ++last_stamp_;
  shown.durable = false;
  ++shown.pending;
  return PendingChange{&entry, shown.stamp, room};
}

bool StateBackend::WhenDurable(WriteDone&& done) {
  if (pending_.empty()) return false;
  pending_.back().done.push_back(std::move(done));
  return true;
}

void StateBackend::OnAppended(uint64_t write, const absl::Status& status) {
  if (failed_) return;
  if (!status.ok()) return Fail(status);
  POSTRIDER_CHECK(!pending_.empty() && write >= pending_.front().write);
  Pending& answered = pending_[write - pending_.front().write];
  POSTRIDER_CHECK(answered.write == write && !answered.acknowledged);
  answered.acknowledged = true;
  absl::InlinedVector<WriteDone, 4> done;
  while (!pending_.empty() && pending_.front().acknowledged) {
    Pending& durable = pending_.front();
    for (WriteDone& callback : durable.done) done.push_back(std::move(callback));
    for (const PendingChange& change : durable.changes) OnDurable(change);
    GiveBack(durable.room, kWriteBytes);
    pending_.pop_front();
  }
  Charge(overlay_bytes_);
  // Many at once are cheaper; what is left when the last answer is in is taken then.
  if (pending_.empty() || ready_puts_.size() + ready_removals_.size() >= kApplyChanges) {
    if (const absl::Status applied = ApplyDurable(false); !applied.ok()) return Fail(applied);
  }
  for (WriteDone& callback : done) {
    if (failed_) return;
    std::move(callback)();
  }
  OfferRoom();
}

void StateBackend::OnDurable(const PendingChange& change) {
  Overlaid& shown = change.entry->value;
  --shown.pending;
  if (shown.stamp != change.stamp) {
    // Another change of the key has come after it: the store needs that one alone.
    return GiveBack(change.room, ChangeCost(change.entry->key()));
  }
  shown.durable = true;
  (shown.value ? ready_puts_ : ready_removals_).emplace(change.stamp, change.entry);
}

void StateBackend::OfferRoom() {
  if (failed_) return;
  bool offer = false;
  if (removal_refused_ && removal_bytes_ <= options_.removal_bytes_max / 2) {
    removal_refused_ = false;
    offer = true;
  }
  // Others may hold most of what there is for all: whoever wants_retry() is asked again.
  if (account_refused_ && (overlay_bytes_ < options_.floor_bytes / 2 ||
                           options_.overlays->used() <= options_.overlays->bytes_max() / 4 * 3)) {
    account_refused_ = false;
  }
  if (overlay_refused_ && !account_refused_ && overlay_bytes_ <= options_.overlay_bytes_max / 2) {
    overlay_refused_ = false;
    offer = true;
  }
  if (offer && room_) room_();
}

// `again`: puts that the store has refused are tried though nothing was removed since.
absl::Status StateBackend::ApplyDurable(bool again) {
  if (puts_refused_ && !again && ready_removals_.empty()) return absl::OkStatus();
  store_refused_ = false;
  puts_refused_ = false;
  bool removals_first = false;
  while (true) {
    batch_.Clear();
    size_t removals = 0;
    for (auto at = ready_removals_.begin(); at != ready_removals_.end() && removals < kApplyChanges;
         ++at, ++removals) {
      batch_.Delete(at->second->key());
    }
    size_t puts = 0;
    const size_t puts_max = removals_first && removals > 0 ? 0 : puts_at_once_;
    for (auto at = ready_puts_.begin();
         at != ready_puts_.end() && puts < puts_max && batch_.bytes() < kApplyBytes; ++at, ++puts) {
      batch_.Put(at->second->key(), *at->second->value.value);
    }
    if (batch_.empty()) break;
    const absl::Status applied = store_.Apply(batch_);
    if (applied.ok()) {
      Applied(ready_removals_, removals);
      Applied(ready_puts_, puts);
      if (puts > 0) puts_at_once_ = std::min(2 * puts_at_once_, kApplyChanges);
      continue;
    }
    if (!absl::IsResourceExhausted(applied)) return applied;
    // The store is full. Removals make room, and a few puts may fit where many do not; what does
    // not fit is served by the overlay.
    if (puts > 0 && removals > 0) {
      removals_first = true;
    } else if (puts > 1) {
      puts_at_once_ = puts / 2;
    } else {
      store_refused_ = true;
      puts_refused_ = true;
      if (removals > 0) RETURN_IF_ERROR(DropNeedless());
      break;
    }
  }
  Charge(overlay_bytes_);
  return absl::OkStatus();
}

// The store has taken the first `changes`.
void StateBackend::Applied(Ready& ready, size_t changes) {
  auto last = ready.begin();
  for (; changes > 0; --changes, ++last) Drop(*last->second);
  ready.erase(ready.begin(), last);
}

// What the store has, or needs not.
void StateBackend::Drop(Overlay::Entry& entry) {
  POSTRIDER_CHECK(entry.value.durable && entry.value.pending == 0);
  GiveBack(entry.value.value ? Room::kPut : Room::kRemoval, HeldBytes(entry));
  overlay_.Erase(entry);
}

// The store takes not even removals: those of what it never had need it not.
absl::Status StateBackend::DropNeedless() {
  std::string value;
  for (auto at = ready_removals_.upper_bound(needed_); at != ready_removals_.end();) {
    ASSIGN_OR_RETURN(const bool there, store_.Get(at->second->key(), value));
    needed_ = at->first;
    if (there) {
      ++at;
      continue;
    }
    Drop(*at->second);
    at = ready_removals_.erase(at);
  }
  return absl::OkStatus();
}

void StateBackend::Fail(absl::Status why) {
  if (failed_) return;
  failed_ = true;
  fail_(std::move(why));
}

void StateBackend::Erase(absl::string_view identity, uint64_t epoch) {
  POSTRIDER_CHECK(epoch < options_.epoch);
  erase_.push_back(ChangelogRecordKey(identity, epoch));
  left_bytes_ += LeftCost(erase_.back());
  GoOn();
}

std::string StateBackend::ExpiryKey(int64_t expires_ms, absl::string_view identity) {
  std::string time;
  for (int shift = 56; shift >= 0; shift -= 8) {
    time.push_back(static_cast<char>(static_cast<uint64_t>(expires_ms) >> shift));
  }
  return EncodeStateKey(kExpiryIndexId, time, identity);
}

void StateBackend::NoteExpiry(absl::string_view key) {
  if (IsOfState(kExpiryIndexId, key)) expiries_.Include(key);
}

absl::Status StateBackend::ApplyRestored(const StateBatch& batch) {
  bool overlaid = false;
  if (!overlay_.empty()) {
    batch.ForEach([&](StateBatch::Kind, absl::string_view key, absl::string_view) {
      overlaid = overlaid || overlay_.Find(key) != nullptr;
    });
  }
  if (!overlaid) {
    const absl::Status applied = store_.Apply(batch);
    if (!absl::IsResourceExhausted(applied)) {
      RETURN_IF_ERROR(applied);
      batch.ForEach([this](StateBatch::Kind kind, absl::string_view key, absl::string_view) {
        if (kind == StateBatch::Kind::kPut) NoteExpiry(key);
      });
      return absl::OkStatus();
    }
    store_refused_ = true;
  }
  if (!Hold(batch)) {
    // What was removed meanwhile may have made room.
    RETURN_IF_ERROR(ApplyDurable(true));
    if (!Hold(batch)) {
      return absl::ResourceExhaustedError("state: the store is full, and the overlay before it");
    }
  }
  return overlaid ? ApplyDurable(false) : absl::OkStatus();
}

// Takes restored values into the overlay, for the store to take when it can.
bool StateBackend::Hold(const StateBatch& batch) {
  Room room = Room::kRemoval;
  size_t bytes = 0;
  size_t freed = 0;
  batch.ForEach([&](StateBatch::Kind kind, absl::string_view key, absl::string_view value) {
    POSTRIDER_CHECK(kind != StateBatch::Kind::kDeletePrefix);
    if (kind == StateBatch::Kind::kPut) room = Room::kRestored;
    bytes += ChangeCost(key) + OverlaidCost(key, value.size());
    freed += HeldBytes(key);
  });
  if (!TakeRoom(room, bytes, freed)) return false;
  batch.ForEach([&](StateBatch::Kind kind, absl::string_view key, absl::string_view value) {
    const bool put = kind == StateBatch::Kind::kPut;
    const PendingChange change =
        Show(key, put ? absl::make_optional(std::string(value)) : absl::nullopt);
    if (change.entry->value.pending == 1) return OnDurable(change);
    // Writes of the key pend, which come first.
    pending_.back().changes.push_back(change);
  });
  return true;
}

size_t StateBackend::Sweep(WallTime now, size_t values_max) {
  if (failed_ || replay_ != nullptr || values_max == 0) return 0;
  const int64_t now_ms = MillisSinceEpoch(now);
  struct Due {
    std::string key;  // of the index
    int64_t expires_ms;
    std::string identity;
  };
  std::vector<Due> dues;
  absl::Status fault;
  const absl::StatusOr<ScanEnd> end =
      Scan(expiries_, {}, ScanLimits{values_max, 1 << 20},
           [&](absl::string_view key, absl::string_view) {
             absl::optional<StateKey> entry = DecodeStateKey(key);
             if (!entry || entry->key.size() != kExpiryBytes) {
               fault = absl::DataLossError("state: a time of expiry in the store cannot be read");
               return false;
             }
             uint64_t expires_ms = 0;
             for (const char byte : entry->key) {
               expires_ms = expires_ms << 8 | static_cast<unsigned char>(byte);
             }
             if (static_cast<int64_t>(expires_ms) > now_ms) return false;
             dues.push_back(Due{std::string(key), static_cast<int64_t>(expires_ms),
                                std::move(entry->sub_key)});
             return true;
           });
  if (fault.ok()) fault = end.status();
  size_t removed = 0;
  for (const Due& due : dues) {
    if (!fault.ok() || failed_) break;
    const absl::optional<StateKey> key = DecodeStateKey(due.identity);
    const absl::StatusOr<DurableState*> state = Find(key);
    if (!state.ok()) {
      fault = state.status();
      break;
    }
    const absl::StatusOr<DurableState::Expiry> expiry = (*state)->Expire(*key, due.expires_ms);
    if (!expiry.ok()) {
      fault = expiry.status();
      break;
    }
    if (*expiry == DurableState::Expiry::kNoRoom) break;
    if (*expiry == DurableState::Expiry::kRemoved) {
      ++removed;
    } else {
      // A restore leaves the times of values that the log replaced later.
      StateBatch stale;
      stale.Delete(due.key);
      fault = ApplyRestored(stale);
    }
    if (fault.ok()) expiries_.MoveHeadPast(due.key);
  }
  if (!fault.ok() && !absl::IsResourceExhausted(fault)) Fail(std::move(fault));
  return removed;
}

size_t StateBackend::restore_bytes() const {
  return replay_ == nullptr ? 0 : replay_->memory_bytes();
}

size_t StateBackend::memory_bytes() const {
  size_t bytes = overlay_bytes_ + left_bytes_ + restore_bytes();
  for (const auto& [id, state] : states_) bytes += state->memory_bytes();
  return bytes;
}

absl::StatusOr<bool> StateBackend::Get(absl::string_view key, std::string& value) const {
  const Overlay::Entry* const found = overlay_.Find(key);
  if (found == nullptr) return store_.Get(key, value);
  if (!found->value.value) return false;
  value = *found->value.value;
  return true;
}

absl::StatusOr<ScanEnd> StateBackend::Scan(StateRange& range, absl::string_view from,
                                           const ScanLimits& limits,
                                           StateStore::Visitor visit) const {
  const std::string start(std::max(from, range.head()));
  Overlay::Cursor overlaid = overlay_.LowerBound(start, range.end());
  const bool from_head = from <= range.head();
  std::string first;
  size_t keys = 0;
  size_t bytes = 0;
  bool stopped = false;
  const auto emit = [&](absl::string_view key, absl::string_view value) {
    if (keys == 0 && from_head) first = std::string(key);
    if (keys >= limits.keys_max ||
        (keys > 0 && bytes + key.size() + value.size() > limits.bytes_max)) {
      stopped = true;
      return false;
    }
    ++keys;
    bytes += key.size() + value.size();
    stopped = !visit(key, value);
    return !stopped;
  };
  const auto emit_overlaid_below = [&](absl::string_view key) {
    for (; overlaid.entry() != nullptr && overlaid.entry()->key() < key; overlaid.Next()) {
      const absl::optional<std::string>& value = overlaid.entry()->value.value;
      if (value && !emit(overlaid.entry()->key(), *value)) return false;
    }
    return true;
  };
  // The limits are of what is shown; the store's own keys may be deleted in the overlay.
  constexpr ScanLimits kUnlimited{~size_t{0}, ~size_t{0} / 2};
  ASSIGN_OR_RETURN(
      const ScanEnd store_end,
      store_.Scan(range, start, kUnlimited, [&](absl::string_view key, absl::string_view value) {
        if (!emit_overlaid_below(key)) return false;
        if (overlaid.entry() != nullptr && overlaid.entry()->key() == key) {
          const Overlaid& change = overlaid.entry()->value;
          overlaid.Next();
          return !change.value || emit(key, *change.value);
        }
        return emit(key, value);
      }));
  if (store_end == ScanEnd::kRangeEnd && !stopped) emit_overlaid_below(range.end());
  // The store has moved the head to its own first key; the overlay may have one before it, or have
  // deleted it.
  if (!first.empty()) {
    range.Include(first);
    range.MoveHead(first);
  }
  return stopped ? ScanEnd::kLimit : ScanEnd::kRangeEnd;
}

void StateBackend::BeginRestore(ChangelogReplay& replay) {
  POSTRIDER_CHECK(replay_ == nullptr && last_write_ == 0);
  replay_ = &replay;
}

absl::StatusOr<DurableState*> StateBackend::Find(const absl::optional<StateKey>& key) const {
  if (!key) return absl::DataLossError("state: a restored record has an identity of no known form");
  const auto found = states_.find(key->state);
  if (found != states_.end()) return found->second;
  return absl::FailedPreconditionError(absl::StrCat("state: a restored record belongs to state ",
                                                    key->state,
                                                    ", which this binary does not know"));
}

absl::Status StateBackend::RestoreRecord(absl::string_view key, absl::string_view value) {
  POSTRIDER_CHECK(replay_ != nullptr);
  if (!step_) {
    ASSIGN_OR_RETURN(step_, replay_->Read(key, value));
  }
  if (step_->finished_version > 0) {
    RETURN_IF_ERROR(OnFinished(step_->finished_state, step_->finished_version));
  }
  if (step_->effect == ChangelogReplay::Effect::kPutBefore) {
    const absl::optional<StateKey> state_key = DecodeStateKey(step_->identity);
    ASSIGN_OR_RETURN(DurableState * state, Find(state_key));
    RETURN_IF_ERROR(state->RestoreBefore(*state_key, step_->payload));
  } else if (step_->effect != ChangelogReplay::Effect::kNone && !replay_->IsLive(step_->identity)) {
    const absl::optional<StateKey> state_key = DecodeStateKey(step_->identity);
    ASSIGN_OR_RETURN(DurableState * state, Find(state_key));
    if (step_->effect == ChangelogReplay::Effect::kPut) {
      RETURN_IF_ERROR(state->Restore(*state_key, step_->epoch, step_->payload));
    } else {
      RETURN_IF_ERROR(state->RestoreRemoved(*state_key));
    }
  }
  step_ = absl::nullopt;
  return absl::OkStatus();
}

absl::Status StateBackend::OnFinished(const std::string& name, uint32_t version) {
  DurableState* const state = FindByName(name);
  if (state != nullptr && version <= state->versions().max) {
    state->version_write_ = std::max(state->version_write_, version);
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "state: the upgrade of '", name, "' to version ", version, " is finished; ",
      state == nullptr ? std::string("this binary does not know that state")
                       : absl::StrCat("this binary reads up to ", state->versions().max),
      "; run the newer binary"));
}

void StateBackend::EndRestore() {
  POSTRIDER_CHECK(replay_ != nullptr);
  for (std::string& identity : replay_->Reassert()) {
    left_bytes_ += LeftCost(identity);
    reassert_.push_back(std::move(identity));
  }
  for (std::string& key : replay_->TakeErasable()) {
    left_bytes_ += LeftCost(key);
    erase_.push_back(std::move(key));
  }
  replay_ = nullptr;
  for (const auto& [id, state] : states_) state->OnRestoreEnd();
  OnRoom();
}

void StateBackend::OnRoom() {
  GoOn();
  OfferRoom();
}

void StateBackend::GoOn() {
  if (failed_ || going_on_) return;
  going_on_ = true;
  if (absl::Status applied = ApplyDurable(true); !applied.ok()) Fail(std::move(applied));
  if (!failed_ && replay_ == nullptr) Settle();
  going_on_ = false;
}

void StateBackend::Settle() {
  while (!reassert_.empty() && !failed_) {
    const absl::optional<StateKey> key = DecodeStateKey(reassert_.front());
    const absl::StatusOr<DurableState*> state = Find(key);
    if (!state.ok()) return Fail(state.status());
    const absl::StatusOr<bool> taken = (*state)->Reassert(*key);
    if (!taken.ok()) return Fail(taken.status());
    if (!*taken) return;
    left_bytes_ -= LeftCost(reassert_.front());
    reassert_.pop_front();
  }
  while (!erase_.empty() && !failed_) {
    // A tombstone that is refused hides nothing: the next restore lists its record again.
    if (!changelog_.AppendErasure(EncodedChangelogRecord{erase_.front(), ""},
                                  [this](absl::Status status) {
                                    if (!status.ok()) return Fail(std::move(status));
                                    --erasing_;
                                    OfferRoom();
                                  })) {
      return;
    }
    ++erasing_;
    left_bytes_ -= LeftCost(erase_.front());
    erase_.pop_front();
  }
}

}  // namespace postrider
