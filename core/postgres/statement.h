#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/base/id.h"

namespace postrider {

// One bound parameter. Its type is what the SQL says, so write casts there: `$1::uuid`.
class SqlParam {
 public:
  // NUL cannot stand in a Postgres text: such a value makes the statement fail with
  // InvalidArgument before it is sent.
  SqlParam(absl::string_view text) : value_(std::string(text)) {}  // NOLINT: a value
  SqlParam(const std::string& text) : value_(text) {}              // NOLINT: a value
  SqlParam(const char* text) : value_(std::string(text)) {}        // NOLINT: a value

  static SqlParam Null() { return SqlParam(absl::nullopt, false); }
  static SqlParam Int(int64_t value) { return SqlParam(std::to_string(value)); }
  static SqlParam Double(double value);
  static SqlParam Bool(bool value) { return SqlParam(value ? "t" : "f"); }
  static SqlParam Uuid(const IdBytes& value) { return SqlParam(FormatUuid(value)); }
  // Bytes, any: the SQL must take them as `bytea`.
  static SqlParam Bytes(absl::string_view bytes) { return SqlParam(std::string(bytes), true); }
  // A `text[]`.
  static SqlParam TextArray(absl::Span<const std::string> values);
  // A `timestamptz`, in milliseconds.
  static SqlParam Time(WallTime value);
  static SqlParam OptionalText(const absl::optional<std::string>& value) {
    return value ? SqlParam(*value) : Null();
  }

  const absl::optional<std::string>& value() const { return value_; }
  bool binary() const { return binary_; }

 private:
  SqlParam(absl::optional<std::string> value, bool binary)
      : value_(std::move(value)), binary_(binary) {}

  absl::optional<std::string> value_;
  bool binary_ = false;
};

// One SQL statement with its parameters.
struct Statement {
  std::string sql;
  std::vector<SqlParam> params;
};

// How a `text[]` is written in text form: quoted, escaped.
std::string FormatTextArray(absl::Span<const std::string> values);

}  // namespace postrider
