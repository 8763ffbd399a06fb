#include "api/internal/fields.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "api/problem.h"
#include "core/json/writer.h"

namespace postrider::api {

using subscriptions::FieldFault;
using subscriptions::FieldFaults;

FieldReader::FieldReader(const JsonValue* object, std::string pointer, FieldFaults& faults)
    : object_(object), pointer_(std::move(pointer)), faults_(faults) {
  if (object_ != nullptr && !object_->is_object()) {
    faults_.push_back({pointer_, "must be an object"});
    object_ = nullptr;
  }
}

std::string FieldReader::PointerTo(absl::string_view name) const {
  std::string pointer = pointer_;
  AppendPointerStep(name, &pointer);
  return pointer;
}

void FieldReader::Fault(absl::string_view name, absl::string_view detail) {
  faults_.push_back({PointerTo(name), std::string(detail)});
}

const JsonValue* FieldReader::Take(absl::string_view name) {
  taken_.emplace_back(name);
  const JsonValue* value = object_ == nullptr ? nullptr : object_->Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool FieldReader::WrongKind(absl::string_view name, absl::string_view what) {
  Fault(name, absl::StrCat("must be ", what));
  return false;
}

bool FieldReader::String(absl::string_view name, std::string* out) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return false;
  if (!value->is_string()) return WrongKind(name, "a string");
  *out = *value->string();
  return true;
}

bool FieldReader::Int(absl::string_view name, int64_t* out) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return false;
  const absl::optional<int64_t> number = value->integer();
  if (!number) return WrongKind(name, "a whole number");
  *out = *number;
  return true;
}

bool FieldReader::Int(absl::string_view name, int* out) {
  int64_t wide = 0;
  if (!Int(name, &wide)) return false;
  // The bounds that are checked later are narrower.
  *out = static_cast<int>(
      std::clamp<int64_t>(wide, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
  return true;
}

bool FieldReader::Number(absl::string_view name, double* out) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return false;
  const absl::optional<double> number = value->number();
  if (!number) return WrongKind(name, "a number");
  *out = *number;
  return true;
}

bool FieldReader::Millis(absl::string_view name, std::chrono::milliseconds* out) {
  int64_t count = 0;
  if (!Int(name, &count)) return false;
  *out = std::chrono::milliseconds(count);
  return true;
}

bool FieldReader::Bool(absl::string_view name, bool* out) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return false;
  const absl::optional<bool> truth = value->boolean();
  if (!truth) return WrongKind(name, "true or false");
  *out = *truth;
  return true;
}

bool FieldReader::IntList(absl::string_view name, std::vector<int64_t>* out) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return false;
  if (!value->is_array()) return WrongKind(name, "an array of whole numbers");
  std::vector<int64_t> numbers;
  bool clean = true;
  for (size_t i = 0; i < value->array()->size(); ++i) {
    const absl::optional<int64_t> number = (*value->array())[i].integer();
    if (!number) {
      faults_.push_back({absl::StrCat(PointerTo(name), "/", i), "must be a whole number"});
      clean = false;
    } else {
      numbers.push_back(*number);
    }
  }
  if (clean) *out = std::move(numbers);
  return clean;
}

bool FieldReader::StringList(absl::string_view name, std::vector<std::string>* out) {
  const JsonValue* value = Take(name);
  if (value == nullptr) return false;
  if (!value->is_array()) return WrongKind(name, "an array of strings");
  std::vector<std::string> strings;
  bool clean = true;
  for (size_t i = 0; i < value->array()->size(); ++i) {
    const std::string* text =
        (*value->array())[i].is_string() ? (*value->array())[i].string() : nullptr;
    if (text == nullptr) {
      faults_.push_back({absl::StrCat(PointerTo(name), "/", i), "must be a string"});
      clean = false;
    } else {
      strings.push_back(*text);
    }
  }
  if (clean) *out = std::move(strings);
  return clean;
}

bool FieldReader::RequiredString(absl::string_view name, std::string* out) {
  Required(name);
  return String(name, out);
}

void FieldReader::Required(absl::string_view name) {
  if (Take(name) == nullptr) Fault(name, "is required");
}

void FieldReader::Range(absl::string_view name, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most) {
    Fault(name, absl::StrCat("must be between ", least, " and ", most));
  }
}

void FieldReader::Finish() {
  if (object_ == nullptr) return;
  for (const JsonMember& member : *object_->object()) {
    if (std::find(taken_.begin(), taken_.end(), member.name) == taken_.end()) {
      Fault(member.name, "is no field of this");
    }
  }
}

ParsedBody ParseBody(const Request& request, BodyNeed need) {
  ParsedBody parsed;
  if (request.body.empty() && need == BodyNeed::kOptional) {
    parsed.object = JsonValue::MakeObject();
    return parsed;
  }
  absl::StatusOr<JsonValue> value =
      JsonValue::Parse(request.body, JsonLimits{.bytes_max = request.body.size() + 1});
  if (!value.ok()) {
    parsed.refusal =
        Problem(400, absl::StrCat("The body is not one JSON value: ", value.status().message()));
  } else if (!value->is_object()) {
    parsed.refusal = ProblemFromFaults({{"", "must be an object"}});
  } else {
    parsed.object = *std::move(value);
  }
  return parsed;
}

void FindUnknownMembers(const JsonValue& patch, const JsonValue& shape,
                        const std::vector<std::string>& open, const std::string& pointer,
                        FieldFaults* faults) {
  if (!patch.is_object() || !shape.is_object()) return;
  if (std::find(open.begin(), open.end(), pointer) != open.end()) return;
  for (const JsonMember& member : *patch.object()) {
    std::string place = pointer;
    AppendPointerStep(member.name, &place);
    const JsonValue* known = shape.Find(member.name);
    if (known == nullptr) {
      faults->push_back({place, "is no field of this"});
    } else {
      FindUnknownMembers(member.value, *known, open, place, faults);
    }
  }
}

void KeepFirstFaults(FieldFaults* faults) {
  absl::flat_hash_set<std::string> seen;
  FieldFaults kept;
  for (FieldFault& fault : *faults) {
    if (seen.insert(fault.pointer).second) kept.push_back(std::move(fault));
  }
  *faults = std::move(kept);
}

}  // namespace postrider::api
