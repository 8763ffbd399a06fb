#include "core/stream/keyed_state.h"

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
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace postrider {
namespace {

// Sub-keys of a list in the store: its queue, and where each identity stands in it.
constexpr char kQueue = 'q';
constexpr char kPlace = 'p';
constexpr size_t kOrderBytes = 8;

std::string WithEpoch(uint64_t epoch, absl::string_view payload) {
  ByteWriter out;
  out.Varint(epoch);
  out.Raw(payload);
  return out.Take();
}

void AppendOrder(uint64_t order, std::string& out) {
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(order >> shift));
}
std::string QueueSubKey(uint64_t order, absl::string_view identity) {
  std::string sub_key(1, kQueue);
  AppendOrder(order, sub_key);
  sub_key.append(identity.data(), identity.size());
  return sub_key;
}
std::string QueueKey(uint16_t state, absl::string_view key, uint64_t order,
                     absl::string_view identity) {
  return EncodeStateKey(state, key, QueueSubKey(order, identity));
}
std::string PlaceKey(uint16_t state, absl::string_view key, absl::string_view identity) {
  return EncodeStateKey(state, key, kPlace + std::string(identity));
}
// Byte strings that are closed parts sort by their content, so this is where a queue begins.
StateRange QueueRange(uint16_t state, absl::string_view key) {
  return StateRange(StatePrefix(state, key) + kQueue);
}
std::string PlaceValue(uint64_t order, uint64_t epoch) {
  ByteWriter out;
  out.Varint(epoch);
  out.Varint(order);
  return out.Take();
}

int64_t ExpiresMs(const Clock& clock, std::chrono::milliseconds ttl) {
  return ttl.count() == 0 ? 0 : MillisSinceEpoch(clock.Wall()) + ttl.count();
}
bool IsExpired(const Clock& clock, const StatePayload& payload) {
  return payload.expires_ms != 0 && MillisSinceEpoch(clock.Wall()) >= payload.expires_ms;
}

absl::Status NewerVersion(const std::string& name, uint32_t version, uint32_t version_max) {
  return absl::FailedPreconditionError(absl::StrCat("state: a value of '", name, "' has version ",
                                                    version, "; this binary reads up to ",
                                                    version_max));
}
absl::Status CheckPayload(const std::string& name, absl::string_view encoded,
                          uint32_t version_max) {
  const absl::optional<StatePayload> payload = DecodeStatePayload(encoded);
  if (!payload) return InPlaceState::Unreadable(name);
  if (payload->version > version_max) return NewerVersion(name, payload->version, version_max);
  return absl::OkStatus();
}

}  // namespace

std::string EncodeStatePayload(const StatePayload& payload) {
  ByteWriter out;
  out.Varint(payload.version);
  out.Zigzag(payload.expires_ms);
  out.Varint(payload.order);
  out.Raw(payload.bytes);
  return out.Take();
}

absl::optional<StatePayload> DecodeStatePayload(absl::string_view encoded) {
  ByteReader in(encoded);
  StatePayload payload;
  const uint64_t version = in.Varint();
  payload.expires_ms = in.Zigzag();
  payload.order = in.Varint();
  if (!in.ok() || version > ~uint32_t{0}) return absl::nullopt;
  payload.version = static_cast<uint32_t>(version);
  payload.bytes = in.rest();
  return payload;
}

ChangelogReplay::Rule ReplayRuleOf(absl::string_view identity) {
  const bool list = identity.size() >= 2 && (static_cast<unsigned char>(identity[1]) & 1) != 0;
  return list ? ChangelogReplay::Rule::kOnce : ChangelogReplay::Rule::kInPlace;
}

InPlaceState::InPlaceState(StateBackend& backend, const Clock& clock, StateDescriptor descriptor,
                           uint32_t version_max)
    : DurableState(descriptor.id, std::move(descriptor.name)),
      backend_(backend),
      clock_(clock),
      ttl_(descriptor.ttl),
      version_max_(version_max) {
  POSTRIDER_CHECK(id() % 2 == 0);
  backend_.Register(*this);
}

absl::Status InPlaceState::Unreadable(const std::string& name) {
  return absl::DataLossError(absl::StrCat("state: a value of '", name, "' cannot be read"));
}

absl::Status InPlaceState::CheckVersion(const StatePayload& payload) const {
  if (payload.version <= version_max_) return absl::OkStatus();
  return NewerVersion(name(), payload.version, version_max_);
}

absl::StatusOr<absl::optional<InPlaceState::Stored>> InPlaceState::Read(
    const std::string& identity) const {
  std::string value;
  ASSIGN_OR_RETURN(const bool found, backend_.Get(identity, value));
  if (!found) return absl::optional<Stored>();
  ByteReader in(value);
  Stored stored;
  stored.epoch = in.Varint();
  if (!in.ok()) return Unreadable(name());
  stored.payload = std::string(in.rest());
  return absl::make_optional(std::move(stored));
}

absl::StatusOr<absl::optional<InPlaceState::Found>> InPlaceState::Get(
    absl::string_view key, absl::string_view sub_key) const {
  ASSIGN_OR_RETURN(const absl::optional<Stored> stored, Read(EncodeStateKey(id(), key, sub_key)));
  if (!stored) return absl::optional<Found>();
  const absl::optional<StatePayload> payload = DecodeStatePayload(stored->payload);
  if (!payload) return Unreadable(name());
  RETURN_IF_ERROR(CheckVersion(*payload));
  if (IsExpired(clock_, *payload)) return absl::optional<Found>();
  return absl::make_optional(Found{payload->version, std::string(payload->bytes)});
}

void InPlaceState::Include(absl::string_view key, absl::string_view identity) {
  const auto scanned = scanned_.find(key);
  if (scanned != scanned_.end()) scanned->second.Include(identity);
}

bool InPlaceState::Write(absl::string_view key, absl::string_view sub_key,
                         absl::optional<std::string> payload, StateBackend::WriteDone&& done) {
  const std::string identity = EncodeStateKey(id(), key, sub_key);
  const absl::StatusOr<absl::optional<Stored>> before = Read(identity);
  ChangelogRecord record;
  record.kind = payload ? ChangelogKind::kPut : ChangelogKind::kClear;
  record.epoch = backend_.epoch();
  record.identity = identity;
  std::vector<StateBackend::Change> changes(1);
  changes[0].key = identity;
  if (payload) {
    changes[0].value = WithEpoch(record.epoch, *payload);
    record.payload = *std::move(payload);
  }
  const bool put = record.kind == ChangelogKind::kPut;
  if (!backend_.Write(std::move(record), std::move(changes), std::move(done))) return false;
  if (put) Include(key, identity);
  if (backend_.restoring() != nullptr) {
    if (put) {
      backend_.restoring()->OnLivePut(identity);
    } else {
      backend_.restoring()->OnLiveRemove(identity);
    }
  } else if (before.ok() && *before && (*before)->epoch < backend_.epoch()) {
    backend_.Erase(identity, (*before)->epoch);
  }
  return true;
}

bool InPlaceState::Put(absl::string_view key, absl::string_view sub_key, uint32_t version,
                       absl::string_view bytes, StateBackend::WriteDone&& done) {
  return Write(key, sub_key,
               EncodeStatePayload(StatePayload{version, ExpiresMs(clock_, ttl_), 0, bytes}),
               std::move(done));
}

bool InPlaceState::Clear(absl::string_view key, absl::string_view sub_key,
                         StateBackend::WriteDone&& done) {
  return Write(key, sub_key, absl::nullopt, std::move(done));
}

absl::StatusOr<ScanEnd> InPlaceState::ForEach(absl::string_view key, absl::string_view from,
                                              const ScanLimits& limits, Visitor visit) {
  auto scanned = scanned_.find(key);
  if (scanned == scanned_.end()) {
    scanned = scanned_.emplace(std::string(key), StateRange(StatePrefix(id(), key))).first;
  }
  StateRange& range = scanned->second;
  bool empty = from.empty();
  absl::Status fault;
  absl::StatusOr<ScanEnd> end = backend_.Scan(
      range, from.empty() ? std::string() : EncodeStateKey(id(), key, from), limits,
      [&](absl::string_view identity, absl::string_view value) {
        empty = false;
        const absl::optional<StateKey> state_key = DecodeStateKey(identity);
        ByteReader in(value);
        in.Varint();
        const absl::optional<StatePayload> payload = DecodeStatePayload(in.rest());
        if (!state_key || !in.ok() || !payload) {
          fault = Unreadable(name());
          return false;
        }
        fault = CheckVersion(*payload);
        if (!fault.ok()) return false;
        if (IsExpired(clock_, *payload)) return true;
        return visit(state_key->sub_key, Found{payload->version, std::string(payload->bytes)});
      });
  RETURN_IF_ERROR(fault);
  if (empty && end.ok() && *end == ScanEnd::kRangeEnd) scanned_.erase(scanned);
  return end;
}

absl::Status InPlaceState::Restore(const StateKey& key, uint64_t epoch, absl::string_view payload) {
  RETURN_IF_ERROR(CheckPayload(name(), payload, version_max_));
  const std::string identity = EncodeStateKey(id(), key.key, key.sub_key);
  StateBatch batch;
  batch.Put(identity, WithEpoch(epoch, payload));
  Include(key.key, identity);
  return backend_.ApplyRestored(batch);
}

absl::Status InPlaceState::RestoreRemoved(const StateKey& key) {
  StateBatch batch;
  batch.Delete(EncodeStateKey(id(), key.key, key.sub_key));
  return backend_.ApplyRestored(batch);
}

absl::StatusOr<bool> InPlaceState::Reassert(const StateKey& key) {
  ASSIGN_OR_RETURN(absl::optional<Stored> stored, Read(EncodeStateKey(id(), key.key, key.sub_key)));
  if (!stored || stored->epoch >= backend_.epoch()) return true;
  return Write(key.key, key.sub_key, std::move(stored->payload), {});
}

ListState::ListState(StateBackend& backend, const Clock& clock, StateDescriptor descriptor,
                     uint32_t version_max)
    : DurableState(descriptor.id, std::move(descriptor.name)),
      backend_(backend),
      clock_(clock),
      ttl_(descriptor.ttl),
      version_max_(version_max) {
  POSTRIDER_CHECK(id() % 2 == 1);
  backend_.Register(*this);
}

absl::StatusOr<absl::optional<ListState::Place>> ListState::Find(absl::string_view key,
                                                                 absl::string_view identity) const {
  std::string value;
  ASSIGN_OR_RETURN(const bool found, backend_.Get(PlaceKey(id(), key, identity), value));
  if (!found) return absl::optional<Place>();
  ByteReader in(value);
  Place place;
  place.epoch = in.Varint();
  place.order = in.Varint();
  if (!in.done()) return InPlaceState::Unreadable(name());
  return absl::make_optional(place);
}

void ListState::Added(absl::string_view key, const std::string& queue_key, bool is_new) {
  auto found = queues_.find(key);
  if (found == queues_.end()) {
    found = queues_.emplace(std::string(key), Queue{QueueRange(id(), key)}).first;
    found->second.range.MoveHead(queue_key);
  }
  found->second.range.Include(queue_key);
  if (!is_new) return;
  ++found->second.entries;
  ++entries_;
}

void ListState::Removed(absl::string_view key) {
  const auto found = queues_.find(key);
  POSTRIDER_CHECK(found != queues_.end() && found->second.entries > 0);
  --entries_;
  if (--found->second.entries == 0) queues_.erase(found);
}

absl::StatusOr<ListState::Pushed> ListState::Push(absl::string_view key, uint64_t order,
                                                  absl::string_view identity, uint32_t version,
                                                  absl::string_view value,
                                                  StateBackend::WriteDone done) {
  ASSIGN_OR_RETURN(const absl::optional<Place> before, Find(key, identity));
  if (before && before->epoch == backend_.epoch()) return Pushed::kThere;
  if (before) order = before->order;
  std::string payload =
      EncodeStatePayload(StatePayload{version, ExpiresMs(clock_, ttl_), order, value});
  return Put(key, identity, Place{order, backend_.epoch()}, before, std::move(payload),
             std::move(done))
             ? Pushed::kTaken
             : Pushed::kNoRoom;
}

bool ListState::Put(absl::string_view key, absl::string_view identity, const Place& place,
                    const absl::optional<Place>& before, std::string payload,
                    StateBackend::WriteDone&& done) {
  ChangelogRecord record;
  record.epoch = place.epoch;
  record.identity = EncodeStateKey(id(), key, identity);
  record.payload = std::move(payload);
  const std::string log_identity = record.identity;
  const std::string queue_key = QueueKey(id(), key, place.order, identity);
  std::vector<StateBackend::Change> changes(2);
  changes[0].key = queue_key;
  changes[0].value = record.payload;
  changes[1].key = PlaceKey(id(), key, identity);
  changes[1].value = PlaceValue(place.order, place.epoch);
  if (!backend_.Write(std::move(record), std::move(changes), std::move(done))) return false;
  Added(key, queue_key, !before);
  if (backend_.restoring() != nullptr) {
    backend_.restoring()->OnLivePut(log_identity);
  } else if (before) {
    backend_.Erase(log_identity, before->epoch);
  }
  return true;
}

absl::StatusOr<bool> ListState::Remove(absl::string_view key, absl::string_view identity,
                                       StateBackend::WriteDone done) {
  ASSIGN_OR_RETURN(const absl::optional<Place> place, Find(key, identity));
  // While the log is being read there may be more of this identity in it than was met.
  const bool restoring = backend_.restoring() != nullptr;
  const bool exact = place && !restoring;
  ChangelogRecord record;
  record.kind = exact ? ChangelogKind::kErase : ChangelogKind::kDelete;
  record.epoch = exact ? place->epoch : backend_.epoch();
  record.identity = EncodeStateKey(id(), key, identity);
  std::vector<StateBackend::Change> changes;
  if (place) {
    changes.resize(2);
    changes[0].key = QueueKey(id(), key, place->order, identity);
    changes[1].key = PlaceKey(id(), key, identity);
  }
  const std::string log_identity = record.identity;
  if (!backend_.Write(std::move(record), std::move(changes), std::move(done))) return false;
  if (place) Removed(key);
  if (restoring) backend_.restoring()->OnLiveRemove(log_identity);
  return true;
}

absl::StatusOr<ScanEnd> ListState::Scan(absl::string_view key, const ScanLimits& limits,
                                        absl::FunctionRef<bool(const Entry&)> visit) {
  return Scan(key, 0, absl::string_view(), limits, visit);
}

absl::StatusOr<ScanEnd> ListState::Scan(absl::string_view key, uint64_t from_order,
                                        absl::string_view from_identity, const ScanLimits& limits,
                                        absl::FunctionRef<bool(const Entry&)> visit) {
  const auto queue = queues_.find(key);
  if (queue == queues_.end()) return ScanEnd::kRangeEnd;
  absl::Status fault;
  absl::StatusOr<ScanEnd> end = backend_.Scan(
      queue->second.range, QueueKey(id(), key, from_order, from_identity), limits,
      [&](absl::string_view queue_key, absl::string_view value) {
        const absl::optional<StateKey> state_key = DecodeStateKey(queue_key);
        const absl::optional<StatePayload> payload = DecodeStatePayload(value);
        if (!state_key || state_key->sub_key.size() < 1 + kOrderBytes || !payload) {
          fault = InPlaceState::Unreadable(name());
          return false;
        }
        if (payload->version > version_max_) {
          fault = NewerVersion(name(), payload->version, version_max_);
          return false;
        }
        if (IsExpired(clock_, *payload)) return true;
        const absl::string_view identity =
            absl::string_view(state_key->sub_key).substr(1 + kOrderBytes);
        return visit(Entry{payload->order, identity, payload->version, payload->bytes});
      });
  RETURN_IF_ERROR(fault);
  return end;
}

uint64_t ListState::size(absl::string_view key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.entries;
}

absl::Status ListState::Restore(const StateKey& key, uint64_t epoch, absl::string_view payload) {
  RETURN_IF_ERROR(CheckPayload(name(), payload, version_max_));
  const uint64_t order = DecodeStatePayload(payload)->order;
  ASSIGN_OR_RETURN(const absl::optional<Place> before, Find(key.key, key.sub_key));
  const std::string queue_key = QueueKey(id(), key.key, order, key.sub_key);
  StateBatch batch;
  if (before && before->order != order) {
    batch.Delete(QueueKey(id(), key.key, before->order, key.sub_key));
  }
  batch.Put(queue_key, payload);
  batch.Put(PlaceKey(id(), key.key, key.sub_key), PlaceValue(order, epoch));
  RETURN_IF_ERROR(backend_.ApplyRestored(batch));
  Added(key.key, queue_key, !before);
  return absl::OkStatus();
}

absl::Status ListState::RestoreRemoved(const StateKey& key) {
  ASSIGN_OR_RETURN(const absl::optional<Place> place, Find(key.key, key.sub_key));
  if (!place) return absl::OkStatus();
  StateBatch batch;
  batch.Delete(QueueKey(id(), key.key, place->order, key.sub_key));
  batch.Delete(PlaceKey(id(), key.key, key.sub_key));
  RETURN_IF_ERROR(backend_.ApplyRestored(batch));
  Removed(key.key);
  return absl::OkStatus();
}

absl::StatusOr<bool> ListState::Reassert(const StateKey& key) {
  ASSIGN_OR_RETURN(const absl::optional<Place> place, Find(key.key, key.sub_key));
  if (!place || place->epoch >= backend_.epoch()) return true;
  std::string encoded;
  ASSIGN_OR_RETURN(const bool found,
                   backend_.Get(QueueKey(id(), key.key, place->order, key.sub_key), encoded));
  if (!found) return InPlaceState::Unreadable(name());
  // As it is: it expires when it would have.
  return Put(key.key, key.sub_key, Place{place->order, backend_.epoch()}, place, std::move(encoded),
             {});
}

}  // namespace postrider
