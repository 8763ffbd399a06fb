#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"

struct pg_result;

namespace postrider {

// What a statement gave: rows in text form, and how many rows it touched. Movable; owns its rows.
class QueryResult {
 public:
  struct Freer {
    void operator()(pg_result* result) const;
  };
  using Handle = std::unique_ptr<pg_result, Freer>;

  QueryResult() = default;
  explicit QueryResult(Handle handle) : handle_(std::move(handle)) {}

  size_t rows() const;
  size_t columns() const;
  // Rows inserted, updated, deleted, copied or selected.
  int64_t affected() const;
  // The command's tag, as "INSERT 0 1" or "ROLLBACK".
  absl::string_view command() const;
  // -1: there is no such column.
  int column(absl::string_view name) const;
  bool is_null(size_t row, int column) const;
  // The text of a value; valid as long as this result. Empty for NULL.
  absl::string_view text(size_t row, int column) const;

 private:
  Handle handle_;
};

// Reads one row by column names. After the first fault (no such column, NULL where none may be, a
// text that is not of the type) status() is kDataLoss and names the column, never the value; every
// read then gives a zero. Optional...() take NULL.
class RowReader {
 public:
  RowReader(const QueryResult& result, size_t row) : result_(result), row_(row) {}

  std::string Text(absl::string_view name);
  absl::optional<std::string> OptionalText(absl::string_view name);
  int64_t Int(absl::string_view name);
  absl::optional<int64_t> OptionalInt(absl::string_view name);
  // A `xid8` or another unsigned 64-bit number.
  uint64_t Unsigned(absl::string_view name);
  double Double(absl::string_view name);
  absl::optional<double> OptionalDouble(absl::string_view name);
  bool Bool(absl::string_view name);
  IdBytes Uuid(absl::string_view name);
  absl::optional<IdBytes> OptionalUuid(absl::string_view name);
  // A `bytea`; NULL gives no value.
  std::string Bytes(absl::string_view name);
  absl::optional<std::string> OptionalBytes(absl::string_view name);
  std::vector<std::string> TextArray(absl::string_view name);
  // A `bigint[]` without NULLs.
  std::vector<int64_t> IntArray(absl::string_view name);
  // A bigint of milliseconds since the epoch: select `postrider.millis(column)`.
  WallTime Time(absl::string_view name);
  absl::optional<WallTime> OptionalTime(absl::string_view name);

  const absl::Status& status() const { return status_; }

 private:
  // The value's text; no value for NULL or after a fault.
  absl::optional<absl::string_view> Value(absl::string_view name);
  absl::string_view Required(absl::string_view name);
  void Fail(absl::string_view name, absl::string_view what);

  const QueryResult& result_;
  size_t row_;
  absl::Status status_;
};

// The elements of a `text[]` in text form; no value if it is not one of one dimension without
// NULLs.
absl::optional<std::vector<std::string>> ParseTextArray(absl::string_view text);

// The five characters of SQLSTATE that a failed statement's Status carries; "" if it has none.
std::string SqlState(const absl::Status& status);
// The name of the violated constraint; "" if the Status carries none.
std::string ViolatedConstraint(const absl::Status& status);

}  // namespace postrider
