#include <string>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "dlq/letters/dead_letter_record.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using dlq::DeadLetterRecord;
using dlq::DecodeDeadLetter;
using dlq::EncodeDeadLetter;

void Decode(absl::string_view bytes) {
  const absl::StatusOr<DeadLetterRecord> decoded = DecodeDeadLetter(bytes);
  if (decoded.ok()) {
    POSTRIDER_CHECK(EncodeDeadLetter(*decoded) == bytes);
    POSTRIDER_CHECK(dlq::DeadReasonName(decoded->reason) != "unknown");
  } else {
    POSTRIDER_CHECK(absl::IsDataLoss(decoded.status()));
  }
}

void EncodeAndDecode(Input in) {
  DeadLetterRecord record;
  record.letter = in.IdOf<subscriptions::LetterId>();
  record.customer = in.IdOf<subscriptions::CustomerId>();
  record.endpoint = in.IdOf<subscriptions::EndpointId>();
  record.reason = *dlq::DeadReasonFromNumber(1 + in.UpTo(5));
  record.attempts = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  record.last_status = static_cast<int32_t>(in.Between(INT32_MIN, INT32_MAX));
  record.last_outcome = std::string(in.Text());
  record.message_id = std::string(in.Text());
  record.event_id = std::string(in.Text());
  record.type = std::string(in.Text());
  record.tenant = std::string(in.Text());
  if (in.Flag()) record.department = std::string(in.Text());
  record.event_time = WallTimeFromMillis(in.Signed());
  record.given_up_at = WallTimeFromMillis(in.Signed());
  record.data = std::string(in.rest());
  const std::string bytes = EncodeDeadLetter(record);
  const absl::StatusOr<DeadLetterRecord> decoded = DecodeDeadLetter(bytes);
  POSTRIDER_CHECK(decoded.ok());
  POSTRIDER_CHECK(decoded->letter == record.letter);
  POSTRIDER_CHECK(decoded->customer == record.customer);
  POSTRIDER_CHECK(decoded->endpoint == record.endpoint);
  POSTRIDER_CHECK(decoded->reason == record.reason);
  POSTRIDER_CHECK(decoded->attempts == record.attempts);
  POSTRIDER_CHECK(decoded->last_status == record.last_status);
  POSTRIDER_CHECK(decoded->last_outcome == record.last_outcome);
  POSTRIDER_CHECK(decoded->message_id == record.message_id);
  POSTRIDER_CHECK(decoded->event_id == record.event_id);
  POSTRIDER_CHECK(decoded->type == record.type);
  POSTRIDER_CHECK(decoded->tenant == record.tenant);
  POSTRIDER_CHECK(decoded->department == record.department);
  POSTRIDER_CHECK(decoded->event_time == record.event_time);
  POSTRIDER_CHECK(decoded->given_up_at == record.given_up_at);
  POSTRIDER_CHECK(decoded->data == record.data);
  for (size_t cut = 1; cut <= bytes.size() && cut <= 64; ++cut) {
    POSTRIDER_CHECK(!DecodeDeadLetter(absl::string_view(bytes).substr(0, bytes.size() - cut)).ok());
  }
  POSTRIDER_CHECK(!DecodeDeadLetter(bytes + '\0').ok());
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  EncodeAndDecode(Input(data, size));
  return 0;
}
