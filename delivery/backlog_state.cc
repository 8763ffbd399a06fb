#include "delivery/backlog_state.h"

#include <algorithm>
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

std::string EncodeAttempts(const BatchAttempts& attempts, uint32_t) {
  ByteWriter out;
  out.Varint(attempts.attempts);
  out.Varint(attempts.tries);
  out.Zigzag(MillisSinceEpoch(attempts.first_try));
  out.Zigzag(MillisSinceEpoch(attempts.due));
  out.Varint(attempts.last_outcome);
  out.Zigzag(attempts.last_status);
  return out.Take();
}

absl::optional<BatchAttempts> DecodeAttempts(absl::string_view bytes, uint32_t) {
  constexpr uint32_t kCountMax = 1'000'000;
  ByteReader in(bytes);
  const absl::optional<uint32_t> charged = ReadU32(in);
  const absl::optional<uint32_t> tries = ReadU32(in);
  BatchAttempts attempts;
  attempts.first_try = WallTimeFromMillis(in.Zigzag());
  attempts.due = WallTimeFromMillis(in.Zigzag());
  const absl::optional<uint32_t> outcome = ReadU32(in);
  const int64_t status = in.Zigzag();
  if (!in.done() || !charged || !tries || !outcome || *charged > kCountMax || *tries > kCountMax ||
      *outcome >= static_cast<uint32_t>(kOutcomeKinds) || status < 0 || status > 999) {
    return absl::nullopt;
  }
  attempts.attempts = *charged;
  attempts.tries = *tries;
  attempts.last_outcome = *outcome;
  attempts.last_status = static_cast<int32_t>(status);
  return attempts;
}

}  // namespace

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
  serializer.encode = EncodeAttempts;
  serializer.decode = DecodeAttempts;
  return serializer;
}

}  // namespace postrider::delivery
