#include <memory>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/json/json.h"
#include "core/json/reader.h"
#include "core/stream/record.h"
#include "subscriptions/matching/decoder/json_decoder.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using subscriptions::DecodedEvent;
using subscriptions::JsonDecoder;
using subscriptions::RejectReason;

void CheckText(absl::string_view text) {
  POSTRIDER_CHECK(text.size() <= subscriptions::kEventFieldBytesMax);
  POSTRIDER_CHECK(IsUtf8(text));
  for (const char c : text) POSTRIDER_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
}

absl::optional<RejectReason> Decode(JsonDecoder& decoder, const LogRecord& record) {
  if (const absl::optional<RejectReason> reason = decoder.Begin(record)) return reason;
  return decoder.Finish();
}

// A reason that speaks of the document is the one that the proof gives; what passes is proven.
void CheckProof(absl::optional<RejectReason> reason, JsonProof proof) {
  POSTRIDER_CHECK((reason == RejectReason::kNotJson) == (proof == JsonProof::kNotJson) ||
                  reason == RejectReason::kBadText);
  if (!reason) POSTRIDER_CHECK(proof == JsonProof::kProven);
  if (reason == RejectReason::kNotUtf8) POSTRIDER_CHECK(proof == JsonProof::kNotUtf8);
  if (reason == RejectReason::kTooDeep) POSTRIDER_CHECK(proof == JsonProof::kTooDeep);
}

// A field of the document that no header gave is the one that a parsed document has.
void CompareWithValue(const DecodedEvent& event, const JsonValue& value) {
  const JsonValue* const tenant = value.Find("tenant");
  const bool named = tenant != nullptr && tenant->is_string();
  POSTRIDER_CHECK(event.tenant == (named ? absl::string_view(*tenant->string()) : ""));
}

}  // namespace
}  // namespace postrider::fuzz

// How many headers, for each a name's number and a counted value; the rest is the record's value.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  static JsonDecoder& decoder = *JsonDecoder::Create({})->release();
  constexpr absl::string_view kNames[] = {"tenant", "department", "id", "time", "other"};
  Input in(data, size);
  std::vector<RecordHeader> headers;
  for (int left = in.Byte() % 4; left > 0; --left) {
    const absl::string_view name = kNames[in.Byte() % 5u];
    headers.push_back({name, in.Text()});
  }
  LogRecord record;
  record.topic = "events.a";
  record.headers = headers;
  record.value = in.rest();
  const absl::optional<RejectReason> reason = Decode(decoder, record);
  CheckProof(reason, ProveJson(record.value));
  if (reason) {
    POSTRIDER_CHECK(subscriptions::RejectReasonName(*reason) != "unknown");
    return 0;
  }
  CheckText(decoder.event().tenant);
  CheckText(decoder.event().id);
  if (decoder.event().department) CheckText(*decoder.event().department);
  if (headers.empty()) {
    const absl::StatusOr<JsonValue> value = JsonValue::Parse(record.value);
    if (value.ok()) CompareWithValue(decoder.event(), *value);
  }
  return 0;
}
