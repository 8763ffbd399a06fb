#include "core/postgres/internal/pq.h"

#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace postrider::internal {
namespace {

constexpr absl::string_view kSqlStatePayload = "postrider/sqlstate";
constexpr absl::string_view kConstraintPayload = "postrider/constraint";

absl::string_view Field(const PGresult* result, int field) {
  const char* text = PQresultErrorField(result, field);
  return text == nullptr ? absl::string_view() : absl::string_view(text);
}

absl::StatusCode CodeOf(absl::string_view state) {
  if (state == "40001" || state == "40P01") return absl::StatusCode::kAborted;
  if (state == "25P02") return absl::StatusCode::kAborted;
  if (state == "57014" || state == "55P03") return absl::StatusCode::kDeadlineExceeded;
  if (state == "25006") return absl::StatusCode::kUnavailable;
  if (state == "23505") return absl::StatusCode::kAlreadyExists;
  if (state == "23514" || state == "23502") return absl::StatusCode::kInvalidArgument;
  if (state == "42501") return absl::StatusCode::kPermissionDenied;
  if (state == "P0001") return absl::StatusCode::kFailedPrecondition;
  const absl::string_view group = state.substr(0, 2);
  if (group == "08" || group == "53" || group == "58") return absl::StatusCode::kUnavailable;
  if (absl::StartsWith(state, "57P")) return absl::StatusCode::kUnavailable;
  if (group == "28" || group == "3D") return absl::StatusCode::kUnavailable;
  if (group == "23") return absl::StatusCode::kFailedPrecondition;
  if (group == "22") return absl::StatusCode::kInvalidArgument;
  return absl::StatusCode::kInternal;
}

// The server's text may repeat a parameter's value in classes 22 and 23; elsewhere it speaks of
// names and states.
bool MayRepeatValues(absl::string_view state) {
  const absl::string_view group = state.substr(0, 2);
  return group == "22" || group == "23" || group == "44";
}

std::string OneLine(absl::string_view text) {
  return absl::StrReplaceAll(absl::StripAsciiWhitespace(text), {{"\n", "; "}, {"\t", " "}});
}

}  // namespace

absl::Status StatusOf(const PGresult* result) {
  switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
    case PGRES_EMPTY_QUERY:
    case PGRES_COPY_IN:
      return absl::OkStatus();
    case PGRES_COPY_OUT:
    case PGRES_COPY_BOTH:
      return absl::UnimplementedError("postgres: COPY TO is not served here");
    default:
      break;
  }
  const absl::string_view state = Field(result, PG_DIAG_SQLSTATE);
  if (state.empty()) {
    // libpq's own: the connection broke.
    return absl::UnavailableError("postgres: the connection broke; the outcome is unknown");
  }
  const absl::string_view constraint = Field(result, PG_DIAG_CONSTRAINT_NAME);
  std::string text = absl::StrCat("postgres: ", state);
  if (!constraint.empty()) absl::StrAppend(&text, ": constraint ", constraint);
  const absl::string_view column = Field(result, PG_DIAG_COLUMN_NAME);
  if (!column.empty()) absl::StrAppend(&text, ": column ", column);
  if (!MayRepeatValues(state)) {
    absl::StrAppend(&text, ": ", OneLine(Field(result, PG_DIAG_MESSAGE_PRIMARY)));
  }
  absl::Status status(CodeOf(state), text);
  status.SetPayload(kSqlStatePayload, absl::Cord(state));
  if (!constraint.empty()) status.SetPayload(kConstraintPayload, absl::Cord(constraint));
  return status;
}

absl::Status BrokenStatus(const PGconn* connection) {
  return absl::UnavailableError(
      absl::StrCat("postgres: the connection broke: ", OneLine(PQerrorMessage(connection))));
}

absl::Status CannotConnectStatus(const PGconn* connection) {
  return absl::UnavailableError(
      absl::StrCat("postgres: cannot connect: ", OneLine(PQerrorMessage(connection))));
}

absl::StatusOr<PqParams> PqParams::Of(const Statement& statement) {
  PqParams params;
  params.values_.reserve(statement.params.size());
  for (size_t i = 0; i < statement.params.size(); ++i) {
    const SqlParam& param = statement.params[i];
    const absl::optional<std::string>& value = param.value();
    if (value && !param.binary() && value->find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("postgres: parameter ", i + 1, " has a NUL in its text"));
    }
    params.values_.push_back(value ? value->data() : nullptr);
    params.lengths_.push_back(value ? static_cast<int>(value->size()) : 0);
    params.formats_.push_back(param.binary() ? 1 : 0);
  }
  return params;
}

PqKeywords::PqKeywords(const std::string& url) { Set("dbname", url); }

void PqKeywords::Set(const char* name, std::string value) {
  names_.push_back(name);
  texts_.push_back(std::move(value));
}

const char* const* PqKeywords::names() {
  if (names_.empty() || names_.back() != nullptr) names_.push_back(nullptr);
  return names_.data();
}

const char* const* PqKeywords::values() {
  value_pointers_.clear();
  for (const std::string& text : texts_) value_pointers_.push_back(text.c_str());
  value_pointers_.push_back(nullptr);
  return value_pointers_.data();
}

}  // namespace postrider::internal

namespace postrider {
namespace {
std::string PayloadText(const absl::Status& status, absl::string_view type) {
  const absl::optional<absl::Cord> payload = status.GetPayload(type);
  return payload ? std::string(*payload) : std::string();
}
}  // namespace

std::string SqlState(const absl::Status& status) {
  return PayloadText(status, internal::kSqlStatePayload);
}
std::string ViolatedConstraint(const absl::Status& status) {
  return PayloadText(status, internal::kConstraintPayload);
}

}  // namespace postrider
