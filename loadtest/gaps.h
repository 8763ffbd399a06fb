#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loadtest/ledger.h"
#include "loadtest/state.h"

namespace postrider::loadtest {

// The longest silence of each key group within a time: how long a hand-over kept it waiting.
struct Gaps {
  // By key group, in ms; below 0: fewer than two messages. The ends of the time do not count.
  std::vector<double> longest_ms;
  double median_ms = 0;  // of those that heard anything
  double max_ms = 0;
  uint32_t heard = 0;

  std::string ToJson() const;
};

// The key group of an endpoint is xxHash64 (seed 0) of its id's 16 bytes, modulo their number;
// endpoints without a readable id are left out.
Gaps FindGaps(const State& state, const std::vector<ReceivedRecord>& received, uint32_t key_groups,
              int64_t from_us, int64_t to_us);

}  // namespace postrider::loadtest
