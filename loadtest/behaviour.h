#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider::loadtest {

// How the receiver answers a request.
struct Behaviour {
  enum class Kind : uint8_t { kAnswer, kHang, kReset };
  Kind kind = Kind::kAnswer;
  int status = 200;
  int retry_after_s = -1;              // below 0: no such header
  std::chrono::milliseconds delay{0};  // before the answer
  int failing_percent = 0;             // of requests are answered 500 instead
};

// "200" or another status, "429 5" (Retry-After: 5), "hang", "slow 250" (ms), "reset", "flaky 10"
// (percent answered 500).
absl::optional<Behaviour> ParseBehaviour(absl::string_view word, absl::string_view argument);

// Which behaviour a path gets. The rules come first, the longest prefix that ends at a '/' or with
// the path; else "/answer/<behaviour>[/<argument>]/..."; else 200.
class Behaviours {
 public:
  // Lines "<path prefix> <behaviour> [argument]"; empty ones and those after '#' are skipped.
  static absl::StatusOr<Behaviours> Parse(absl::string_view rules);
  Behaviour For(absl::string_view path) const;

 private:
  std::vector<std::pair<std::string, Behaviour>> rules_;  // longest prefix first
};

// The index behind the last "/e/" of a path.
absl::optional<uint32_t> EndpointOfPath(absl::string_view path);

}  // namespace postrider::loadtest
