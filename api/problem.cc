#include "api/problem.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "core/postgres/result.h"

namespace postrider::api {
namespace {

constexpr std::chrono::seconds kRetryAfter{1};
// A body of a megabyte can have a hundred thousand faults; nobody reads more than some.
constexpr size_t kFaultsShownMax = 100;

Response Make(int status, absl::string_view detail, const JsonValue& members) {
  JsonValue document = JsonValue::MakeObject({{"type", "about:blank"},
                                              {"title", StatusTitle(status)},
                                              {"status", status},
                                              {"detail", detail}});
  if (members.is_object()) {
    for (const JsonMember& member : *members.object()) document.Set(member.name, member.value);
  }
  Response response;
  response.status = status;
  response.content_type = "application/problem+json";
  response.body = document.Serialize();
  return response;
}

Response WithErrors(const subscriptions::FieldFaults& faults, absl::string_view detail,
                    absl::string_view key) {
  JsonValue errors = JsonValue::MakeArray();
  for (const subscriptions::FieldFault& fault : faults) {
    if (errors.array()->size() == kFaultsShownMax) break;
    errors.Append(JsonValue::MakeObject({{key, fault.pointer}, {"detail", fault.detail}}));
  }
  return Make(422, detail, JsonValue::MakeObject({{"errors", std::move(errors)}}));
}

}  // namespace

absl::string_view StatusTitle(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

Response Problem(int status, absl::string_view detail) { return Make(status, detail, JsonValue()); }

Response ProblemRetry(int status, absl::string_view detail, std::chrono::seconds after) {
  Response response = Make(status, detail, JsonValue());
  response.headers.emplace_back("retry-after", absl::StrCat(after.count()));
  return response;
}

Response ProblemWith(int status, absl::string_view detail, const JsonValue& members) {
  return Make(status, detail, members);
}

void TellLines(const LineStream& lines, int64_t settled, JsonValue* members) {
  members->Set("accepted", lines.accepted);
  members->Set("refused", lines.refused);
  members->Set("lines_settled", settled);
  if (lines.refused > 0) members->Set("errors", lines.errors);
}

void TellLinesIn(const LineStream& lines, int64_t settled, Response* response) {
  absl::StatusOr<JsonValue> told = JsonValue::Parse(response->body);
  if (!told.ok() || !told->is_object() || told->Find("lines_settled") != nullptr) return;
  TellLines(lines, settled, &*told);
  response->body = told->Serialize();
}

Response ProblemNotFound() { return Problem(404, "There is nothing here for this key."); }

Response ProblemFromFaults(const subscriptions::FieldFaults& faults) {
  return WithErrors(faults, "The body breaks the rules that are listed in `errors`.", "pointer");
}

Response ProblemFromParameters(const subscriptions::FieldFaults& faults) {
  return WithErrors(faults, "The query breaks the rules that are listed in `errors`.", "parameter");
}

Response ProblemFromStatus(const absl::Status& status) {
  // What the database says is for us, not for customers.
  const bool from_database = !SqlState(status).empty();
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return Problem(400, from_database ? "A value cannot be stored." : status.message());
    case absl::StatusCode::kUnauthenticated: {
      Response response = Problem(401, status.message());
      response.headers.emplace_back("www-authenticate", "Bearer");
      return response;
    }
    case absl::StatusCode::kPermissionDenied:
      if (from_database) break;
      return Problem(403, status.message());
    case absl::StatusCode::kNotFound:
      return ProblemNotFound();
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return Problem(409, "This conflicts with what is there.");
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      POSTRIDER_LOG(kWarn, "api answers 503", {"reason", std::string(status.message())});
      return ProblemRetry(503, "Something that this needs does not answer now; try again.",
                          kRetryAfter);
    default:
      break;
  }
  POSTRIDER_LOG(kError, "api answers 500", {"reason", std::string(status.message())});
  return Problem(500, "A fault of ours; it was logged.");
}

}  // namespace postrider::api
