#include "core/stream/changelog.h"

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
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/stream/checksum.h"

namespace postrider {
namespace {

constexpr uint8_t kVersion = 1;
// The first byte of a record key.
constexpr char kMarkerSpace = 0;
constexpr char kEntrySpace = 1;
constexpr char kFinishSpace = 2;  // a version and a state's name
constexpr size_t kEpochBytes = 8;
constexpr size_t kFinishVersionBytes = 4;

std::string RecordKey(char space, absl::string_view identity, uint64_t epoch) {
  std::string key;
  key.reserve(1 + identity.size() + kEpochBytes);
  key.push_back(space);
  key.append(identity.data(), identity.size());
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(epoch >> shift));
  return key;
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("changelog: a record cannot be read: ", what));
}

}  // namespace

std::string ChangelogRecordKey(absl::string_view identity, uint64_t epoch) {
  return RecordKey(kEntrySpace, identity, epoch);
}

EncodedChangelogRecord FinishRecord(absl::string_view state_name, uint32_t version) {
  POSTRIDER_CHECK(!state_name.empty() && version > 0);
  EncodedChangelogRecord encoded;
  // The version is in the key, so that compaction keeps the highest whatever comes later.
  encoded.key.push_back(kFinishSpace);
  for (int shift = 24; shift >= 0; shift -= 8) {
    encoded.key.push_back(static_cast<char>(version >> shift));
  }
  encoded.key.append(state_name.data(), state_name.size());
  ByteWriter value;
  value.U8(kVersion);
  value.U8(static_cast<uint8_t>(ChangelogKind::kFinish));
  value.U32(Checksum(value.bytes(), Checksum(encoded.key)));
  encoded.value = value.Take();
  return encoded;
}

EncodedChangelogRecord EncodeChangelogRecord(const ChangelogRecord& record) {
  if (record.kind == ChangelogKind::kFinish) return FinishRecord(record.identity, record.version);
  const bool marker = record.kind == ChangelogKind::kMarker;
  POSTRIDER_CHECK(marker == record.identity.empty() || record.kind == ChangelogKind::kErase);
  EncodedChangelogRecord encoded;
  encoded.put = record.kind == ChangelogKind::kPut;
  encoded.key = RecordKey(record.identity.empty() ? kMarkerSpace : kEntrySpace, record.identity,
                          record.epoch);
  if (record.kind == ChangelogKind::kErase) return encoded;
  ByteWriter value(2 + record.payload.size() + kChecksumBytes);
  value.U8(kVersion);
  value.U8(static_cast<uint8_t>(record.kind));
  if (record.kind == ChangelogKind::kPut) value.Raw(record.payload);
  value.U32(Checksum(value.bytes(), Checksum(encoded.key)));
  encoded.value = value.Take();
  return encoded;
}

absl::StatusOr<ChangelogRecord> DecodeChangelogRecord(absl::string_view key,
                                                      absl::string_view value) {
  ChangelogRecord record;
  const bool marker = !key.empty() && key[0] == kMarkerSpace;
  const bool finish = !key.empty() && key[0] == kFinishSpace;
  if (finish) {
    if (key.size() <= 1 + kFinishVersionBytes) return Damaged("its key is too short");
    for (const char byte : key.substr(1, kFinishVersionBytes)) {
      record.version = (record.version << 8) | static_cast<uint8_t>(byte);
    }
    record.identity = std::string(key.substr(1 + kFinishVersionBytes));
  } else {
    if (key.size() < 1 + kEpochBytes) return Damaged("its key is too short");
    if (!marker && key[0] != kEntrySpace) return Damaged("its key is of no known kind");
    const size_t identity_bytes = key.size() - 1 - kEpochBytes;
    if (marker != (identity_bytes == 0)) return Damaged("its key has no identity, or one too many");
    record.identity = std::string(key.substr(1, identity_bytes));
    for (const char byte : key.substr(1 + identity_bytes)) {
      record.epoch = (record.epoch << 8) | static_cast<uint8_t>(byte);
    }
  }
  if (value.empty() && !finish) {
    record.kind = ChangelogKind::kErase;
    return record;
  }
  if (value.size() < 2 + kChecksumBytes) return Damaged("its value is too short");
  const absl::string_view body = value.substr(0, value.size() - kChecksumBytes);
  ByteReader checksum(value.substr(body.size()));
  const bool whole = checksum.U32() == Checksum(body, Checksum(key));
  if (static_cast<uint8_t>(body[0]) > kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("changelog: a record has version ",
                                                      static_cast<uint8_t>(body[0]),
                                                      "; this binary reads up to ", kVersion));
  }
  if (!whole) return Damaged("its checksum does not fit");
  if (static_cast<uint8_t>(body[0]) != kVersion) return Damaged("its version was never written");
  record.kind = static_cast<ChangelogKind>(body[1]);
  const absl::string_view payload = body.substr(2);
  switch (record.kind) {
    case ChangelogKind::kPut:
      if (marker || finish) break;
      record.payload = std::string(payload);
      return record;
    case ChangelogKind::kClear:
    case ChangelogKind::kDelete:
      if (marker || finish || !payload.empty()) break;
      return record;
    case ChangelogKind::kMarker:
      if (!marker || !payload.empty()) break;
      return record;
    case ChangelogKind::kFinish:
      if (!finish || !payload.empty() || record.version == 0) break;
      return record;
    case ChangelogKind::kErase:
      break;
  }
  return Damaged("its kind does not fit its key or its payload");
}

bool ChangelogReplay::IsLive(absl::string_view identity) const {
  const auto found = known_.find(identity);
  return found != known_.end() && found->second.live;
}

void ChangelogReplay::Erasable(absl::string_view identity, uint64_t epoch) {
  // A record of our own epoch has the key of what we may write next.
  if (epoch >= own_epoch_) return;
  erasable_.push_back(ChangelogRecordKey(identity, epoch));
  erasable_bytes_ += sizeof(std::string) + erasable_.back().size();
}

// A record of `epoch` rules from now on; the one that did is not needed any more.
void ChangelogReplay::Supersede(absl::string_view identity, Known& known, uint64_t epoch) {
  if (known.epoch && *known.epoch != epoch) Erasable(identity, *known.epoch);
  known.epoch = epoch;
  known.shadowed = false;
}

ChangelogReplay::Known& ChangelogReplay::KnownOf(absl::string_view identity) {
  const auto found = known_.find(identity);
  if (found != known_.end()) return found->second;
  identity_bytes_ += identity.size();
  return known_[identity];
}

void ChangelogReplay::OnLive(absl::string_view identity, bool put) {
  Known& known = KnownOf(identity);
  if (known.epoch) Erasable(identity, *known.epoch);
  known = Known();
  known.live = true;
  known.live_put = put;
}

absl::StatusOr<ChangelogReplay::Step> ChangelogReplay::Read(absl::string_view key,
                                                            absl::string_view value) {
  ASSIGN_OR_RETURN(ChangelogRecord record, DecodeChangelogRecord(key, value));
  Step step;
  if (record.identity.empty()) {
    if (record.kind == ChangelogKind::kMarker) {
      fence_ = std::max(fence_, record.epoch);
      if (record.epoch < own_epoch_) owner_before_ = std::max(owner_before_, record.epoch);
    }
    return step;
  }
  if (record.kind == ChangelogKind::kFinish) {
    step.finished_state = std::move(record.identity);
    step.finished_version = record.version;
    return step;
  }
  Known& known = KnownOf(record.identity);
  const bool rules_now = known.epoch && *known.epoch == record.epoch;
  const bool late = (record.kind == ChangelogKind::kPut || record.kind == ChangelogKind::kClear) &&
                    record.epoch < fence_;
  if (late) ++fenced_;

  if (known.live) {
    // What this task has written itself stands; only records of other epochs are in the way.
    if (record.kind != ChangelogKind::kErase) Erasable(record.identity, record.epoch);
    if (!known.live_put || late || record.epoch >= own_epoch_) return step;
    known.put_before =
        record.kind == ChangelogKind::kPut && rule_of_(record.identity) == Rule::kOnce;
    if (!known.put_before) return step;
    step.effect = Effect::kPutBefore;
    step.epoch = record.epoch;
    step.payload = std::move(record.payload);
    step.identity = std::move(record.identity);
    return step;
  }
  if (late) {
    if (rules_now) {
      known.shadowed = true;
    } else {
      Erasable(record.identity, record.epoch);
    }
    return step;
  }

  const bool had_value = known.has_value;
  switch (record.kind) {
    case ChangelogKind::kPut:
      Supersede(record.identity, known, record.epoch);
      known.has_value = true;
      step.effect = Effect::kPut;
      step.payload = std::move(record.payload);
      break;
    case ChangelogKind::kClear:
    case ChangelogKind::kDelete:
      Supersede(record.identity, known, record.epoch);
      known.has_value = false;
      if (had_value) step.effect = Effect::kRemove;
      break;
    case ChangelogKind::kErase:
      if (!rules_now) break;
      known = Known();
      if (had_value) step.effect = Effect::kRemove;
      break;
    case ChangelogKind::kMarker:
    case ChangelogKind::kFinish:
      break;
  }
  step.epoch = record.epoch;
  step.identity = std::move(record.identity);
  return step;
}

std::vector<std::string> ChangelogReplay::Reassert() const {
  std::vector<std::string> identities;
  for (const auto& [identity, known] : known_) {
    if (known.put_before) identities.push_back(identity);
    if (!known.has_value || known.live || *known.epoch == own_epoch_) continue;
    if (known.shadowed || rule_of_(identity) == Rule::kInPlace) identities.push_back(identity);
  }
  std::sort(identities.begin(), identities.end());
  return identities;
}

bool ChangelogReplay::Rules(absl::string_view record_key) const {
  const size_t identity_bytes = record_key.size() - 1 - kEpochBytes;
  const auto found = known_.find(record_key.substr(1, identity_bytes));
  if (found == known_.end() || !found->second.has_value) return false;
  return ChangelogRecordKey(found->first, *found->second.epoch) == record_key;
}

std::vector<std::string> ChangelogReplay::TakeErasable() {
  std::vector<std::string> keys = std::move(erasable_);
  erasable_.clear();
  erasable_bytes_ = 0;
  // After the late delete of a lower epoch its identity may have been put by the higher one again.
  keys.erase(std::remove_if(keys.begin(), keys.end(),
                            [this](const std::string& key) { return Rules(key); }),
             keys.end());
  const auto last = static_cast<std::ptrdiff_t>(keys.size());
  // A clear or a delete that rules hides older records until these are erased: it goes last.
  for (auto& [identity, known] : known_) {
    if (known.live || known.has_value || !known.epoch || *known.epoch >= own_epoch_) continue;
    keys.push_back(ChangelogRecordKey(identity, *known.epoch));
    known.epoch = absl::nullopt;
  }
  std::sort(keys.begin() + last, keys.end());  // not in a hash map's order
  return keys;
}

}  // namespace postrider
