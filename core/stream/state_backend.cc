#include "core/stream/state_backend.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

namespace postrider {
namespace {

// What an overlaid change costs beside its bytes: it stands in the overlay and among the writes.
constexpr size_t kChangeBytes = 128;
// Writes that the store takes in one batch.
constexpr size_t kApplyWrites = 64;

}  // namespace

StateBackend::StateBackend(const StateBackendOptions& options, StateStore& store,
                           ChangelogWriter& changelog,
                           absl::AnyInvocable<void(absl::Status)> failed)
    : options_(options), store_(store), changelog_(changelog), fail_(std::move(failed)) {}

StateBackend::~StateBackend() = default;

void StateBackend::Register(DurableState& state) {
  const bool added = states_.try_emplace(state.id(), &state).second;
  POSTRIDER_CHECK(added);
}

size_t StateBackend::Cost(const Change& change) {
  const size_t value_bytes = change.value ? change.value->size() : 0;
  return 2 * (change.key.size() + value_bytes) + kChangeBytes;
}

bool StateBackend::Write(ChangelogRecord&& record, std::vector<Change>&& changes,
                         WriteDone&& done) {
  if (failed_) return false;
  size_t bytes = 0;
  for (const Change& change : changes) bytes += Cost(change);
  if (overlay_bytes_ + bytes > options_.overlay_bytes_max) return false;
  const uint64_t write = last_write_ + 1;
  if (!changelog_.Append(EncodeChangelogRecord(record),
                         [this, write](absl::Status status) { OnAppended(write, status); })) {
    return false;
  }
  last_write_ = write;
  overlay_bytes_ += bytes;
  for (const Change& change : changes) overlay_[change.key] = Overlaid{change.value, write};
  pending_.push_back(Pending{write, false, std::move(changes), {}});
  if (done) pending_.back().done.push_back(std::move(done));
  return true;
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
  std::vector<WriteDone> done;
  while (!pending_.empty() && pending_.front().acknowledged) {
    for (WriteDone& callback : pending_.front().done) done.push_back(std::move(callback));
    durable_.push_back(std::move(pending_.front()));
    pending_.pop_front();
  }
  // Many at once are cheaper; what is left when the last answer is in is taken then.
  if (pending_.empty() || durable_.size() >= kApplyWrites) ApplyAcknowledged();
  for (WriteDone& callback : done) {
    if (failed_) return;
    std::move(callback)();
  }
}

void StateBackend::ApplyAcknowledged() {
  while (!durable_.empty() && !failed_) {
    const size_t writes = std::min(durable_.size(), kApplyWrites);
    batch_.Clear();
    for (size_t i = 0; i < writes; ++i) {
      for (const Change& change : durable_[i].changes) {
        if (change.value) {
          batch_.Put(change.key, *change.value);
        } else {
          batch_.Delete(change.key);
        }
      }
    }
    const absl::Status applied = store_.Apply(batch_);
    // The store is full: the overlay goes on to serve it, and refuses new writes at its bound.
    if (absl::IsResourceExhausted(applied)) return;
    if (!applied.ok()) return Fail(applied);
    for (size_t i = 0; i < writes; ++i) {
      for (const Change& change : durable_.front().changes) {
        overlay_bytes_ -= Cost(change);
        const auto found = overlay_.find(change.key);
        if (found != overlay_.end() && found->second.write == durable_.front().write) {
          overlay_.erase(found);
        }
      }
      durable_.pop_front();
    }
  }
}

void StateBackend::Fail(absl::Status why) {
  if (failed_) return;
  failed_ = true;
  fail_(std::move(why));
}

void StateBackend::Erase(absl::string_view identity, uint64_t epoch) {
  POSTRIDER_CHECK(epoch < options_.epoch);
  erase_.push_back(ChangelogRecordKey(identity, epoch));
  OnRoom();
}

absl::StatusOr<bool> StateBackend::Get(absl::string_view key, std::string& value) const {
  const auto found = overlay_.find(key);
  if (found == overlay_.end()) return store_.Get(key, value);
  if (!found->second.value) return false;
  value = *found->second.value;
  return true;
}

absl::StatusOr<ScanEnd> StateBackend::Scan(StateRange& range, absl::string_view from,
                                           const ScanLimits& limits,
                                           StateStore::Visitor visit) const {
  const std::string start(std::max(from, range.head()));
  auto overlaid = overlay_.lower_bound(start);
  const auto overlay_end = overlay_.lower_bound(range.end());
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
    for (; overlaid != overlay_end && absl::string_view(overlaid->first) < key; ++overlaid) {
      if (overlaid->second.value && !emit(overlaid->first, *overlaid->second.value)) return false;
    }
    return true;
  };
  // The limits are of what is shown; the store's own keys may be deleted in the overlay.
  constexpr ScanLimits kUnlimited{~size_t{0}, ~size_t{0} / 2};
  ASSIGN_OR_RETURN(
      const ScanEnd store_end,
      store_.Scan(range, start, kUnlimited, [&](absl::string_view key, absl::string_view value) {
        if (!emit_overlaid_below(key)) return false;
        if (overlaid != overlay_end && overlaid->first == key) {
          const Overlaid& change = overlaid->second;
          ++overlaid;
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
  if (step_->effect != ChangelogReplay::Effect::kNone && !replay_->IsLive(step_->identity)) {
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

void StateBackend::EndRestore() {
  POSTRIDER_CHECK(replay_ != nullptr);
  for (std::string& identity : replay_->Reassert()) reassert_.push_back(std::move(identity));
  for (std::string& key : replay_->TakeErasable()) erase_.push_back(std::move(key));
  replay_ = nullptr;
  OnRoom();
}

void StateBackend::OnRoom() {
  if (failed_ || going_on_) return;
  going_on_ = true;
  ApplyAcknowledged();
  if (replay_ == nullptr) Settle();
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
    reassert_.pop_front();
  }
  while (!erase_.empty() && !failed_) {
    // A tombstone that is refused hides nothing: the next restore lists its record again.
    if (!changelog_.Append(EncodedChangelogRecord{erase_.front(), ""}, [this](absl::Status status) {
          if (!status.ok()) Fail(std::move(status));
        })) {
      return;
    }
    erase_.pop_front();
  }
}

}  // namespace postrider
