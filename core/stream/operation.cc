#include "core/stream/operation.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/base/status_macros.h"
#include "core/stream/checksum.h"

namespace postrider {
namespace {

constexpr uint8_t kVersion = 1;
// Versions up to this one are taken for those of a later program, all others for damage.
constexpr uint8_t kVersionPlausible = kVersion + 8;
// What follows the version, so that one kind is never read as the other.
enum Form : uint8_t { kOperations = 1, kResult = 2 };

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("operations: a record cannot be read: ", what));
}

void WriteId(const IdBytes& id, ByteWriter& out) {
  out.Raw(absl::string_view(reinterpret_cast<const char*>(id.data()), id.size()));
}

IdBytes ReadId(ByteReader& in) {
  IdBytes id{};
  const absl::string_view raw = in.Raw(id.size());
  if (raw.size() == id.size()) {
    std::copy_n(reinterpret_cast<const uint8_t*>(raw.data()), id.size(), id.begin());
  }
  return id;
}

// Ascending, so each is written as its distance from the one before.
void WriteOffsets(const std::vector<int64_t>& offsets, ByteWriter& out) {
  out.Varint(offsets.size());
  int64_t least = 0;
  for (const int64_t offset : offsets) {
    POSTRIDER_CHECK(offset >= least && offset < std::numeric_limits<int64_t>::max());
    out.Varint(static_cast<uint64_t>(offset - least));
    least = offset + 1;
  }
}

bool ReadOffsets(ByteReader& in, std::vector<int64_t>& offsets) {
  const uint64_t count = in.Varint();
  if (!in.ok() || count > in.rest().size()) return false;  // each takes a byte at least
  offsets.reserve(static_cast<size_t>(count));
  int64_t least = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t distance = in.Varint();
    if (!in.ok() ||
        distance >= static_cast<uint64_t>(std::numeric_limits<int64_t>::max() - least)) {
      return false;
    }
    offsets.push_back(least + static_cast<int64_t>(distance));
    least = offsets.back() + 1;
  }
  return true;
}

ByteWriter Begin(Form form) {
  ByteWriter out;
  out.U8(kVersion);
  out.U8(form);
  return out;
}

std::string Finish(ByteWriter out) {
  out.U32(Checksum(out.bytes()));
  return out.Take();
}

// The fields between the head and the checksum.
absl::StatusOr<absl::string_view> Fields(absl::string_view encoded, Form form) {
  if (encoded.empty()) return Damaged("it is empty");
  const auto version = static_cast<uint8_t>(encoded[0]);
  if (version > kVersion && version <= kVersionPlausible) {
    return absl::UnimplementedError(absl::StrCat("operations: a record has version ", version,
                                                 "; this binary reads up to ", kVersion));
  }
  if (version != kVersion) return Damaged("its version was never written");
  if (encoded.size() < 2 + kChecksumBytes) return Damaged("it is cut");
  const absl::string_view body = encoded.substr(0, encoded.size() - kChecksumBytes);
  ByteReader checksum(encoded.substr(body.size()));
  if (checksum.U32() != Checksum(body)) return Damaged("its checksum does not fit");
  if (static_cast<uint8_t>(body[1]) != form) return Damaged("it is of another kind");
  return body.substr(2);
}

}  // namespace

std::string EncodeOperations(const std::vector<Operation>& operations) {
  ByteWriter out = Begin(kOperations);
  const size_t count = std::min(operations.size(), kOperationsMax);
  out.Varint(count);
  for (size_t i = 0; i < count; ++i) {
    const Operation& operation = operations[i];
    out.String(operation.key);
    WriteId(operation.id, out);
    WriteOffsets(operation.offsets, out);
    out.Zigzag(MillisSinceEpoch(operation.deadline));
  }
  return Finish(std::move(out));
}

absl::StatusOr<std::vector<Operation>> DecodeOperations(absl::string_view encoded) {
  ASSIGN_OR_RETURN(const absl::string_view fields, Fields(encoded, kOperations));
  ByteReader in(fields);
  const uint64_t count = in.Varint();
  if (!in.ok() || count > kOperationsMax) return Damaged("it names too many operations");
  std::vector<Operation> operations;
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    Operation operation;
    operation.key = std::string(in.String());
    operation.id = ReadId(in);
    if (!ReadOffsets(in, operation.offsets)) return Damaged("its offsets are none");
    operation.deadline = WallTimeFromMillis(in.Zigzag());
    operations.push_back(std::move(operation));
  }
  if (!in.done()) return Damaged("its fields do not fill it");
  // Numbers can be written in more ways than ours.
  if (EncodeOperations(operations) != encoded) return Damaged("it was never written so");
  return operations;
}

std::string EncodeOperationResult(const OperationResult& result) {
  POSTRIDER_CHECK(result.outcome.size() <= kOutcomeBytesMax);
  ByteWriter out = Begin(kResult);
  out.String(result.key);
  WriteId(result.id, out);
  WriteOffsets(result.offsets, out);
  out.String(result.outcome);
  return Finish(std::move(out));
}

absl::StatusOr<OperationResult> DecodeOperationResult(absl::string_view encoded) {
  ASSIGN_OR_RETURN(const absl::string_view fields, Fields(encoded, kResult));
  ByteReader in(fields);
  OperationResult result;
  result.key = std::string(in.String());
  result.id = ReadId(in);
  if (!ReadOffsets(in, result.offsets)) return Damaged("its offsets are none");
  result.outcome = std::string(in.String());
  if (!in.done()) return Damaged("its fields do not fill it");
  if (result.outcome.size() > kOutcomeBytesMax) return Damaged("its outcome is too long");
  if (EncodeOperationResult(result) != encoded) return Damaged("it was never written so");
  return result;
}

}  // namespace postrider
