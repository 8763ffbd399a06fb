#pragma once

#include <cstdint>
#include <string>

#include "absl/types/optional.h"

namespace postrider::simulation {

// What came of one seed.
struct Outcome {
  absl::optional<std::string> fault;
  int64_t records = 0;
  int64_t repeats = 0;
  int64_t letters = 0;
};

// Anything may happen: crashes, stops, joins, stalls, an unreachable log, refused and unknown
// commits, failed, unknown and late appends, compaction, full and broken stores, jumps of the wall
// clock, receivers that refuse, are late or never answer.
Outcome RunStormy(uint64_t seed);
// Processes join and stop in order and receivers answer in time: nothing is sent twice.
Outcome RunCalm(uint64_t seed);

}  // namespace postrider::simulation
