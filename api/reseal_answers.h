#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/crypto/key_ring.h"
#include "core/postgres/blocking.h"

namespace postrider::api {

struct ResealAnswersReport {
  int64_t answers = 0;     // that are kept
  int64_t resealed = 0;    // of them; the others were sealed with that key already
  int64_t unreadable = 0;  // of them; no key of the ring opens them, and they stay
};

// Seals anew, with the key that seals now, the kept answers to requests with an Idempotency-Key
// that another one has sealed, while others go on writing. For the command line, as the role of the
// API.
absl::StatusOr<ResealAnswersReport> ResealAnswers(BlockingSession& session, const KeyRing& keys);

}  // namespace postrider::api
