#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "core/base/check.h"
#include "core/json/json.h"
#include "core/json/reader.h"
#include "core/json/writer.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

// What a pointer's steps lead to in a parsed document; null when it is nothing.
const JsonValue* Walk(const JsonValue& document, const std::vector<std::string>& steps) {
  const JsonValue* at = &document;
  for (const std::string& step : steps) {
    if (at->is_object()) {
      at = at->Find(step);
    } else if (at->is_array()) {
      uint64_t index = 0;
      const bool digits = !step.empty() &&
                          step.find_first_not_of("0123456789") == std::string::npos &&
                          (step.size() == 1 || step[0] != '0') && absl::SimpleAtoi(step, &index);
      at = digits && index < at->array()->size() ? &(*at->array())[index] : nullptr;
    } else {
      return nullptr;
    }
    if (at == nullptr) return nullptr;
  }
  return at;
}

void Compare(const JsonScalar& found, const JsonValue* wanted) {
  if (wanted == nullptr) return POSTRIDER_CHECK(found.kind == JsonKind::kAbsent);
  switch (wanted->kind()) {
    case JsonValue::Kind::kNull:
      return POSTRIDER_CHECK(found.kind == JsonKind::kNull);
    case JsonValue::Kind::kBool:
      POSTRIDER_CHECK(found.kind == JsonKind::kBool);
      return POSTRIDER_CHECK(found.text == (*wanted->boolean() ? "true" : "false"));
    case JsonValue::Kind::kString:
      POSTRIDER_CHECK(found.kind == JsonKind::kString && !found.has_lone_surrogate);
      return POSTRIDER_CHECK(found.text == *wanted->string());
    case JsonValue::Kind::kInt:
    case JsonValue::Kind::kDouble: {
      POSTRIDER_CHECK(found.kind == JsonKind::kNumber);
      const absl::StatusOr<JsonValue> number = JsonValue::Parse(found.text);
      return POSTRIDER_CHECK(number.ok() && *number == *wanted);
    }
    case JsonValue::Kind::kArray:
      return POSTRIDER_CHECK(found.kind == JsonKind::kArray);
    case JsonValue::Kind::kObject:
      return POSTRIDER_CHECK(found.kind == JsonKind::kObject);
    case JsonValue::Kind::kRaw:
      break;
  }
  POSTRIDER_CHECK(false);
}

// The pointers of everything in a document, some hundred at most.
void CollectPointers(const JsonValue& value, const std::string& path,
                     std::vector<std::string>* pointers) {
  if (pointers->size() >= 100) return;
  pointers->push_back(path);
  if (value.is_object()) {
    for (const JsonMember& member : *value.object()) {
      std::string deeper = path;
      AppendPointerStep(member.name, &deeper);
      CollectPointers(member.value, deeper, pointers);
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.array()->size(); ++i) {
      CollectPointers((*value.array())[i], path + "/" + std::to_string(i), pointers);
    }
  }
}

}  // namespace
}  // namespace postrider::fuzz

// A pointer, a line feed, a document.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  const absl::string_view input = View(data, size);
  const size_t line = input.find('\n');
  const absl::string_view text = input.substr(0, line);
  const absl::string_view document =
      line == absl::string_view::npos ? absl::string_view() : input.substr(line + 1);

  const absl::StatusOr<JsonPointer> pointer = JsonPointer::Parse(text);
  if (pointer.ok()) {
    std::string again;
    for (const std::string& step : pointer->steps()) AppendPointerStep(step, &again);
    POSTRIDER_CHECK(again == text);
  }
  if (ProveJson(document) != JsonProof::kProven) return 0;
  PointerReader reader;
  reader.Reset(document);
  if (pointer.ok()) reader.Find(*pointer);
  // What has a name twice or numbers past a double is proven, but is no JsonValue.
  const absl::StatusOr<JsonValue> value = JsonValue::Parse(document);
  if (!value.ok()) return 0;
  if (pointer.ok()) Compare(reader.Find(*pointer), Walk(*value, pointer->steps()));
  std::vector<std::string> pointers;
  CollectPointers(*value, "", &pointers);
  for (const std::string& each : pointers) {
    const absl::StatusOr<JsonPointer> parsed = JsonPointer::Parse(each);
    POSTRIDER_CHECK(parsed.ok());
    const JsonValue* const wanted = Walk(*value, parsed->steps());
    POSTRIDER_CHECK(wanted != nullptr);
    Compare(reader.Find(*parsed), wanted);
  }
  return 0;
}
