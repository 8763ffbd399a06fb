#include "core/stream/keyed_state.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/stream/changelog.h"

namespace postrider {
namespace {

constexpr size_t kOrderBytes = 8;
constexpr size_t kVarintBytesMax = 10;

std::string WithEpoch(uint64_t epoch, absl::string_view payload) {
  ByteWriter out(kVarintBytesMax + payload.size());
  out.Varint(epoch);
  out.Raw(payload);
  return out.Take();
}

// Empty for what WithEpoch() has not made.
absl::string_view WithoutEpoch(absl::string_view value, uint64_t* epoch = nullptr) {
  ByteReader in(value);
  const uint64_t read = in.Varint();
  if (epoch != nullptr) *epoch = read;
  return in.ok() ? in.rest() : absl::string_view();
}

std::string OrderBytes(uint64_t order) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(order >> shift));
  return bytes;
}
// Where an entry's value lies in the store. Its sub-key is its order and its identity.
std::string QueueKey(uint16_t state, absl::string_view key, uint64_t order,
                     absl::string_view identity) {
  const std::string order_bytes = OrderBytes(order);
  std::string out =
      StatePrefix(state, key, EscapedBytes(order_bytes) + EscapedBytes(identity) + kPartEndBytes);
  AppendEscaped(order_bytes, out);
  AppendEscaped(identity, out);
  AppendPartEnd(out);
  return out;
}
// Where the order of an identity's entry lies.
std::string PlaceKey(uint16_t state, absl::string_view key, absl::string_view identity) {
  const std::string list = StatePrefix(state).append(key.data(), key.size());
  return EncodeStateKey(kPlaceIndexId, list, identity);
}
uint64_t HashOf(absl::string_view key, absl::string_view identity) {
  return absl::HashOf(key, identity);
}
StateRange QueueRange(uint16_t state, absl::string_view key) {
  return StateRange(StatePrefix(state, key));
}
std::string PlaceValue(uint64_t order, uint64_t epoch, uint64_t bytes) {
  ByteWriter out;
  out.Varint(epoch);
  out.Varint(order);
  out.Varint(bytes);
  return out.Take();
}

int64_t ExpiresMs(const Clock& clock, std::chrono::milliseconds ttl) {
  return ttl.count() == 0 ? 0 : MillisSinceEpoch(clock.Wall()) + ttl.count();
}
bool IsExpired(const Clock& clock, const StatePayload& payload) {
  return payload.expires_ms != 0 && MillisSinceEpoch(clock.Wall()) >= payload.expires_ms;
}
// Of an encoded payload that may be no such thing.
int64_t ExpiryOf(absl::string_view encoded) {
  const absl::optional<StatePayload> payload = DecodeStatePayload(encoded);
  return payload ? payload->expires_ms : 0;
}
// Replaces the note of when a value expires by that of the one after it; 0: none.
void ChangeExpiry(const std::string& identity, int64_t before_ms, int64_t after_ms,
                  StateBackend::Changes& changes) {
  if (before_ms == after_ms) return;
  if (before_ms != 0) {
    changes.push_back({StateBackend::ExpiryKey(before_ms, identity), absl::nullopt});
  }
  if (after_ms != 0) changes.push_back({StateBackend::ExpiryKey(after_ms, identity), ""});
}

absl::Status NewerVersion(const std::string& name, uint32_t version, uint32_t version_max) {
  return absl::FailedPreconditionError(absl::StrCat("state: a value of '", name, "' has version ",
                                                    version, "; this binary reads up to ",
                                                    version_max, "; run the newer binary"));
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
  ByteWriter out(3 * kVarintBytesMax + payload.bytes.size());
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
                           StateVersions versions)
    : DurableState(descriptor.id, std::move(descriptor.name), versions),
      backend_(backend),
      clock_(clock),
      ttl_(descriptor.ttl),
      keys_(StatePrefix(id())) {
  POSTRIDER_CHECK(id() % 2 == 0);
  backend_.Register(*this);
}

absl::Status InPlaceState::Unreadable(const std::string& name) {
  return absl::DataLossError(absl::StrCat("state: a value of '", name, "' cannot be read"));
}

absl::Status InPlaceState::CheckVersion(const StatePayload& payload) const {
  if (payload.version <= versions().max) return absl::OkStatus();
  return NewerVersion(name(), payload.version, versions().max);
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
  keys_.Include(identity);
}

bool InPlaceState::Write(ChangelogKind kind, absl::string_view key, absl::string_view sub_key,
                         std::string payload, StateBackend::WriteDone&& done) {
  const std::string identity = EncodeStateKey(id(), key, sub_key);
  const absl::StatusOr<absl::optional<Stored>> before = Read(identity);
  const bool had_value = before.ok() && before->has_value();
  const bool put = kind == ChangelogKind::kPut;
  ChangelogRecord record;
  record.kind = kind;
  record.epoch = kind == ChangelogKind::kErase && had_value ? (*before)->epoch : backend_.epoch();
  record.identity = identity;
  StateBackend::Changes changes(1);
  changes[0].key = identity;
  ChangeExpiry(identity, had_value ? ExpiryOf((*before)->payload) : 0, put ? ExpiryOf(payload) : 0,
               changes);
  if (put) {
    changes[0].value = WithEpoch(record.epoch, payload);
    record.payload = std::move(payload);
  }
  if (!backend_.Write(std::move(record), std::move(changes), std::move(done))) return false;
  if (put) Include(key, identity);
  if (backend_.restoring() != nullptr) {
    if (put) {
      backend_.restoring()->OnLivePut(identity);
    } else {
      backend_.restoring()->OnLiveRemove(identity);
    }
  } else if (kind != ChangelogKind::kErase && had_value && (*before)->epoch < backend_.epoch()) {
    backend_.Erase(identity, (*before)->epoch);
  }
  return true;
}

bool InPlaceState::Put(absl::string_view key, absl::string_view sub_key, uint32_t version,
                       absl::string_view bytes, StateBackend::WriteDone&& done) {
  return Write(ChangelogKind::kPut, key, sub_key,
               EncodeStatePayload(StatePayload{version, ExpiresMs(clock_, ttl_), 0, bytes}),
               std::move(done));
}

bool InPlaceState::Clear(absl::string_view key, absl::string_view sub_key,
                         StateBackend::WriteDone&& done) {
  return Write(ChangelogKind::kClear, key, sub_key, {}, std::move(done));
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

absl::StatusOr<ScanEnd> InPlaceState::ForEachKey(
    absl::string_view after, const ScanLimits& limits,
    absl::FunctionRef<bool(absl::string_view key)> visit) {
  std::string last(after);
  bool any = !after.empty();
  absl::Status fault;
  absl::StatusOr<ScanEnd> end =
      backend_.Scan(keys_, any ? PrefixEnd(StatePrefix(id(), after)) : std::string(), limits,
                    [&](absl::string_view identity, absl::string_view) {
                      absl::optional<StateKey> key = DecodeStateKey(identity);
                      if (!key) {
                        fault = Unreadable(name());
                        return false;
                      }
                      if (any && key->key == last) return true;
                      any = true;
                      last = std::move(key->key);
                      return visit(last);
                    });
  RETURN_IF_ERROR(fault);
  return end;
}

absl::Status InPlaceState::Restore(const StateKey& key, uint64_t epoch, absl::string_view payload) {
  RETURN_IF_ERROR(CheckPayload(name(), payload, versions().max));
  const std::string identity = EncodeStateKey(id(), key.key, key.sub_key);
  StateBatch batch;
  batch.Put(identity, WithEpoch(epoch, payload));
  const int64_t expires_ms = ExpiryOf(payload);
  if (expires_ms != 0) batch.Put(StateBackend::ExpiryKey(expires_ms, identity), "");
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
  return Write(ChangelogKind::kPut, key.key, key.sub_key, std::move(stored->payload), {});
}

absl::StatusOr<DurableState::Expiry> InPlaceState::Expire(const StateKey& key, int64_t expires_ms) {
  ASSIGN_OR_RETURN(const absl::optional<Stored> stored,
                   Read(EncodeStateKey(id(), key.key, key.sub_key)));
  if (!stored || ExpiryOf(stored->payload) != expires_ms) return Expiry::kStale;
  // Once all is settled, the record that is stored is the only one of its identity.
  const ChangelogKind kind = backend_.settled() ? ChangelogKind::kErase : ChangelogKind::kClear;
  return Write(kind, key.key, key.sub_key, {}, {}) ? Expiry::kRemoved : Expiry::kNoRoom;
}

size_t InPlaceState::memory_bytes() const {
  constexpr size_t kRangeBytes = 200;
  return scanned_.size() * kRangeBytes;
}

ListState::ListState(StateBackend& backend, const Clock& clock, StateDescriptor descriptor,
                     StateVersions versions)
    : DurableState(descriptor.id, std::move(descriptor.name), versions),
      backend_(backend),
      clock_(clock),
      ttl_(descriptor.ttl),
      expires_(descriptor.ttl.count() > 0) {
  POSTRIDER_CHECK(id() % 2 == 1);
  backend_.Register(*this);
}

ListState::Place ListState::MakePlace(uint64_t order, uint64_t epoch, uint64_t bytes) const {
  Place place;
  place.order_ = order;
  place.epoch_ = epoch;
  place.bytes_ = bytes;
  place.changes_ = changes_;
  return place;
}

absl::StatusOr<absl::optional<ListState::Place>> ListState::Find(absl::string_view key,
                                                                 absl::string_view identity) const {
  if (!ever_put_.MayHave(HashOf(key, identity))) return absl::optional<Place>();
  std::string value;
  ASSIGN_OR_RETURN(const bool found, backend_.Get(PlaceKey(id(), key, identity), value));
  if (!found) return absl::optional<Place>();
  ByteReader in(value);
  const uint64_t epoch = in.Varint();
  const uint64_t order = in.Varint();
  const uint64_t bytes = in.Varint();
  if (!in.done()) return InPlaceState::Unreadable(name());
  return absl::make_optional(MakePlace(order, epoch, bytes));
}

void ListState::Added(absl::string_view key, absl::string_view identity,
                      const std::string& queue_key, uint64_t bytes,
                      const absl::optional<Place>& before) {
  ever_put_.Add(HashOf(key, identity));
  auto found = queues_.find(key);
  if (found == queues_.end()) {
    found = queues_.emplace(std::string(key), Queue{QueueRange(id(), key)}).first;
    found->second.range.MoveHead(queue_key);
    found->second.changes = ++changes_;
  }
  found->second.range.Include(queue_key);
  const uint64_t bytes_before = before ? before->bytes_ : 0;
  found->second.bytes += bytes - bytes_before;
  bytes_ += bytes - bytes_before;
  if (before) {
    found->second.changes = ++changes_;
    return;
  }
  ++found->second.entries;
  ++entries_;
}

void ListState::Removed(absl::string_view key, const Place& place, Known known) {
  const auto found = queues_.find(key);
  POSTRIDER_CHECK(found != queues_.end() && found->second.entries > 0);
  if (--entries_ == 0) ever_put_.Clear();
  bytes_ -= place.bytes_;
  found->second.bytes -= place.bytes_;
  if (known == Known::kFound) found->second.changes = ++changes_;
  if (--found->second.entries == 0) queues_.erase(found);
}

absl::StatusOr<ListState::Pushed> ListState::Push(absl::string_view key, uint64_t order,
                                                  absl::string_view identity, uint32_t version,
                                                  absl::string_view value,
                                                  StateBackend::WriteDone done) {
  ASSIGN_OR_RETURN(const absl::optional<Place> before, Find(key, identity));
  if (before && before->epoch_ == backend_.epoch()) return Pushed::kThere;
  if (before) order = before->order_;
  std::string payload =
      EncodeStatePayload(StatePayload{version, ExpiresMs(clock_, ttl_), order, value});
  ASSIGN_OR_RETURN(const bool taken,
                   Put(key, identity, MakePlace(order, backend_.epoch(), value.size()), before,
                       std::move(payload), std::move(done)));
  return taken ? Pushed::kTaken : Pushed::kNoRoom;
}

absl::StatusOr<bool> ListState::Has(absl::string_view key, absl::string_view identity) const {
  ASSIGN_OR_RETURN(const absl::optional<Place> place, Find(key, identity));
  return place.has_value();
}

absl::StatusOr<absl::optional<uint64_t>> ListState::OrderOf(absl::string_view key,
                                                            absl::string_view identity) const {
  ASSIGN_OR_RETURN(const absl::optional<Place> place, Find(key, identity));
  return place ? absl::make_optional(place->order_) : absl::nullopt;
}

absl::StatusOr<int64_t> ListState::ExpiresMsOf(const std::string& queue_key) const {
  std::string value;
  ASSIGN_OR_RETURN(const bool found, backend_.Get(queue_key, value));
  return found ? ExpiryOf(WithoutEpoch(value)) : 0;
}

absl::StatusOr<bool> ListState::Put(absl::string_view key, absl::string_view identity,
                                    const Place& place, const absl::optional<Place>& before,
                                    std::string payload, StateBackend::WriteDone&& done) {
  ChangelogRecord record;
  record.epoch = place.epoch_;
  record.identity = EncodeStateKey(id(), key, identity);
  record.payload = std::move(payload);
  const std::string log_identity = record.identity;
  const std::string queue_key = QueueKey(id(), key, place.order_, identity);
  StateBackend::Changes changes(2);
  changes[0].key = queue_key;
  changes[0].value = WithEpoch(place.epoch_, record.payload);
  changes[1].key = PlaceKey(id(), key, identity);
  changes[1].value = PlaceValue(place.order_, place.epoch_, place.bytes_);
  if (before && before->order_ != place.order_) {
    changes.resize(3);
    changes[2].key = QueueKey(id(), key, before->order_, identity);
  }
  if (expires_) {
    int64_t before_ms = 0;
    if (before) {
      ASSIGN_OR_RETURN(before_ms, ExpiresMsOf(QueueKey(id(), key, before->order_, identity)));
    }
    ChangeExpiry(log_identity, before_ms, ExpiryOf(record.payload), changes);
  }
  if (!backend_.Write(std::move(record), std::move(changes), std::move(done))) return false;
  Added(key, identity, queue_key, place.bytes_, before);
  if (backend_.restoring() != nullptr) {
    backend_.restoring()->OnLivePut(log_identity);
  } else if (before && before->epoch_ != place.epoch_) {
    backend_.Erase(log_identity, before->epoch_);
  }
  return true;
}

absl::StatusOr<bool> ListState::Remove(absl::string_view key, absl::string_view identity,
                                       StateBackend::WriteDone done) {
  ASSIGN_OR_RETURN(const absl::optional<Place> place, Find(key, identity));
  return RemoveAt(key, identity, place, Known::kFound, std::move(done));
}

absl::StatusOr<bool> ListState::Remove(absl::string_view key, absl::string_view identity,
                                       const Place& shown) {
  const auto queue = queues_.find(key);
  if (queue == queues_.end() || shown.changes_ < queue->second.changes) {
    return Remove(key, identity);
  }
  return RemoveAt(key, identity, shown, Known::kShown, {});
}

absl::StatusOr<bool> ListState::RemoveAt(absl::string_view key, absl::string_view identity,
                                         const absl::optional<Place>& place, Known known,
                                         StateBackend::WriteDone&& done) {
  // While the log is being read there may be more of this identity in it than was met; and as long
  // as not all that nothing needs was erased, a record of an earlier epoch may stand beside this
  // one, which would be all that is left of it.
  const bool restoring = backend_.restoring() != nullptr;
  const bool exact = place && backend_.settled();
  ChangelogRecord record;
  record.kind = exact ? ChangelogKind::kErase : ChangelogKind::kDelete;
  record.epoch = exact ? place->epoch_ : backend_.epoch();
  record.identity = EncodeStateKey(id(), key, identity);
  StateBackend::Changes changes;
  if (place) {
    changes.resize(2);
    changes[0].key = QueueKey(id(), key, place->order_, identity);
    changes[1].key = PlaceKey(id(), key, identity);
    if (expires_) {
      ASSIGN_OR_RETURN(const int64_t before_ms, ExpiresMsOf(changes[0].key));
      ChangeExpiry(record.identity, before_ms, 0, changes);
    }
  }
  const std::string log_identity = record.identity;
  if (!backend_.Write(std::move(record), std::move(changes), std::move(done))) return false;
  if (place) Removed(key, *place, known);
  if (restoring) backend_.restoring()->OnLiveRemove(log_identity);
  if (!first_orders_.empty()) first_orders_.erase(log_identity);
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
  const size_t prefix_bytes = queue->second.range.prefix_bytes();
  std::string sub_key;
  absl::StatusOr<ScanEnd> end = backend_.Scan(
      queue->second.range, QueueKey(id(), key, from_order, from_identity), limits,
      [&](absl::string_view queue_key, absl::string_view value) {
        queue_key.remove_prefix(prefix_bytes);
        uint64_t epoch = 0;
        const absl::optional<StatePayload> payload =
            DecodeStatePayload(WithoutEpoch(value, &epoch));
        if (!TakePart(queue_key, sub_key) || !queue_key.empty() || sub_key.size() < kOrderBytes ||
            !payload) {
          fault = InPlaceState::Unreadable(name());
          return false;
        }
        if (payload->version > versions().max) {
          fault = NewerVersion(name(), payload->version, versions().max);
          return false;
        }
        if (IsExpired(clock_, *payload)) return true;
        const absl::string_view identity = absl::string_view(sub_key).substr(kOrderBytes);
        return visit(Entry{payload->order, identity, payload->version, payload->bytes,
                           MakePlace(payload->order, epoch, payload->bytes.size())});
      });
  RETURN_IF_ERROR(fault);
  return end;
}

uint64_t ListState::size(absl::string_view key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.entries;
}

uint64_t ListState::bytes(absl::string_view key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.bytes;
}

absl::Status ListState::Restore(const StateKey& key, uint64_t epoch, absl::string_view payload) {
  RETURN_IF_ERROR(CheckPayload(name(), payload, versions().max));
  const StatePayload decoded = *DecodeStatePayload(payload);
  const uint64_t order = decoded.order;
  const uint64_t bytes = decoded.bytes.size();
  ASSIGN_OR_RETURN(const absl::optional<Place> before, Find(key.key, key.sub_key));
  const std::string queue_key = QueueKey(id(), key.key, order, key.sub_key);
  StateBatch batch;
  if (before && before->order_ != order) {
    batch.Delete(QueueKey(id(), key.key, before->order_, key.sub_key));
  }
  batch.Put(queue_key, WithEpoch(epoch, payload));
  batch.Put(PlaceKey(id(), key.key, key.sub_key), PlaceValue(order, epoch, bytes));
  if (const int64_t expires_ms = ExpiryOf(payload); expires_ms != 0) {
    expires_ = true;
    batch.Put(StateBackend::ExpiryKey(expires_ms, EncodeStateKey(id(), key.key, key.sub_key)), "");
  }
  RETURN_IF_ERROR(backend_.ApplyRestored(batch));
  Added(key.key, key.sub_key, queue_key, bytes, before);
  return absl::OkStatus();
}

absl::Status ListState::RestoreRemoved(const StateKey& key) {
  ASSIGN_OR_RETURN(const absl::optional<Place> place, Find(key.key, key.sub_key));
  if (!place) return absl::OkStatus();
  StateBatch batch;
  batch.Delete(QueueKey(id(), key.key, place->order_, key.sub_key));
  batch.Delete(PlaceKey(id(), key.key, key.sub_key));
  RETURN_IF_ERROR(backend_.ApplyRestored(batch));
  Removed(key.key, *place, Known::kFound);
  return absl::OkStatus();
}

absl::Status ListState::RestoreBefore(const StateKey& key, absl::string_view payload) {
  RETURN_IF_ERROR(CheckPayload(name(), payload, versions().max));
  ASSIGN_OR_RETURN(const absl::optional<Place> place, Find(key.key, key.sub_key));
  const uint64_t order = DecodeStatePayload(payload)->order;
  if (!place || place->order_ <= order) return absl::OkStatus();
  const auto [first, added] =
      first_orders_.emplace(EncodeStateKey(id(), key.key, key.sub_key), order);
  if (!added) first->second = std::min(first->second, order);
  return absl::OkStatus();
}

absl::StatusOr<DurableState::Expiry> ListState::Expire(const StateKey& key, int64_t expires_ms) {
  ASSIGN_OR_RETURN(const absl::optional<Place> place, Find(key.key, key.sub_key));
  if (!place) return Expiry::kStale;
  ASSIGN_OR_RETURN(const int64_t stored_ms,
                   ExpiresMsOf(QueueKey(id(), key.key, place->order_, key.sub_key)));
  if (stored_ms != expires_ms) return Expiry::kStale;
  ASSIGN_OR_RETURN(const bool removed, RemoveAt(key.key, key.sub_key, place, Known::kFound, {}));
  return removed ? Expiry::kRemoved : Expiry::kNoRoom;
}

absl::StatusOr<bool> ListState::Reassert(const StateKey& key) {
  ASSIGN_OR_RETURN(const absl::optional<Place> place, Find(key.key, key.sub_key));
  if (!place) return true;
  const auto first = first_orders_.find(EncodeStateKey(id(), key.key, key.sub_key));
  if (first == first_orders_.end() && place->epoch_ >= backend_.epoch()) return true;
  std::string value;
  ASSIGN_OR_RETURN(const bool found,
                   backend_.Get(QueueKey(id(), key.key, place->order_, key.sub_key), value));
  if (!found) return InPlaceState::Unreadable(name());
  if (first != first_orders_.end()) {
    absl::optional<StatePayload> payload = DecodeStatePayload(WithoutEpoch(value));
    if (!payload) return InPlaceState::Unreadable(name());
    payload->order = first->second;
    ASSIGN_OR_RETURN(
        const bool taken,
        Put(key.key, key.sub_key, MakePlace(first->second, backend_.epoch(), place->bytes_), place,
            EncodeStatePayload(*payload), {}));
    if (taken) first_orders_.erase(first);
    return taken;
  }
  // As it is: it expires when it would have.
  return Put(key.key, key.sub_key, MakePlace(place->order_, backend_.epoch(), place->bytes_), place,
             std::string(WithoutEpoch(value)), {});
}

}  // namespace postrider
