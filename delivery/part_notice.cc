#include "delivery/part_notice.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"

namespace postrider::delivery {
namespace {

constexpr uint8_t kMark = 9;
constexpr uint8_t kVersion = 1;

}  // namespace

std::string EncodePartNotice(const PartNotice& notice) {
  ByteWriter out;
  out.U8(kMark);
  out.U8(kVersion);
  out.U8(static_cast<uint8_t>(notice.disabled));
  out.Varint(notice.generation);
  out.Zigzag(MillisSinceEpoch(notice.disabled_at));
  return out.Take();
}

absl::StatusOr<PartNotice> DecodePartNotice(absl::string_view encoded) {
  ByteReader in(encoded);
  const uint8_t mark = in.U8();
  const uint8_t version = in.U8();
  if (in.ok() && mark == kMark && version > kVersion) {
    return absl::UnimplementedError(
        absl::StrCat("part notice: version ", version, ", this program reads ", kVersion));
  }
  PartNotice notice;
  const uint8_t disabled = in.U8();
  notice.generation = in.Varint();
  notice.disabled_at = WallTimeFromMillis(in.Zigzag());
  if (!in.done() || in.padded() || mark != kMark || version != kVersion || disabled == 0 ||
      disabled > static_cast<uint8_t>(DisableReason::kFailing)) {
    return absl::DataLossError("part notice: it was never written");
  }
  notice.disabled = static_cast<DisableReason>(disabled);
  return notice;
}

}  // namespace postrider::delivery
