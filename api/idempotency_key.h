#pragma once

#include "absl/types/optional.h"
#include "api/request.h"
#include "api/router.h"

namespace postrider::api {

// The header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header, RULES 6): whoever does not
// know whether a request was done sends it again with the same key, and it is done once. A key is
// one owner's (a customer, or one API key of an operator) and one route's: others never meet it.
//
//   the same request again, done      the first answer, with `Idempotency-Replayed: true`
//   the same while it is under way    409 with Retry-After
//   another request with that key     422
//   24 hours after it was done        as new
//
// Only what was done is kept (2xx). An answer that refuses has changed nothing: whoever asks again,
// with that key, is judged anew. Here the draft would keep errors, too; but a client that was told
// what was wrong, or 429 or 503, could then not put it right with its key for a day. Nor is a test
// message kept that no endpoint has answered.

// Whether it is looked at: GET changes nothing and goes without.
bool TakesIdempotencyKey(const Route& route);

// Reads it into `request->idempotency`; the principal must be known. A value: what the request is
// refused with (400: given twice, not 1 to 255 printable characters of ASCII, or of no effect
// here). The value is taken as it stands, with quotation marks if it has some. Threads: any.
absl::optional<Response> ReadIdempotencyKey(const Route& route, Request* request);

}  // namespace postrider::api
