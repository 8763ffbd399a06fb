#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/crypto/digest.h"
#include "core/json/json.h"
#include "subscriptions/registry/api_key.h"
#include "subscriptions/registry/ids.h"

namespace postrider::api {

enum class HttpMethod { kGet, kHead, kPost, kPut, kPatch, kDelete };

absl::string_view HttpMethodName(HttpMethod method);
absl::optional<HttpMethod> ParseHttpMethod(absl::string_view name);

// Who asks: what the request's key says.
struct Principal {
  std::string key_id;  // empty: nobody
  subscriptions::KeyScope scope = subscriptions::KeyScope::kCustomer;
  subscriptions::CustomerId customer;    // of scope customer
  std::vector<std::string> event_types;  // patterns; of scope publisher
  std::vector<std::string> tenants;      // or "*"; of scope publisher
};

// A body of lines (application/x-ndjson) that is handled in parts while it comes in, each of which
// is a Request of its own: how far it has come.
struct LineStream {
  enum class End {
    kNotYet,  // more may follow: an answer with the status kLinesGoOn has the next part read
    kWhole,   // this part is the last one; it may be empty
    kCut,     // nothing more is read, because of `cut`; the part is empty
  };
  int64_t first_line = 1;  // the number of this part's first line in the whole
  End end = End::kNotYet;
  struct {
    int status = 0;
    std::string detail;
  } cut;

  // The handler's: what it leaves here with kLinesGoOn, the next part's begins with.
  int64_t accepted = 0;
  int64_t refused = 0;
  JsonValue errors = JsonValue::MakeArray();
};
inline constexpr int kLinesGoOn = 100;

// An Idempotency-Key that a request is to be answered by: see idempotency_key.h.
struct IdempotencyKey {
  // Whose it is: a customer's id (as a uuid), or the id of an operator's API key.
  std::string owner;
  std::string route;  // operation_id
  Sha256Digest key;
  // Of all that makes it the same request.
  Sha256Digest request;
  // Whom the answer tells of, as far as the request says it.
  absl::optional<subscriptions::CustomerId> customer;
};

// One request, read whole. Names of headers are lower case; the path's parameters and the query are
// percent-decoded.
struct Request {
  HttpMethod method = HttpMethod::kGet;
  std::string path;                 // as it was sent, without the query
  std::vector<std::string> params;  // the values of the route's {names}, in their order
  std::vector<std::pair<std::string, std::string>> query;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::shared_ptr<LineStream> lines;  // set: `body` is whole lines of a longer one
  std::string remote_address;         // the peer's, without its port
  Principal principal;
  absl::optional<IdempotencyKey> idempotency;

  // The first header or query parameter of that name; null when there is none.
  const std::string* Header(absl::string_view name) const;
  const std::string* Query(absl::string_view name) const;
};

struct Response {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // Of the body; left out when there is none.
  std::string content_type = "application/json";
};

// Answers a request: called once, from any thread. When it is destroyed without, the client gets
// 503.
using Respond = absl::AnyInvocable<void(Response) &&>;

}  // namespace postrider::api
