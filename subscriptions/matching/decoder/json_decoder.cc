#include "subscriptions/matching/decoder/json_decoder.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/json/time_text.h"

namespace postrider::subscriptions {
namespace {

constexpr absl::string_view kHeader = "header:";
// The years 0000 to 9999, which RFC 3339 can say.
constexpr int64_t kMillisLeast = -62'167'219'200'000;
constexpr int64_t kMillisMost = 253'402'300'799'999;

bool IsCleanText(absl::string_view text) {
  if (text.size() > kEventFieldBytesMax) return false;
  bool ascii = true;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7f) return false;
    ascii = ascii && byte < 0x80;
  }
  return ascii || IsUtf8(text);
}

absl::optional<WallTime> TimeOf(absl::string_view text) {
  int64_t millis = 0;
  // Nothing but digits: SimpleAtoi would take spaces and a plus too.
  if (text.find_first_not_of("-0123456789") == absl::string_view::npos &&
      absl::SimpleAtoi(text, &millis)) {
    if (millis < kMillisLeast || millis > kMillisMost) return absl::nullopt;
    return WallTimeFromMillis(millis);
  }
  return ParseRfc3339(text);
}

}  // namespace

absl::string_view RejectReasonName(RejectReason reason) {
  switch (reason) {
    case RejectReason::kTooLarge:
      return "too_large";
    case RejectReason::kNotJson:
      return "not_json";
    case RejectReason::kNotUtf8:
      return "not_utf8";
    case RejectReason::kTooDeep:
      return "too_deep";
    case RejectReason::kTenantWrongType:
      return "tenant_wrong_type";
    case RejectReason::kDepartmentWrongType:
      return "department_wrong_type";
    case RejectReason::kIdWrongType:
      return "id_wrong_type";
    case RejectReason::kBadTime:
      return "bad_time";
    case RejectReason::kBadText:
      return "bad_text";
    case RejectReason::kLoop:
      return "loop";
  }
  return "unknown";
}

void JsonDecoderOptions::Register(Options& options) {
  options.Add("source.topic_prefix", &topic_prefix,
              "A source topic's name without this beginning is its event type.");
  options.AddList(
      "source.tenant", &tenant,
      "Where an event's tenant stands: `header:<name>` or a JSON pointer into its value; "
      "tried in order.");
  options.AddList("source.department", &department,
                  "Where an event's department stands, as source.tenant.");
  options.AddList("source.id", &id, "Where an event's id stands, as source.tenant.");
  options.AddList("source.time", &time,
                  "Where an event's time stands (RFC 3339, or ms since 1970), as source.tenant; "
                  "else it is the record's.");
  options.AddBytes("event.bytes_max", &bytes_max, 1 << 10, 768 << 10,
                   "Larger events go to the rejected topic.");
}

absl::StatusOr<JsonDecoder::Places> JsonDecoder::ParsePlaces(const std::vector<std::string>& texts,
                                                             absl::string_view option) {
  Places places;
  for (absl::string_view text : texts) {
    Place place;
    if (absl::ConsumePrefix(&text, kHeader)) {
      if (text.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(option, ": a header without a name"));
      }
      place.header = std::string(text);
    } else {
      absl::StatusOr<JsonPointer> pointer = JsonPointer::Parse(text);
      if (!pointer.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(
            option, ": \"", text,
            "\" is no header:<name> and no JSON pointer: ", pointer.status().message()));
      }
      place.pointer = *std::move(pointer);
    }
    places.push_back(std::move(place));
  }
  return places;
}

absl::StatusOr<std::unique_ptr<JsonDecoder>> JsonDecoder::Create(
    const JsonDecoderOptions& options) {
  std::unique_ptr<JsonDecoder> decoder(new JsonDecoder);
  decoder->topic_prefix_ = options.topic_prefix;
  decoder->bytes_max_ = static_cast<size_t>(options.bytes_max);
  ASSIGN_OR_RETURN(decoder->tenant_, ParsePlaces(options.tenant, "source.tenant"));
  ASSIGN_OR_RETURN(decoder->department_, ParsePlaces(options.department, "source.department"));
  ASSIGN_OR_RETURN(decoder->id_, ParsePlaces(options.id, "source.id"));
  ASSIGN_OR_RETURN(decoder->time_, ParsePlaces(options.time, "source.time"));
  return decoder;
}

absl::string_view JsonDecoder::TypeOf(absl::string_view topic) const {
  absl::string_view type = topic;
  return absl::ConsumePrefix(&type, topic_prefix_) && !type.empty() ? type : topic;
}

absl::optional<RejectReason> JsonDecoder::Prove() {
  if (proven_) return absl::nullopt;
  switch (prover_.Prove(record_.value)) {
    case JsonProof::kProven:
      break;
    case JsonProof::kNotUtf8:
      return RejectReason::kNotUtf8;
    case JsonProof::kNotJson:
      return RejectReason::kNotJson;
    case JsonProof::kTooDeep:
      return RejectReason::kTooDeep;
  }
  proven_ = true;
  reader_.Reset(record_.value);
  return absl::nullopt;
}

absl::optional<RejectReason> JsonDecoder::Take(const Places& places, Taken* taken,
                                               absl::string_view* text) {
  *taken = Taken::kNone;
  *text = absl::string_view();
  for (const Place& place : places) {
    Taken kind = Taken::kText;
    if (!place.header.empty()) {
      *text = record_.Header(place.header);
    } else {
      if (const auto rejected = Prove()) return rejected;
      const JsonScalar found = reader_.Find(place.pointer);
      if (found.has_lone_surrogate) return RejectReason::kBadText;
      *text = found.text;
      switch (found.kind) {
        case JsonKind::kAbsent:
        case JsonKind::kNull:
          continue;
        case JsonKind::kString:
          break;
        case JsonKind::kNumber:
          kind = Taken::kNumber;
          break;
        default:
          kind = Taken::kWrongType;
          break;
      }
    }
    if (kind != Taken::kWrongType && text->empty()) continue;
    if (!IsCleanText(*text)) return RejectReason::kBadText;
    *taken = kind;
    return absl::nullopt;
  }
  *text = absl::string_view();
  return absl::nullopt;
}

absl::optional<RejectReason> JsonDecoder::Begin(const LogRecord& record) {
  record_ = record;
  proven_ = false;
  event_ = DecodedEvent();
  if (record.value.size() > bytes_max_) return RejectReason::kTooLarge;
  Taken taken;
  if (const auto rejected = Take(tenant_, &taken, &event_.tenant)) return rejected;
  if (taken == Taken::kNumber || taken == Taken::kWrongType) return RejectReason::kTenantWrongType;
  return absl::nullopt;
}

absl::optional<RejectReason> JsonDecoder::Finish() {
  if (const auto rejected = Prove()) return rejected;
  Taken taken;
  absl::string_view text;
  if (const auto rejected = Take(department_, &taken, &text)) return rejected;
  if (taken == Taken::kNumber || taken == Taken::kWrongType) {
    return RejectReason::kDepartmentWrongType;
  }
  if (taken == Taken::kText) event_.department = text;
  if (const auto rejected = Take(id_, &taken, &event_.id)) return rejected;
  if (taken == Taken::kWrongType) return RejectReason::kIdWrongType;
  if (const auto rejected = Take(time_, &taken, &text)) return rejected;
  event_.time = record_.timestamp;
  if (taken == Taken::kWrongType) return RejectReason::kBadTime;
  if (taken != Taken::kNone) {
    const absl::optional<WallTime> time = TimeOf(text);
    if (!time) return RejectReason::kBadTime;
    event_.time = *time;
  }
  return absl::nullopt;
}

}  // namespace postrider::subscriptions
