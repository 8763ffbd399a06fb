#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider {

struct JsonMember;

struct JsonLimits {
  size_t bytes_max = 1 << 20;
  size_t depth_max = 32;  // arrays and objects inside each other; at most 256
};

// A JSON document as values: for the REST API, settings and what is kept in columns. Objects keep
// the order of their members. Events are never read into it (core/json/reader.h).
//
// Threads: as a plain value.
class JsonValue {
 public:
  // kRaw is text that was proven to be one JSON value elsewhere and is written as it is.
  enum class Kind { kNull, kBool, kInt, kDouble, kString, kArray, kObject, kRaw };
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;

  JsonValue();                                // null
  JsonValue(std::nullptr_t) : JsonValue() {}  // NOLINT(google-explicit-constructor)
  JsonValue(bool value);                      // NOLINT(google-explicit-constructor)
  JsonValue(double value);                    // NOLINT(google-explicit-constructor)
  JsonValue(std::string value);               // NOLINT(google-explicit-constructor)
  JsonValue(absl::string_view value);         // NOLINT(google-explicit-constructor)
  JsonValue(const char* value);               // NOLINT(google-explicit-constructor)
  // A number past int64 becomes a double.
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) JsonValue(T value)
      : JsonValue() {  // NOLINT(google-explicit-constructor)
    if (std::in_range<int64_t>(value)) {
      SetInt(static_cast<int64_t>(value));
    } else {
      *this = JsonValue(static_cast<double>(value));
    }
  }
  JsonValue(Array value);   // NOLINT(google-explicit-constructor)
  JsonValue(Object value);  // NOLINT(google-explicit-constructor)
  static JsonValue MakeObject();
  static JsonValue MakeObject(
      std::initializer_list<std::pair<absl::string_view, JsonValue>> members);
  static JsonValue MakeArray();
  static JsonValue Raw(std::string proven_json);

  JsonValue(const JsonValue&);
  JsonValue(JsonValue&&) noexcept;
  JsonValue& operator=(const JsonValue&);
  JsonValue& operator=(JsonValue&&) noexcept;
  ~JsonValue();

  // Exactly one valid UTF-8 JSON value. Refused, InvalidArgument with the byte at which it went
  // wrong: a name that an object has twice, numbers past a double, escapes of lone surrogates, more
  // than `limits`.
  static absl::StatusOr<JsonValue> Parse(absl::string_view text, const JsonLimits& limits = {});

  Kind kind() const;
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }

  // What it holds, or nothing when it is of another kind. A double gives no integer, not even 1.0.
  absl::optional<bool> boolean() const;
  absl::optional<int64_t> integer() const;
  absl::optional<double> number() const;  // of both kinds of number
  const std::string* string() const;      // also the text of a raw one
  const Array* array() const;
  Array* array();
  const Object* object() const;
  Object* object();

  // The member of that name; null when there is none or this is no object.
  const JsonValue* Find(absl::string_view name) const;
  JsonValue* Find(absl::string_view name);
  // Sets a member, a new one last; this must be an object (null becomes one): CHECKed.
  JsonValue& Set(absl::string_view name, JsonValue value);
  // False: there was none.
  bool Remove(absl::string_view name);
  // Adds an element; this must be an array (null becomes one): CHECKed.
  JsonValue& Append(JsonValue value);

  void AppendTo(std::string* out) const;
  std::string Serialize() const;

  // Objects are equal in the same order only.
  friend bool operator==(const JsonValue& a, const JsonValue& b);

 private:
  struct RawText {
    std::string text;
    friend bool operator==(const RawText&, const RawText&) = default;
  };
  void SetInt(int64_t value);

  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object, RawText> value_;
};

struct JsonMember {
  std::string name;
  JsonValue value;
  friend bool operator==(const JsonMember&, const JsonMember&) = default;
};

// The merge patch of RFC 7396: members of `patch` replace those of `target`, null removes.
void MergePatch(JsonValue& target, const JsonValue& patch);

}  // namespace postrider
