#include <string>

#include "core/base/check.h"
#include "core/json/json.h"
#include "core/json/reader.h"
#include "core/json/writer.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

// What is written can be read and is written the same again.
void WriteAndRead(const JsonValue& value) {
  const std::string text = value.Serialize();
  POSTRIDER_CHECK(ProveJson(text) == JsonProof::kProven);
  const absl::StatusOr<JsonValue> again =
      JsonValue::Parse(text, JsonLimits{.bytes_max = text.size(), .depth_max = 256});
  POSTRIDER_CHECK(again.ok());
  POSTRIDER_CHECK(again->Serialize() == text);
}

// RFC 7396, said of the result: each member of a patch rules, the others stay.
void CheckPatched(const JsonValue* before, const JsonValue& patch, const JsonValue& after) {
  if (!patch.is_object()) return POSTRIDER_CHECK(after == patch);
  POSTRIDER_CHECK(after.is_object());
  const bool merged = before != nullptr && before->is_object();
  for (const JsonMember& member : *patch.object()) {
    const JsonValue* const result = after.Find(member.name);
    if (member.value.is_null()) {
      POSTRIDER_CHECK(result == nullptr);
    } else {
      POSTRIDER_CHECK(result != nullptr);
      CheckPatched(merged ? before->Find(member.name) : nullptr, member.value, *result);
    }
  }
  for (const JsonMember& member : *after.object()) {
    if (patch.Find(member.name) != nullptr) continue;
    POSTRIDER_CHECK(merged);
    const JsonValue* const kept = before->Find(member.name);
    POSTRIDER_CHECK(kept != nullptr && *kept == member.value);
  }
  if (!merged) return;
  for (const JsonMember& member : *before->object()) {
    POSTRIDER_CHECK(patch.Find(member.name) != nullptr || after.Find(member.name) != nullptr);
  }
}

}  // namespace
}  // namespace postrider::fuzz

// A document, and after a NUL a patch for it.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  const absl::string_view input = View(data, size);
  std::string written;
  AppendJsonString(input, &written);
  const absl::StatusOr<JsonValue> string =
      JsonValue::Parse(written, JsonLimits{.bytes_max = written.size()});
  POSTRIDER_CHECK(string.ok() && string->is_string());
  if (IsUtf8(input)) POSTRIDER_CHECK(*string->string() == input);

  const size_t end = input.find('\0');
  const absl::StatusOr<JsonValue> target = JsonValue::Parse(input.substr(0, end));
  if (!target.ok()) return 0;
  WriteAndRead(*target);
  if (end == absl::string_view::npos) return 0;
  const absl::StatusOr<JsonValue> patch = JsonValue::Parse(input.substr(end + 1));
  if (!patch.ok()) return 0;
  JsonValue patched = *target;
  MergePatch(patched, *patch);
  CheckPatched(&*target, *patch, patched);
  WriteAndRead(patched);
  JsonValue twice = patched;
  MergePatch(twice, *patch);
  POSTRIDER_CHECK(twice == patched);
  return 0;
}
