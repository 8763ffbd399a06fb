#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "loadtest/plan.h"

namespace postrider::loadtest {

// The events of a seed. Event n is a function of (plan options, seed, n) alone.
// Threads: any, it never changes. It borrows the plan.
class EventSource {
 public:
  // size_min .. size_max: bytes of a whole payload, at least 300.
  EventSource(const Plan& plan, uint64_t seed, uint32_t size_min, uint32_t size_max);

  EventFields At(uint64_t number) const;
  // The JSON object of event `number`, sent at `sent_us` (microseconds since the epoch). It ends
  // with a checksum of itself, so that a receiver can tell that no byte was changed.
  void Payload(uint64_t number, int64_t sent_us, std::string* out) const;
  // "ev-<run>-<number>": the run is 8 hex digits of the seed's hash.
  std::string Id(uint64_t number) const;
  uint32_t run() const { return run_; }

 private:
  const Plan* plan_;
  uint64_t seed_;
  uint32_t run_;
  uint32_t size_min_;
  uint32_t size_max_;
  std::string text_;
};

// The run and number of an id made by EventSource; false for any other id.
bool ParseEventId(absl::string_view id, uint32_t* run, uint64_t* number);

// What a payload says of its event; views into it. An empty department: none.
struct PayloadFields {
  uint64_t number = 0;
  int64_t sent_us = 0;
  absl::string_view type;
  absl::string_view tenant;
  absl::string_view department;
};
// False: not made by EventSource, or no longer the bytes that it made.
bool ParsePayload(absl::string_view payload, PayloadFields* fields);

}  // namespace postrider::loadtest
