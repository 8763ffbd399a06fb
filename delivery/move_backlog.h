#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/state/durable_state_reader.h"
#include "core/stream/blocking_reader.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::delivery {

// One key group of a generation that nobody works on any more.
struct MovedKeyGroup {
  TopicPartition dispatch;
  TopicPartition endpoint_state;
  TopicPartition backlog;
  int64_t dispatch_end = 0;  // of what is left over; 0: nothing is
  absl::optional<CommittedPosition> committed;
  // Reads the durable state from somewhere else than these changelogs: by their place in
  // backlog_state.h.
  using Visitor = absl::FunctionRef<absl::Status(const DurableEntry&)>;
  std::function<absl::Status(size_t changelog, Visitor visit)> read_state;
};

struct MoveFigures {
  uint64_t states = 0;  // of endpoints
  uint64_t entries = 0;
  uint64_t batches = 0;
  uint64_t left_over = 0;
};

// Gets a record of the endpoint state to be, for the key group of this endpoint's key.
using AppendState = std::function<absl::Status(const std::string& endpoint, AppendRecord&& record)>;

// Passes what is left of a key group as records of its dispatch topic to be: entries of its backlog
// with their header (parked_header.h), the members of a batch that was tried one after the other,
// and records that nobody has completed as they are; in the order in which they stood. `append`
// gets them with key, value and headers. Results of requests that nobody has read are not passed:
// what they say to be delivered is left out, and what they say to have failed stands where it
// stood. What is known of endpoints (their health, what was told and what was learned of them) goes
// to `append_state`; empty: it is left behind.
//
// kDataLoss, kFailedPrecondition: the durable state cannot be read, or is of a newer version.
// Bounds: about 200 bytes of memory for an entry; contents pass through a file in
// `spool_directory`.
absl::Status MoveKeyGroup(Log& log, const Clock& clock, BlockingReader& reader,
                          const MovedKeyGroup& key_group, const std::string& spool_directory,
                          std::chrono::milliseconds timeout,
                          const std::function<absl::Status(AppendRecord&&)>& append,
                          const AppendState& append_state, MoveFigures* figures);

}  // namespace postrider::delivery
