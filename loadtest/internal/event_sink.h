#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "loadtest/ledger.h"

namespace postrider::loadtest::internal {

// Where generated events go.
// Threads: owned by one.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Sets `record->acknowledged`, now or in a later Poll(); `record` stays where it is until then.
  // kResourceExhausted: full, and nothing was taken: try again after Poll(). Any other failure is
  // final.
  virtual absl::Status Put(const std::string& id, const std::string& payload,
                           ProducedRecord* record) = 0;
  // Waits at most that long for acknowledgements. A failure is final.
  virtual absl::Status Poll(int timeout_ms) = 0;
  // How many events may have been stored twice, because the answer to the first try was lost.
  virtual uint64_t sent_again() const { return 0; }
};

}  // namespace postrider::loadtest::internal
