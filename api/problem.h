#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "api/request.h"
#include "core/json/json.h"
#include "subscriptions/registry/field_fault.h"

namespace postrider::api {

// Errors as application/problem+json (RFC 9457):
//   {"type":"about:blank","title":"Not Found","status":404,"detail":"...","errors":[...]}
// where "errors" (only of 422) has {"pointer":"/url","detail":"..."} for a field of the body and
// {"parameter":"limit","detail":"..."} for one of the query. Threads: any.

// The one place where a Status becomes an answer. Its message is told only with 400, 401 and 403,
// and only when it does not come from the database; of 5xx the log gets it.
//   kInvalidArgument 400   kUnauthenticated 401   kPermissionDenied 403   kNotFound 404
//   kAlreadyExists, kFailedPrecondition, kOutOfRange 409
//   kUnavailable, kDeadlineExceeded, kResourceExhausted, kAborted, kCancelled 503 with Retry-After
//   the rest 500
Response ProblemFromStatus(const absl::Status& status);

// 422 with every fault of the body.
Response ProblemFromFaults(const subscriptions::FieldFaults& faults);
// 422 with the faults of query parameters: FieldFault::pointer is the parameter's name.
Response ProblemFromParameters(const subscriptions::FieldFaults& faults);

// Any other: 405, 412, 413, 415, 429 and so on.
Response Problem(int status, absl::string_view detail);
// With Retry-After in seconds.
Response ProblemRetry(int status, absl::string_view detail, std::chrono::seconds after);

// With further members of the document (RFC 9457, 3.2).
Response ProblemWith(int status, absl::string_view detail, const JsonValue& members);

// Of an answer to a body of lines: puts into `members` how far it has come. Lines up to `settled`
// are stored, or refused in `errors`.
void TellLines(const LineStream& lines, int64_t settled, JsonValue* members);
// The same for an answer that nobody who knows of lines has made, such as a refused key's; one that
// tells it already, or is no document, is left as it is.
void TellLinesIn(const LineStream& lines, int64_t settled, Response* response);

// Foreign ids, deleted ones and ones that never were: the same answer, to the byte.
Response ProblemNotFound();

// "Not Found" for 404; "Error" for a number without a name here.
absl::string_view StatusTitle(int status);

}  // namespace postrider::api
