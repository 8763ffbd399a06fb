#include <zlib.h>

#include <string>

#include "absl/status/status.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/stream/changelog.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

// What decodes is what we would have written.
void Decode(absl::string_view key, absl::string_view value) {
  const absl::StatusOr<ChangelogRecord> decoded = DecodeChangelogRecord(key, value);
  if (!decoded.ok()) {
    POSTRIDER_CHECK(absl::IsDataLoss(decoded.status()) ||
                    absl::IsFailedPrecondition(decoded.status()));
    return;
  }
  const EncodedChangelogRecord again = EncodeChangelogRecord(*decoded);
  POSTRIDER_CHECK(again.key == key && again.value == value);
}

// The same behind the checksum, which random bytes hardly ever pass.
void DecodeBody(absl::string_view key, absl::string_view body) {
  uLong sum = crc32(0, reinterpret_cast<const Bytef*>(key.data()), static_cast<uInt>(key.size()));
  sum = crc32(sum, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  ByteWriter value;
  value.Raw(body);
  value.U32(static_cast<uint32_t>(sum));
  Decode(key, value.bytes());
}

void EncodeAndDecode(Input in) {
  ChangelogRecord record;
  record.kind = static_cast<ChangelogKind>(1 + in.Byte() % 6);
  const bool finish = record.kind == ChangelogKind::kFinish;
  if (!finish) record.epoch = in.Number();
  if (record.kind != ChangelogKind::kMarker) record.identity = std::string(in.Text());
  if (record.identity.empty() && record.kind != ChangelogKind::kMarker &&
      record.kind != ChangelogKind::kErase) {
    record.identity = "x";
  }
  if (finish) record.version = static_cast<uint32_t>(1 + in.UpTo(UINT32_MAX - 1));
  if (record.kind == ChangelogKind::kPut) record.payload = std::string(in.rest());
  const EncodedChangelogRecord encoded = EncodeChangelogRecord(record);
  const absl::StatusOr<ChangelogRecord> decoded = DecodeChangelogRecord(encoded.key, encoded.value);
  POSTRIDER_CHECK(decoded.ok() && *decoded == record);
  // Under another key it is no record: two are never taken for each other.
  if (encoded.value.empty()) return;
  std::string key = encoded.key;
  key[in.Byte() % key.size()] ^= static_cast<char>(1 + in.Byte() % 255);
  POSTRIDER_CHECK(!DecodeChangelogRecord(key, encoded.value).ok());
  std::string value = encoded.value;
  value[in.Byte() % value.size()] ^= static_cast<char>(1 + in.Byte() % 255);
  POSTRIDER_CHECK(!DecodeChangelogRecord(encoded.key, value).ok());
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Input in(data, size);
  const absl::string_view key = in.Text();
  Decode(key, in.rest());
  DecodeBody(key, in.rest());
  EncodeAndDecode(Input(data, size));
  return 0;
}
