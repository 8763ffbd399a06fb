#include "core/json/json.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/json/internal/text.h"
#include "core/json/reader.h"
#include "core/json/writer.h"

namespace postrider {
namespace {

using json_internal::SkipSpace;

constexpr size_t kDepthMax = 256;  // Parse() recurses

// Builds the values of a text that was proven. What is refused here beyond the grammar sets
// `fault`.
class Builder {
 public:
  Builder(absl::string_view proven, size_t depth_max)
      : begin_(proven.data()),
        at_(proven.data()),
        end_(at_ + proven.size()),
        depth_max_(depth_max) {}

  JsonValue Value(size_t depth) {
    at_ = SkipSpace(at_, end_);
    switch (*at_) {
      case '{':
        return ObjectValue(depth + 1);
      case '[':
        return ArrayValue(depth + 1);
      case '"':
        return JsonValue(String());
      case 't':
        at_ += 4;
        return JsonValue(true);
      case 'f':
        at_ += 5;
        return JsonValue(false);
      case 'n':
        at_ += 4;
        return JsonValue();
      default:
        return Number();
    }
  }
  const std::string& fault() const { return fault_; }

 private:
  void Refuse(const char* where, absl::string_view why) {
    if (fault_.empty()) fault_ = absl::StrCat("byte ", where - begin_, ": ", why);
  }
  bool TooDeep(size_t depth) {
    if (depth <= depth_max_) return false;
    Refuse(at_, absl::StrCat("nested more than ", depth_max_, " deep"));
    return true;
  }
  JsonValue ObjectValue(size_t depth) {
    if (TooDeep(depth)) return JsonValue();
    JsonValue::Object members;
    absl::flat_hash_set<std::string> names;
    at_ = SkipSpace(at_ + 1, end_);
    while (*at_ != '}') {
      const char* const where = at_;
      std::string name = String();
      if (!names.insert(name).second) Refuse(where, "a name that this object has already");
      at_ = SkipSpace(at_, end_) + 1;  // the colon
      members.push_back(JsonMember{std::move(name), Value(depth)});
      if (!fault_.empty()) return JsonValue();
      at_ = SkipSpace(at_, end_);
      if (*at_ == ',') at_ = SkipSpace(at_ + 1, end_);
    }
    ++at_;
    return JsonValue(std::move(members));
  }
  JsonValue ArrayValue(size_t depth) {
    if (TooDeep(depth)) return JsonValue();
    JsonValue::Array elements;
    at_ = SkipSpace(at_ + 1, end_);
    while (*at_ != ']') {
      elements.push_back(Value(depth));
      if (!fault_.empty()) return JsonValue();
      at_ = SkipSpace(at_, end_);
      if (*at_ == ',') at_ = SkipSpace(at_ + 1, end_);
    }
    ++at_;
    return JsonValue(std::move(elements));
  }
  std::string String() {
    const char* fault = nullptr;
    const char* const start = at_;
    at_ = json_internal::ScanString(start, end_, &fault);
    std::string out;
    if (!json_internal::AppendUnescaped(
            absl::string_view(start + 1, static_cast<size_t>(at_ - start - 2)), &out)) {
      Refuse(start, "a string with half a surrogate pair");
    }
    return out;
  }
  JsonValue Number() {
    const char* fault = nullptr;
    const char* const start = at_;
    at_ = json_internal::ScanNumber(start, end_, &fault);
    int64_t integer = 0;
    const auto whole = std::from_chars(start, at_, integer);
    if (whole.ec == std::errc() && whole.ptr == at_ && !(integer == 0 && *start == '-')) {
      return JsonValue(integer);
    }
    double number = 0;
    if (std::from_chars(start, at_, number).ec != std::errc()) {
      Refuse(start, "a number that is too large or too small");
    }
    return JsonValue(number);
  }

  const char* const begin_;
  const char* at_;
  const char* const end_;
  const size_t depth_max_;
  std::string fault_;
};

}  // namespace

JsonValue::JsonValue() = default;
JsonValue::JsonValue(bool value) : value_(value) {}
JsonValue::JsonValue(double value) : value_(value) {}
JsonValue::JsonValue(std::string value) : value_(std::move(value)) {}
JsonValue::JsonValue(absl::string_view value) : value_(std::string(value)) {}
JsonValue::JsonValue(const char* value) : value_(std::string(value)) {}
JsonValue::JsonValue(Array value) : value_(std::move(value)) {}
JsonValue::JsonValue(Object value) : value_(std::move(value)) {}
JsonValue::JsonValue(const JsonValue&) = default;
JsonValue::JsonValue(JsonValue&&) noexcept = default;
JsonValue& JsonValue::operator=(const JsonValue&) = default;
JsonValue& JsonValue::operator=(JsonValue&&) noexcept = default;
JsonValue::~JsonValue() = default;

JsonValue JsonValue::MakeObject() { return JsonValue(Object()); }
JsonValue JsonValue::MakeArray() { return JsonValue(Array()); }
JsonValue JsonValue::MakeObject(
    std::initializer_list<std::pair<absl::string_view, JsonValue>> members) {
  Object object;
  object.reserve(members.size());
  for (const auto& [name, value] : members) object.push_back(JsonMember{std::string(name), value});
  return JsonValue(std::move(object));
}
JsonValue JsonValue::Raw(std::string proven_json) {
  JsonValue value;
  value.value_ = RawText{std::move(proven_json)};
  return value;
}

void JsonValue::SetInt(int64_t value) { value_ = value; }

absl::StatusOr<JsonValue> JsonValue::Parse(absl::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", limits.bytes_max, " bytes"));
  }
  if (absl::Status proven = ProveOneJsonValue(text); !proven.ok()) return proven;
  Builder builder(text, std::min(limits.depth_max, kDepthMax));
  JsonValue value = builder.Value(0);
  if (!builder.fault().empty()) return absl::InvalidArgumentError(builder.fault());
  return value;
}

JsonValue::Kind JsonValue::kind() const { return static_cast<Kind>(value_.index()); }

absl::optional<bool> JsonValue::boolean() const {
  const bool* value = std::get_if<bool>(&value_);
  return value == nullptr ? absl::nullopt : absl::make_optional(*value);
}
absl::optional<int64_t> JsonValue::integer() const {
  const int64_t* value = std::get_if<int64_t>(&value_);
  return value == nullptr ? absl::nullopt : absl::make_optional(*value);
}
absl::optional<double> JsonValue::number() const {
  if (const int64_t* whole = std::get_if<int64_t>(&value_)) return static_cast<double>(*whole);
  const double* value = std::get_if<double>(&value_);
  return value == nullptr ? absl::nullopt : absl::make_optional(*value);
}
const std::string* JsonValue::string() const {
  if (const RawText* raw = std::get_if<RawText>(&value_)) return &raw->text;
  return std::get_if<std::string>(&value_);
}
const JsonValue::Array* JsonValue::array() const { return std::get_if<Array>(&value_); }
JsonValue::Array* JsonValue::array() { return std::get_if<Array>(&value_); }
const JsonValue::Object* JsonValue::object() const { return std::get_if<Object>(&value_); }
JsonValue::Object* JsonValue::object() { return std::get_if<Object>(&value_); }

const JsonValue* JsonValue::Find(absl::string_view name) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  for (const JsonMember& member : *members) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}
JsonValue* JsonValue::Find(absl::string_view name) {
  return const_cast<JsonValue*>(static_cast<const JsonValue*>(this)->Find(name));
}

JsonValue& JsonValue::Set(absl::string_view name, JsonValue value) {
  if (is_null()) value_ = Object();
  POSTRIDER_CHECK(is_object());
  if (JsonValue* found = Find(name)) {
    *found = std::move(value);
  } else {
    object()->push_back(JsonMember{std::string(name), std::move(value)});
  }
  return *this;
}

bool JsonValue::Remove(absl::string_view name) {
  Object* members = object();
  if (members == nullptr) return false;
  return std::erase_if(*members, [name](const JsonMember& m) { return m.name == name; }) > 0;
}

JsonValue& JsonValue::Append(JsonValue value) {
  if (is_null()) value_ = Array();
  POSTRIDER_CHECK(is_array());
  array()->push_back(std::move(value));
  return *this;
}

void JsonValue::AppendTo(std::string* out) const {
  switch (kind()) {
    case Kind::kNull:
      out->append("null");
      break;
    case Kind::kBool:
      out->append(*boolean() ? "true" : "false");
      break;
    case Kind::kInt:
      AppendJsonNumber(*integer(), out);
      break;
    case Kind::kDouble:
      AppendJsonNumber(*number(), out);
      break;
    case Kind::kString:
      AppendJsonString(*string(), out);
      break;
    case Kind::kRaw:
      out->append(*string());
      break;
    case Kind::kArray: {
      char before = '[';
      for (const JsonValue& element : *array()) {
        out->push_back(before);
        element.AppendTo(out);
        before = ',';
      }
      out->append(before == '[' ? "[]" : "]");
      break;
    }
    case Kind::kObject: {
      char before = '{';
      for (const JsonMember& member : *object()) {
        out->push_back(before);
        AppendJsonString(member.name, out);
        out->push_back(':');
        member.value.AppendTo(out);
        before = ',';
      }
      out->append(before == '{' ? "{}" : "}");
      break;
    }
  }
}

std::string JsonValue::Serialize() const {
  std::string out;
  AppendTo(&out);
  return out;
}

bool operator==(const JsonValue& a, const JsonValue& b) { return a.value_ == b.value_; }

void MergePatch(JsonValue& target, const JsonValue& patch) {
  if (!patch.is_object()) {
    target = patch;
    return;
  }
  if (!target.is_object()) target = JsonValue::MakeObject();
  // A body of a request may have 100,000 members, so each is found by a hash. The names in it stay
  // where they are, because `members` never grows past what is reserved.
  JsonValue::Object& members = *target.object();
  members.reserve(members.size() + patch.object()->size());
  absl::flat_hash_map<absl::string_view, size_t> places;
  for (size_t i = 0; i < members.size(); ++i) places.emplace(members[i].name, i);
  std::vector<bool> removed(members.size());
  for (const JsonMember& member : *patch.object()) {
    const auto found = places.find(member.name);
    if (member.value.is_null()) {
      if (found == places.end()) continue;
      removed[found->second] = true;
      places.erase(found);
    } else if (found != places.end()) {
      MergePatch(members[found->second].value, member.value);
    } else {
      members.push_back(JsonMember{member.name, JsonValue()});
      MergePatch(members.back().value, member.value);
      places.emplace(members.back().name, members.size() - 1);
      removed.push_back(false);
    }
  }
  size_t place = 0;
  std::erase_if(members, [&](const JsonMember&) { return removed[place++]; });
}

}  // namespace postrider
