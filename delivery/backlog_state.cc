#include "delivery/backlog_state.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/base/bytes.h"
#include "delivery/outcome.h"

namespace postrider::delivery {
namespace {

constexpr size_t kMembersMax = 100'000;

absl::optional<uint32_t> ReadU32(ByteReader& in) {
  const uint64_t value = in.Varint();
  if (!in.ok() || value > std::numeric_limits<uint32_t>::max()) return absl::nullopt;
  return static_cast<uint32_t>(value);
}

std::string EncodeMembers(const std::vector<BatchMember>& members, uint32_t) {
  ByteWriter out;
  out.Varint(members.size());
  uint64_t before = 0;
  for (const BatchMember& member : members) {
    out.Zigzag(static_cast<int64_t>(member.order - before));
    before = member.order;
    out.Raw(absl::string_view(reinterpret_cast<const char*>(member.digest.data()),
                              member.digest.size()));
    out.Varint(member.bytes);
  }
  return out.Take();
}

absl::optional<std::vector<BatchMember>> DecodeMembers(absl::string_view bytes, uint32_t) {
  ByteReader in(bytes);
  const uint64_t count = in.Varint();
  if (!in.ok() || count > kMembersMax) return absl::nullopt;
  std::vector<BatchMember> members;
  members.reserve(std::min<size_t>(count, bytes.size() / sizeof(IdBytes)));
  uint64_t before = 0;
  for (uint64_t i = 0; i < count; ++i) {
    BatchMember member;
    member.order = before + static_cast<uint64_t>(in.Zigzag());
    before = member.order;
    const absl::string_view digest = in.Raw(member.digest.size());
    const absl::optional<uint32_t> size = ReadU32(in);
    if (!size) return absl::nullopt;
    std::copy_n(digest.begin(), digest.size(), member.digest.begin());
    member.bytes = *size;
    members.push_back(member);
  }
  if (!in.done()) return absl::nullopt;
  return members;
}

// Those that readers of version 1 know.
constexpr uint32_t kOutcomesV1 = static_cast<uint32_t>(OutcomeKind::kAborted) + 1;

std::string EncodeAttempts(const BatchAttempts& attempts, uint32_t version) {
  ByteWriter out;
  out.Varint(attempts.attempts);
  out.Varint(attempts.tries);
  out.Zigzag(MillisSinceEpoch(attempts.first_try));
  out.Zigzag(MillisSinceEpoch(attempts.due));
  const bool known = version > 1 || attempts.last_outcome < kOutcomesV1;
  out.Varint(known ? attempts.last_outcome : static_cast<uint32_t>(OutcomeKind::kOtherStatus));
  out.Zigzag(attempts.last_status);
  if (version > 1) {
    out.U8(attempts.set_at ? 1 : 0);
    if (attempts.set_at) out.Zigzag(MillisSinceEpoch(*attempts.set_at));
  }
  return out.Take();
}

absl::optional<BatchAttempts> DecodeAttempts(absl::string_view bytes, uint32_t version) {
  constexpr uint32_t kCountMax = 1'000'000;
  ByteReader in(bytes);
  const absl::optional<uint32_t> charged = ReadU32(in);
  const absl::optional<uint32_t> tries = ReadU32(in);
  BatchAttempts attempts;
  attempts.first_try = WallTimeFromMillis(in.Zigzag());
  attempts.due = WallTimeFromMillis(in.Zigzag());
  const absl::optional<uint32_t> outcome = ReadU32(in);
  const int64_t status = in.Zigzag();
  if (version > 1) {
    const uint8_t has_set_at = in.U8();
    if (has_set_at > 1) return absl::nullopt;
    if (has_set_at == 1) attempts.set_at = WallTimeFromMillis(in.Zigzag());
  }
  const auto outcomes = version > 1 ? static_cast<uint32_t>(kOutcomeKinds) : kOutcomesV1;
  if (!in.done() || !charged || !tries || !outcome || *charged > kCountMax || *tries > kCountMax ||
      *outcome >= outcomes || status < 0 || status > 999) {
    return absl::nullopt;
  }
  attempts.attempts = *charged;
  attempts.tries = *tries;
  attempts.last_outcome = *outcome;
  attempts.last_status = static_cast<int32_t>(status);
  return attempts;
}

}  // namespace

Duration LeftUntilDue(const BatchAttempts& attempts, WallTime now) {
  // In milliseconds, as they were written: a clock may say any century.
  constexpr int64_t kMost = std::chrono::milliseconds(std::chrono::hours(24)).count();
  const auto between = [](WallTime from, WallTime to) {
    const int64_t first = MillisSinceEpoch(from);
    const int64_t last = MillisSinceEpoch(to);
    if (last <= first) return int64_t{0};
    const uint64_t millis = static_cast<uint64_t>(last) - static_cast<uint64_t>(first);
    return static_cast<int64_t>(std::min<uint64_t>(millis, kMost));
  };
  if (!attempts.set_at) return std::chrono::milliseconds(between(now, attempts.due));
  const int64_t asked = between(*attempts.set_at, attempts.due);
  return std::chrono::milliseconds(std::max<int64_t>(asked - between(*attempts.set_at, now), 0));
}

StateSerializer<bool> HasBacklogSerializer() {
  StateSerializer<bool> serializer;
  serializer.encode = [](const bool& value, uint32_t) { return std::string(1, value ? 1 : 0); };
  serializer.decode = [](absl::string_view bytes, uint32_t) -> absl::optional<bool> {
    if (bytes.size() != 1 || (bytes[0] & ~1) != 0) return absl::nullopt;
    return bytes[0] == 1;
  };
  return serializer;
}

StateSerializer<std::vector<BatchMember>> BatchMembersSerializer() {
  StateSerializer<std::vector<BatchMember>> serializer;
  serializer.encode = EncodeMembers;
  serializer.decode = DecodeMembers;
  return serializer;
}

StateSerializer<BatchAttempts> BatchAttemptsSerializer() {
  StateSerializer<BatchAttempts> serializer;
  serializer.version_max = 2;
  serializer.encode = EncodeAttempts;
  serializer.decode = DecodeAttempts;
  return serializer;
}

}  // namespace postrider::delivery
