#include "api/idempotency_key.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "api/problem.h"
#include "subscriptions/registry/api_key.h"
#include "subscriptions/registry/ids.h"

namespace postrider::api {
namespace {

using subscriptions::CustomerId;

constexpr absl::string_view kHeader = "idempotency-key";
constexpr size_t kKeyBytesMax = 255;

bool IsKey(absl::string_view text) {
  if (text.empty() || text.size() > kKeyBytesMax) return false;
  for (const char c : text) {
    if (c < ' ' || c > '~') return false;
  }
  return true;
}

// Lengths keep the parts apart.
Sha256Digest RequestHash(const Request& request) {
  Sha256Hasher hasher;
  const auto add = [&hasher](absl::string_view part) {
    hasher.Add(absl::StrCat(part.size(), ":"));
    hasher.Add(part);
  };
  add(request.path);
  for (const auto& [name, value] : request.query) {
    add(name);
    add(value);
  }
  add("");  // no parameter's name
  const std::string* if_match = request.Header("if-match");
  add(if_match == nullptr ? "" : *if_match);
  add(request.body);
  return hasher.Finish();
}

// The path's {customer}.
absl::optional<CustomerId> CustomerOf(const Route& route, const Request& request) {
  size_t param = 0;
  for (const absl::string_view segment : absl::StrSplit(route.path, '/')) {
    if (segment.empty() || segment.front() != '{') continue;
    if (segment == "{customer}" && param < request.params.size()) {
      return CustomerId::Parse(request.params[param]);
    }
    ++param;
  }
  return absl::nullopt;
}

}  // namespace

bool TakesIdempotencyKey(const Route& route) {
  return route.method != HttpMethod::kGet && route.scope != RequiredScope::kNone &&
         route.takes_idempotency_key;
}

absl::optional<Response> ReadIdempotencyKey(const Route& route, Request* request) {
  if (route.method == HttpMethod::kGet) return absl::nullopt;
  const std::string* value = nullptr;
  for (const auto& [name, given] : request->headers) {
    if (name != kHeader) continue;
    if (value != nullptr) return Problem(400, "There may be one Idempotency-Key.");
    value = &given;
  }
  if (value == nullptr) return absl::nullopt;
  if (!TakesIdempotencyKey(route)) {
    return Problem(400, "An Idempotency-Key has no effect here; leave it out. See /openapi.json.");
  }
  if (!IsKey(*value)) {
    return Problem(400, absl::StrCat("An Idempotency-Key is 1 to ", kKeyBytesMax,
                                     " printable characters of ASCII."));
  }
  IdempotencyKey& key = request->idempotency.emplace();
  key.route = route.operation_id;
  key.key = Sha256(*value);
  key.request = RequestHash(*request);
  if (request->principal.scope == subscriptions::KeyScope::kCustomer) {
    key.owner = request->principal.customer.ToUuid();
    key.customer = request->principal.customer;
  } else {
    key.owner = request->principal.key_id;
    key.customer = CustomerOf(route, *request);
  }
  return absl::nullopt;
}

}  // namespace postrider::api
