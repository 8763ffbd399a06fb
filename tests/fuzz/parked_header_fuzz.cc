#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "delivery/outcome.h"
#include "delivery/parked_header.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using delivery::DecodeParkedHeader;
using delivery::EncodeParkedHeader;
using delivery::ParkedHeader;

// What decodes is what we would have written.
void Decode(absl::string_view bytes) {
  const absl::StatusOr<ParkedHeader> header = DecodeParkedHeader(bytes);
  if (header.ok()) POSTRIDER_CHECK(EncodeParkedHeader(*header) == bytes);
}

void EncodeAndDecode(Input in) {
  ParkedHeader header;
  if (in.Flag()) {
    header.batch.emplace();
    header.batch->key = in.Id();
    header.batch->count = static_cast<uint32_t>(in.Between(1, 100'000));
    header.batch->index = static_cast<uint32_t>(in.UpTo(header.batch->count - 1));
    delivery::BatchAttempts& attempts = header.batch->attempts;
    attempts.attempts = static_cast<uint32_t>(in.UpTo(1'000'000));
    attempts.tries = static_cast<uint32_t>(in.UpTo(1'000'000));
    attempts.first_try = WallTimeFromMillis(in.Signed());
    attempts.due = WallTimeFromMillis(in.Signed());
    attempts.last_outcome = static_cast<uint32_t>(in.UpTo(delivery::kOutcomeKinds - 1));
    attempts.last_status = static_cast<int32_t>(in.UpTo(999));
  }
  const std::string bytes = EncodeParkedHeader(header);
  const absl::StatusOr<ParkedHeader> decoded = DecodeParkedHeader(bytes);
  POSTRIDER_CHECK(decoded.ok() && *decoded == header);
  for (size_t size = 0; size < bytes.size(); ++size) {
    POSTRIDER_CHECK(!DecodeParkedHeader(absl::string_view(bytes).substr(0, size)).ok());
  }
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  EncodeAndDecode(Input(data, size));
  return 0;
}
