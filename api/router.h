#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "api/request.h"

namespace postrider::api {

// Which keys a route takes.
enum class RequiredScope { kNone, kOperator, kCustomer, kPublisher };

inline constexpr size_t kBodyBytesMax = 1 << 20;
// Of a body of lines, and of each of them.
inline constexpr size_t kLinesBytesMax = 64 << 20;
inline constexpr size_t kLineBytesMax = 1 << 20;
// A part of it has at most so many.
inline constexpr size_t kLinesOfPartMax = 1'000;

struct QueryParameter {
  std::string name;
  std::string description;
};

using Handler = std::function<void(Request, Respond)>;

// One operation: what the server needs to serve it and what the document says about it.
struct Route {
  HttpMethod method = HttpMethod::kGet;
  std::string path{};  // "/v1/endpoints/{id}"; a {name} stands for one whole segment
  RequiredScope scope = RequiredScope::kNone;
  Handler handler{};
  std::string operation_id{};
  std::string summary{};
  size_t body_bytes_max = 0;  // 0: it takes no body
  // Besides, a body of application/x-ndjson up to kLinesBytesMax: see LineStream.
  bool takes_lines = false;
  // Of one that changes something: whether a repeat with the same Idempotency-Key gets the first
  // answer again; else such a key is refused.
  bool takes_idempotency_key = true;
  // Names of schemas in api/openapi.h; empty for no body, or for one that is not JSON.
  std::string request_schema{};
  std::string response_schema{};
  int success_status = 200;
  std::vector<QueryParameter> query{};
};

// A request line's target, taken apart. No value: it is not "/...", has a broken percent escape, or
// an escaped NUL in a segment. An escaped slash is part of its segment.
struct Target {
  std::string path;
  std::vector<std::string> segments;
  std::vector<std::pair<std::string, std::string>> query;
};
absl::optional<Target> ParseTarget(absl::string_view target);

// The table of routes. Threads: any, once it is filled.
class Router {
 public:
  // CHECKs that the path is well-formed and that no other route answers the same requests.
  void Add(Route route);
  absl::Span<const Route> routes() const { return routes_; }

  struct Match {
    const Route* route = nullptr;
    std::vector<std::string> params;
    // The methods that the path has ("GET, HEAD, POST"); empty when no route has the path.
    std::string allow;
  };
  // Fixed segments go before {names}. HEAD finds the route of GET. `method`: none for one that we
  // do not know, which no route has.
  Match Find(absl::optional<HttpMethod> method, const std::vector<std::string>& segments) const;

 private:
  std::vector<Route> routes_;
  std::vector<std::vector<std::string>> segments_;  // of routes_, in their order
};

}  // namespace postrider::api
