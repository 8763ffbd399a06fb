#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "loadtest/internal/rest_call.h"

namespace postrider::loadtest::internal {

// Many calls to one REST server over a few kept connections.
// Threads: owned by one; RunAll blocks it.
class RestClient {
 public:
  // `url`: scheme, host and port.
  RestClient(std::string url, int parallel) : url_(std::move(url)), parallel_(parallel) {}

  // Makes `count` calls, at most `parallel` at once, in no promised order. `make(i)` gives the
  // request, `take(i, status, body)` sees the answer and may refuse it. 429, 503 and a refused
  // connection are tried again for up to a minute. Ends at the first failure.
  absl::Status RunAll(size_t count, const std::function<RestRequest(size_t)>& make,
                      const std::function<absl::Status(size_t, int, absl::string_view)>& take);

 private:
  std::string url_;
  int parallel_;
};

}  // namespace postrider::loadtest::internal
