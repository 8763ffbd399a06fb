#include "core/stream/control_record.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/bytes.h"
#include "core/base/status_macros.h"
#include "core/stream/checksum.h"

namespace postrider {
namespace {

constexpr uint8_t kVersion = 1;
constexpr absl::string_view kHoldSpace = "savepoint/";
constexpr absl::string_view kRestoreSpace = "restore/";
constexpr absl::string_view kIdentity = "log-identity";
constexpr absl::string_view kPoolSpace = "pool/";

std::string Seal(ByteWriter out) {
  out.U32(Checksum(out.bytes()));
  return out.Take();
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("control: ", what, " cannot be read"));
}

// What stands between the version and the checksum.
absl::StatusOr<absl::string_view> Open(absl::string_view encoded, absl::string_view what) {
  if (encoded.size() < 1 + kChecksumBytes) return Damaged(what);
  const absl::string_view covered = encoded.substr(0, encoded.size() - kChecksumBytes);
  if (ByteReader(encoded.substr(covered.size())).U32() != Checksum(covered)) return Damaged(what);
  const auto version = static_cast<uint8_t>(covered[0]);
  if (version > kVersion) {
    return absl::UnimplementedError(absl::StrCat("control: ", what, " has version ", version,
                                                 "; this binary reads up to ", kVersion));
  }
  if (version != kVersion) return Damaged(what);
  return covered.substr(1);
}

}  // namespace

std::string ControlTopicName(absl::string_view prefix) { return absl::StrCat(prefix, "control"); }

TopicSpec ControlTopic(absl::string_view prefix, int16_t replication) {
  TopicSpec spec;
  spec.name = ControlTopicName(prefix);
  spec.partitions = 1;
  spec.replication = replication;
  spec.settings = {{"cleanup.policy", "compact"},
                   {"segment.ms", "86400000"},
                   {"delete.retention.ms", "604800000"}};
  return spec;
}

std::string SavepointHoldKey(absl::string_view pool, absl::string_view id) {
  return absl::StrCat(kHoldSpace, pool, "/", id);
}
std::string RestoreMarkKey(absl::string_view pool) { return absl::StrCat(kRestoreSpace, pool); }
std::string LogIdentityKey() { return std::string(kIdentity); }
std::string PoolKey(absl::string_view pool) { return absl::StrCat(kPoolSpace, pool); }

std::string GenerationName(absl::string_view pool, uint64_t generation) {
  return generation <= 1 ? std::string(pool) : absl::StrCat(pool, ".g", generation);
}

bool IsPoolName(absl::string_view pool) {
  if (pool.empty() || absl::StrContains(pool, '/')) return false;
  size_t digits = 0;
  while (!pool.empty() && absl::ascii_isdigit(static_cast<unsigned char>(pool.back()))) {
    pool.remove_suffix(1);
    ++digits;
  }
  return digits == 0 || !absl::EndsWith(pool, ".g");
}

ControlKey ParseControlKey(absl::string_view key) {
  ControlKey parsed;
  if (key == kIdentity) {
    parsed.kind = ControlKey::Kind::kLogIdentity;
  } else if (absl::StartsWith(key, kRestoreSpace)) {
    key.remove_prefix(kRestoreSpace.size());
    if (key.empty() || absl::StrContains(key, '/')) return parsed;
    parsed.kind = ControlKey::Kind::kRestoreMark;
    parsed.pool = std::string(key);
  } else if (absl::StartsWith(key, kPoolSpace)) {
    key.remove_prefix(kPoolSpace.size());
    if (key.empty() || absl::StrContains(key, '/')) return parsed;
    parsed.kind = ControlKey::Kind::kPool;
    parsed.pool = std::string(key);
  } else if (absl::StartsWith(key, kHoldSpace)) {
    key.remove_prefix(kHoldSpace.size());
    const size_t slash = key.find('/');
    if (slash == 0 || slash == absl::string_view::npos || slash + 1 == key.size() ||
        absl::StrContains(key.substr(slash + 1), '/')) {
      return parsed;
    }
    parsed.kind = ControlKey::Kind::kSavepointHold;
    parsed.pool = std::string(key.substr(0, slash));
    parsed.id = std::string(key.substr(slash + 1));
  }
  return parsed;
}

std::string EncodeSavepointHold(const SavepointHold& hold) {
  ByteWriter out;
  out.U8(kVersion);
  out.String(hold.pool);
  out.String(hold.id);
  out.String(hold.group);
  out.String(hold.topic);
  out.Zigzag(MillisSinceEpoch(hold.created));
  out.Zigzag(MillisSinceEpoch(hold.expires));
  out.Varint(hold.offsets.size());
  for (const int64_t offset : hold.offsets) out.Zigzag(offset);
  return Seal(std::move(out));
}

absl::StatusOr<SavepointHold> DecodeSavepointHold(absl::string_view encoded) {
  constexpr absl::string_view kWhat = "a savepoint's hold";
  ASSIGN_OR_RETURN(const absl::string_view body, Open(encoded, kWhat));
  ByteReader in(body);
  SavepointHold hold;
  hold.pool = std::string(in.String());
  hold.id = std::string(in.String());
  hold.group = std::string(in.String());
  hold.topic = std::string(in.String());
  hold.created = WallTimeFromMillis(in.Zigzag());
  hold.expires = WallTimeFromMillis(in.Zigzag());
  const uint64_t partitions = in.Varint();
  // Each takes a byte at least.
  if (!in.ok() || partitions > in.rest().size()) return Damaged(kWhat);
  hold.offsets.reserve(static_cast<size_t>(partitions));
  for (uint64_t i = 0; i < partitions; ++i) hold.offsets.push_back(in.Zigzag());
  if (!in.done() || EncodeSavepointHold(hold) != encoded) return Damaged(kWhat);
  return hold;
}

std::string EncodeRestoreMark(const RestoreMark& mark) {
  ByteWriter out;
  out.U8(kVersion);
  out.String(mark.pool);
  out.String(mark.savepoint);
  out.Zigzag(MillisSinceEpoch(mark.began));
  out.Varint(mark.repeated_max);
  return Seal(std::move(out));
}

absl::StatusOr<RestoreMark> DecodeRestoreMark(absl::string_view encoded) {
  constexpr absl::string_view kWhat = "the mark of a restore";
  ASSIGN_OR_RETURN(const absl::string_view body, Open(encoded, kWhat));
  ByteReader in(body);
  RestoreMark mark;
  mark.pool = std::string(in.String());
  mark.savepoint = std::string(in.String());
  mark.began = WallTimeFromMillis(in.Zigzag());
  mark.repeated_max = in.Varint();
  if (!in.done() || EncodeRestoreMark(mark) != encoded) return Damaged(kWhat);
  return mark;
}

std::string EncodeLogIdentity(const IdBytes& identity) {
  ByteWriter out;
  out.U8(kVersion);
  out.Raw(absl::string_view(reinterpret_cast<const char*>(identity.data()), identity.size()));
  return Seal(std::move(out));
}

absl::StatusOr<IdBytes> DecodeLogIdentity(absl::string_view encoded) {
  constexpr absl::string_view kWhat = "the log's identity";
  ASSIGN_OR_RETURN(const absl::string_view body, Open(encoded, kWhat));
  IdBytes identity{};
  if (body.size() != identity.size()) return Damaged(kWhat);
  std::copy(body.begin(), body.end(), identity.begin());
  return identity;
}

std::string EncodePoolRecord(const PoolRecord& record) {
  ByteWriter out;
  out.U8(kVersion);
  out.String(record.pool);
  out.U8(static_cast<uint8_t>(record.phase));
  out.Varint(record.generation);
  out.Zigzag(record.key_groups);
  out.Raw(
      absl::string_view(reinterpret_cast<const char*>(record.holder.data()), record.holder.size()));
  out.Zigzag(MillisSinceEpoch(record.lease_until));
  out.Zigzag(record.key_groups_next);
  out.Varint(record.generation_tried);
  out.Varint(record.generation_left);
  return Seal(std::move(out));
}

absl::StatusOr<PoolRecord> DecodePoolRecord(absl::string_view encoded) {
  constexpr absl::string_view kWhat = "a pool's record";
  ASSIGN_OR_RETURN(const absl::string_view body, Open(encoded, kWhat));
  ByteReader in(body);
  PoolRecord record;
  record.pool = std::string(in.String());
  const uint8_t phase = in.U8();
  if (phase > static_cast<uint8_t>(PoolRecord::Phase::kMoving)) return Damaged(kWhat);
  record.phase = static_cast<PoolRecord::Phase>(phase);
  record.generation = in.Varint();
  const int64_t key_groups = in.Zigzag();
  const absl::string_view holder = in.Raw(record.holder.size());
  if (holder.size() == record.holder.size()) {
    std::copy(holder.begin(), holder.end(), record.holder.begin());
  }
  record.lease_until = WallTimeFromMillis(in.Zigzag());
  const int64_t key_groups_next = in.Zigzag();
  record.generation_tried = in.Varint();
  record.generation_left = in.Varint();
  record.key_groups = static_cast<int32_t>(key_groups);
  record.key_groups_next = static_cast<int32_t>(key_groups_next);
  if (!in.done() || record.key_groups < 1 || record.generation < 1 ||
      EncodePoolRecord(record) != encoded) {
    return Damaged(kWhat);
  }
  return record;
}

}  // namespace postrider
