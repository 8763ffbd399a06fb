#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/stream/keyed_state.h"
#include "core/stream/operation.h"
#include "core/stream/state_backend.h"

namespace postrider::internal {

// The record by which an owner names to its successor what is still in flight: a value of the
// changelog that is restored first, under a state id of the core's own.
//
// Threads: the shard's.
class InFlightRecord {
 public:
  // Made before anything is restored; `backend` and `clock` outlive it.
  InFlightRecord(StateBackend& backend, const Clock& clock);

  // What the last owner that had something in flight has left, however long ago: the results may
  // stand in the log, unread. kFailedPrecondition: a newer version wrote it.
  absl::StatusOr<std::vector<Operation>> Inherited() const;
  // Names `operations`, and none of former times. False: no room, what stood there stays.
  [[nodiscard]] bool Write(const std::vector<Operation>& operations);

 private:
  ValueState<std::string> state_;
};

}  // namespace postrider::internal
