#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/crypto/key_ring.h"
#include "core/postgres/blocking.h"

namespace postrider::subscriptions {

struct ResealReport {
  int64_t endpoints = 0;  // that there are
  int64_t resealed = 0;   // of them; the others were sealed with that key already
  // Endpoints that no key of the ring opens, with the reason: the first ten, and how many there
  // are.
  std::vector<std::string> unreadable_first;
  int64_t unreadable = 0;
};

// Seals anew, with the key that seals now, what is sealed with another one: the secrets of each
// endpoint that is not deleted, row by row, while others go on writing. Changes nothing else of a
// row, and not its generation: to its customer, and to its breaker, it is the endpoint that it was.
// For the command line, as the role of the API.
absl::StatusOr<ResealReport> ResealEndpoints(BlockingSession& session, const KeyRing& keys);

}  // namespace postrider::subscriptions
