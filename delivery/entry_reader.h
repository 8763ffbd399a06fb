#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/stream/keyed_state.h"
#include "delivery/backlog.h"
#include "delivery/backlog_room.h"
#include "delivery/batch.h"
#include "delivery/endpoint_state.h"

namespace postrider::delivery {

// Makes messages of what one scan of an endpoint's backlog shows, entry by entry, and moves the
// endpoint's `drain_from` past what it is done with. What is in memory, or belongs to a batch that
// waits without its members, is stepped over; what nobody of us has written is collected.
//
// Threads: the shard's. Bounds: so many entries are stepped over and collected; then the scan is to
// end (goes_on()).
class EntryReader {
 public:
  // `left_out`: the members of batches that wait without them. `room`: for what is taken; what is
  // missing is taken in excess. All that is referred to outlives it.
  EntryReader(EndpointState& state, const absl::flat_hash_set<IdBytes>& left_out,
              BacklogRoom& rooms, BacklogRoom::Hold room, MonotonicTime now)
      : state_(state), left_out_(left_out), rooms_(rooms), room_(std::move(room)), now_(now) {}

  // The entry's message, which is to be taken, stepped over or left for later. None: there is none
  // to be had, and goes_on() says whether there may be others.
  absl::optional<Message> Read(uint64_t order, const IdBytes& digest, absl::string_view encoded,
                               const ListState::Place& place);
  bool goes_on() const { return goes_on_; }
  // There is room for it without an excess; the first one always has it.
  bool HasRoom(const Message& message) const {
    return taken_ == 0 || RoomOf(message) <= room_.bytes();
  }
  // It is in memory from now on.
  void Take(Message& message);
  void StepOver(uint64_t order);

  size_t taken() const { return taken_; }
  size_t stepped_over() const { return stepped_over_; }
  // Of an entry that only a newer program can read.
  const absl::Status& fault() const { return fault_; }
  std::vector<Backlog::Damaged>& damaged() { return damaged_; }

 private:
  EndpointState& state_;
  const absl::flat_hash_set<IdBytes>& left_out_;
  BacklogRoom& rooms_;
  BacklogRoom::Hold room_;
  const MonotonicTime now_;
  size_t taken_ = 0;
  size_t stepped_over_ = 0;
  bool goes_on_ = true;
  absl::Status fault_;
  std::vector<Backlog::Damaged> damaged_;
};

}  // namespace postrider::delivery
