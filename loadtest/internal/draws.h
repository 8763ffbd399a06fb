#pragma once

#include <cstdint>

#include "core/base/random.h"

namespace postrider::loadtest::internal {

// Of all events, how many name a department.
inline constexpr double kDepartmentShare = 0.9;

// The randomness of thing `number` of its kind: the same whatever else was drawn before it.
inline Random Draws(uint64_t seed, uint64_t kind, uint64_t number) {
  Random mix(seed ^ (kind * 0xd6e8feb86659fd93ULL));
  return Random(mix.Next() ^ (number * 0xa0761d6478bd642fULL));
}

}  // namespace postrider::loadtest::internal
