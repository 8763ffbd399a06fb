#include "absl/status/status.h"
#include "core/base/check.h"
#include "delivery/part_notice.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using delivery::DecodePartNotice;
using delivery::EncodePartNotice;
using delivery::PartNotice;

void Decode(absl::string_view bytes) {
  const absl::StatusOr<PartNotice> notice = DecodePartNotice(bytes);
  if (notice.ok()) {
    POSTRIDER_CHECK(notice->disabled != delivery::DisableReason::kNone);
    POSTRIDER_CHECK(EncodePartNotice(*notice) == bytes);
  } else {
    POSTRIDER_CHECK(absl::IsDataLoss(notice.status()) || absl::IsUnimplemented(notice.status()));
  }
}

void EncodeAndDecode(Input in) {
  PartNotice notice;
  notice.disabled = in.Flag() ? delivery::DisableReason::kGone : delivery::DisableReason::kFailing;
  notice.generation = in.Number();
  notice.disabled_at = WallTimeFromMillis(in.Signed());
  const absl::StatusOr<PartNotice> decoded = DecodePartNotice(EncodePartNotice(notice));
  POSTRIDER_CHECK(decoded.ok() && *decoded == notice);
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  EncodeAndDecode(Input(data, size));
  return 0;
}
