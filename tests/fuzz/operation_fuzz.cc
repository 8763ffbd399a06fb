#include <zlib.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/stream/operation.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

// What decodes is what we would have written.
void Decode(absl::string_view bytes) {
  const absl::StatusOr<std::vector<Operation>> operations = DecodeOperations(bytes);
  const absl::StatusOr<OperationResult> result = DecodeOperationResult(bytes);
  POSTRIDER_CHECK(!operations.ok() || !result.ok());
  for (const absl::Status& status : {operations.status(), result.status()}) {
    POSTRIDER_CHECK(status.ok() || absl::IsDataLoss(status) || absl::IsUnimplemented(status));
  }
  if (operations.ok()) POSTRIDER_CHECK(EncodeOperations(*operations) == bytes);
  if (result.ok()) POSTRIDER_CHECK(EncodeOperationResult(*result) == bytes);
}

// The same behind the checksum, which random bytes hardly ever pass.
void DecodeBody(absl::string_view body) {
  ByteWriter out;
  out.Raw(body);
  out.U32(static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()))));
  Decode(out.bytes());
}

std::vector<int64_t> Offsets(Input& in) {
  std::vector<int64_t> offsets;
  int64_t least = 0;
  for (int left = in.Byte() % 16; left > 0 && least < INT64_MAX; --left) {
    offsets.push_back(in.Between(least, INT64_MAX - 1));
    least = offsets.back() + 1;
  }
  return offsets;
}

void EncodeAndDecode(Input in) {
  std::vector<Operation> operations;
  for (int left = in.Byte() % 8; left > 0; --left) {
    Operation operation;
    operation.key = std::string(in.Text());
    operation.id = in.Id();
    operation.offsets = Offsets(in);
    operation.deadline = WallTimeFromMillis(in.Signed());
    operations.push_back(std::move(operation));
  }
  const absl::StatusOr<std::vector<Operation>> decoded =
      DecodeOperations(EncodeOperations(operations));
  POSTRIDER_CHECK(decoded.ok() && *decoded == operations);
  OperationResult result;
  result.key = std::string(in.Text());
  result.id = in.Id();
  result.offsets = Offsets(in);
  result.outcome = std::string(in.rest().substr(0, kOutcomeBytesMax));
  const absl::StatusOr<OperationResult> again =
      DecodeOperationResult(EncodeOperationResult(result));
  POSTRIDER_CHECK(again.ok() && *again == result);
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  DecodeBody(View(data, size));
  EncodeAndDecode(Input(data, size));
  return 0;
}
