#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
  int requests_per_second = 0;         // above it 429; see RequestRates. 0: no bound
};

// "200" or another status, "429 5" (Retry-After: 5), "hang", "slow 250" (ms), "reset", "flaky 10"
// (percent answered 500), "limit 20" (requests a second, 429 above).
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

// What a receiver of bounded strength answers: 429 above so many requests in a second, and when in
// one second there are three times as many, it breaks down: 503 for ten seconds.
// Bounds: one entry for each path that has a bound.
class RequestRates {
 public:
  static constexpr int64_t kBrokenMs = 10'000;

  // The status for a request at this time, which never runs backwards.
  int Answer(const std::string& path, int requests_per_second, int64_t now_ms);
  // How often one of them broke down.
  uint64_t breakdowns() const { return breakdowns_; }

 private:
  struct Rate {
    int64_t second = -1;
    int requests = 0;
    int64_t broken_until_ms = 0;
  };
  absl::flat_hash_map<std::string, Rate> rates_;
  uint64_t breakdowns_ = 0;
};

// The index behind the last "/e/" of a path.
absl::optional<uint32_t> EndpointOfPath(absl::string_view path);

}  // namespace postrider::loadtest
