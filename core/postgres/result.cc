#include "core/postgres/result.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/postgres/internal/pq.h"

namespace postrider {

void QueryResult::Freer::operator()(pg_result* result) const { PQclear(result); }

size_t QueryResult::rows() const {
  return handle_ ? static_cast<size_t>(PQntuples(handle_.get())) : 0;
}
size_t QueryResult::columns() const {
  return handle_ ? static_cast<size_t>(PQnfields(handle_.get())) : 0;
}
int64_t QueryResult::affected() const {
  int64_t count = 0;
  if (handle_ && !absl::SimpleAtoi(PQcmdTuples(handle_.get()), &count)) count = 0;
  return count;
}
absl::string_view QueryResult::command() const {
  return handle_ ? absl::string_view(PQcmdStatus(handle_.get())) : absl::string_view();
}
int QueryResult::column(absl::string_view name) const {
  // PQfnumber folds and unquotes the name; our names need neither.
  for (int i = 0; i < static_cast<int>(columns()); ++i) {
    if (name == PQfname(handle_.get(), i)) return i;
  }
  return -1;
}
bool QueryResult::is_null(size_t row, int column) const {
  return PQgetisnull(handle_.get(), static_cast<int>(row), column) != 0;
}
absl::string_view QueryResult::text(size_t row, int column) const {
  return absl::string_view(
      PQgetvalue(handle_.get(), static_cast<int>(row), column),
      static_cast<size_t>(PQgetlength(handle_.get(), static_cast<int>(row), column)));
}

void RowReader::Fail(absl::string_view name, absl::string_view what) {
  if (status_.ok()) {
    status_ = absl::DataLossError(absl::StrCat("postgres: column ", name, ": ", what));
  }
}

absl::optional<absl::string_view> RowReader::Value(absl::string_view name) {
  if (!status_.ok()) return absl::nullopt;
  const int column = result_.column(name);
  if (column < 0 || row_ >= result_.rows()) {
    Fail(name, "is not in the result");
    return absl::nullopt;
  }
  if (result_.is_null(row_, column)) return absl::nullopt;
  return result_.text(row_, column);
}

absl::string_view RowReader::Required(absl::string_view name) {
  const absl::optional<absl::string_view> value = Value(name);
  if (!value) Fail(name, "is NULL");
  return value.value_or(absl::string_view());
}

std::string RowReader::Text(absl::string_view name) { return std::string(Required(name)); }

absl::optional<std::string> RowReader::OptionalText(absl::string_view name) {
  const absl::optional<absl::string_view> value = Value(name);
  if (!value) return absl::nullopt;
  return std::string(*value);
}

namespace {
template <typename T>
bool ParseNumber(absl::string_view text, T* out) {
  return absl::SimpleAtoi(text, out);
}
absl::optional<IdBytes> ParseId(absl::string_view text) { return ParseUuid(text); }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool ParseBytea(absl::string_view text, std::string* out) {
  if (text.size() < 2 || text[0] != '\\' || text[1] != 'x' || text.size() % 2 != 0) return false;
  out->clear();
  out->reserve(text.size() / 2 - 1);
  for (size_t i = 2; i < text.size(); i += 2) {
    const int high = HexDigit(text[i]);
    const int low = HexDigit(text[i + 1]);
    if (high < 0 || low < 0) return false;
    out->push_back(static_cast<char>(high * 16 + low));
  }
  return true;
}
}  // namespace

int64_t RowReader::Int(absl::string_view name) {
  int64_t number = 0;
  if (!ParseNumber(Required(name), &number)) Fail(name, "is no integer");
  return status_.ok() ? number : 0;
}

absl::optional<int64_t> RowReader::OptionalInt(absl::string_view name) {
  const absl::optional<absl::string_view> value = Value(name);
  if (!value) return absl::nullopt;
  int64_t number = 0;
  if (!ParseNumber(*value, &number)) {
    Fail(name, "is no integer");
    return absl::nullopt;
  }
  return number;
}

uint64_t RowReader::Unsigned(absl::string_view name) {
  uint64_t number = 0;
  if (!ParseNumber(Required(name), &number)) Fail(name, "is no unsigned integer");
  return status_.ok() ? number : 0;
}

double RowReader::Double(absl::string_view name) {
  double number = 0;
  if (!absl::SimpleAtod(Required(name), &number)) Fail(name, "is no number");
  return status_.ok() ? number : 0;
}

absl::optional<double> RowReader::OptionalDouble(absl::string_view name) {
  const absl::optional<absl::string_view> value = Value(name);
  if (!value) return absl::nullopt;
  double number = 0;
  if (!absl::SimpleAtod(*value, &number)) {
    Fail(name, "is no number");
    return absl::nullopt;
  }
  return number;
}

bool RowReader::Bool(absl::string_view name) {
  const absl::string_view text = Required(name);
  if (text != "t" && text != "f") Fail(name, "is no boolean");
  return status_.ok() && text == "t";
}

IdBytes RowReader::Uuid(absl::string_view name) {
  const absl::optional<IdBytes> id = ParseId(Required(name));
  if (!id) Fail(name, "is no uuid");
  return status_.ok() ? *id : IdBytes{};
}

absl::optional<IdBytes> RowReader::OptionalUuid(absl::string_view name) {
  const absl::optional<absl::string_view> value = Value(name);
  if (!value) return absl::nullopt;
  const absl::optional<IdBytes> id = ParseId(*value);
  if (!id) Fail(name, "is no uuid");
  return id;
}

std::string RowReader::Bytes(absl::string_view name) {
  std::string bytes;
  if (!ParseBytea(Required(name), &bytes)) Fail(name, "is no bytea");
  return status_.ok() ? bytes : std::string();
}

absl::optional<std::string> RowReader::OptionalBytes(absl::string_view name) {
  const absl::optional<absl::string_view> value = Value(name);
  if (!value) return absl::nullopt;
  std::string bytes;
  if (!ParseBytea(*value, &bytes)) {
    Fail(name, "is no bytea");
    return absl::nullopt;
  }
  return bytes;
}

std::vector<std::string> RowReader::TextArray(absl::string_view name) {
  absl::optional<std::vector<std::string>> values = ParseTextArray(Required(name));
  if (!values) Fail(name, "is no text[] of one dimension");
  return status_.ok() ? *std::move(values) : std::vector<std::string>();
}

std::vector<int64_t> RowReader::IntArray(absl::string_view name) {
  const absl::optional<std::vector<std::string>> texts = ParseTextArray(Required(name));
  std::vector<int64_t> values;
  bool good = texts.has_value();
  for (size_t i = 0; good && i < texts->size(); ++i) {
    good = ParseNumber((*texts)[i], &values.emplace_back());
  }
  if (!good) Fail(name, "is no bigint[] of one dimension");
  return status_.ok() ? values : std::vector<int64_t>();
}

WallTime RowReader::Time(absl::string_view name) { return WallTimeFromMillis(Int(name)); }

absl::optional<WallTime> RowReader::OptionalTime(absl::string_view name) {
  const absl::optional<int64_t> millis = OptionalInt(name);
  if (!millis) return absl::nullopt;
  return WallTimeFromMillis(*millis);
}

absl::optional<std::vector<std::string>> ParseTextArray(absl::string_view text) {
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') return absl::nullopt;
  text = text.substr(1, text.size() - 2);
  std::vector<std::string> values;
  if (text.empty()) return values;
  size_t at = 0;
  while (true) {
    std::string value;
    if (at < text.size() && text[at] == '"') {
      ++at;
      bool closed = false;
      while (at < text.size()) {
        char c = text[at++];
        if (c == '"') {
          closed = true;
          break;
        }
        if (c == '\\') {
          if (at == text.size()) return absl::nullopt;
          c = text[at++];
        }
        value.push_back(c);
      }
      if (!closed) return absl::nullopt;
    } else {
      const size_t end = text.find(',', at);
      const absl::string_view bare =
          text.substr(at, end == absl::string_view::npos ? end : end - at);
      if (bare.empty() || bare == "NULL") return absl::nullopt;
      for (const char c : bare) {
        if (c == '{' || c == '}' || c == '"' || c == '\\') return absl::nullopt;
      }
      value = std::string(bare);
      at += bare.size();
    }
    values.push_back(std::move(value));
    if (at == text.size()) return values;
    if (text[at] != ',') return absl::nullopt;
    ++at;
  }
}

}  // namespace postrider
