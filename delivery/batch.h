#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/stream/keyed_state.h"
#include "delivery/backlog_room.h"
#include "delivery/bisection.h"
#include "delivery/message.h"
#include "delivery/outcome.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {

// What is sent of a message, and what tells of it: only while it may be sent soon.
struct MessageContent {
  std::string encoded;  // the dispatch record's own bytes, as the log and the backlog have them
  subscriptions::DispatchRecordView record;  // of `encoded`
  std::string message_id;
  BacklogRoom::Hold room;  // of one that was read back

  MessageContent() = default;
  MessageContent(const MessageContent&) = delete;
  MessageContent& operator=(const MessageContent&) = delete;

  absl::string_view data() const { return record.data; }
  // Its texts belong to this.
  MessageView View() const;
};
// Errors as of DecodeDispatchRecord(); DataLoss also for data that are not exactly one JSON value
// in UTF-8: in a body such could end the value that they stand in, and forge another message beside
// it. The matcher proves them too; this holds whoever wrote the record.
absl::StatusOr<std::unique_ptr<MessageContent>> MakeMessageContent(absl::string_view encoded);

// One message in an endpoint's memory. Its record is pending in the log, or it is an entry of the
// backlog, or (a record that a predecessor may have parked) both.
struct Message {
  uint64_t order = 0;       // its offset in the dispatch log; its place in the backlog
  IdBytes digest{};         // of its identity
  uint32_t bytes = 0;       // of its record
  uint32_t body_bytes = 0;  // of its part of a body, at most
  WallTime event_time;
  WallTime dispatch_time;
  MonotonicTime arrived;
  uint64_t order_key = 0;                   // see EndpointOrder; 0: not known, or no order
  bool pending = false;                     // its end completes the record
  bool listed = false;                      // its end removes the entry
  absl::optional<ListState::Place> place;   // of one that was read back
  std::unique_ptr<MessageContent> content;  // null: is read back from the backlog when it is needed
};
// `content` becomes the message's, which will be sent in this format.
Message MakeMessage(std::unique_ptr<MessageContent> content, uint64_t order, const IdBytes& digest,
                    subscriptions::BodyFormat format);

inline absl::string_view DigestBytes(const IdBytes& digest) {
  return absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size());
}

// Messages that go out in one request.
struct Batch {
  std::vector<Message> messages;  // in the order of their offsets
  size_t bytes = 0;               // of its body, at most
  // From the first try on: names it for good (BatchKey()).
  absl::optional<IdBytes> key;
  int attempts = 0;  // charged ones
  int tries = 0;     // all of them
  MonotonicTime first_try;
  Outcome last;
  bool probe = false;     // of the endpoint's breaker; while it is in flight
  bool recorded = false;  // the backlog knows its composition and its attempts
  // Of a piece, as long as that goes on; `first_half`: one of the first two.
  std::shared_ptr<Bisection> bisection;
  bool first_half = false;
  // Of one that waits without its members, for want of memory: they stand in its record.
  size_t members_left_out = 0;
  size_t room_left_out = 0;  // what reading them back will take
  // With order, while it is in flight or waits: the keys of its messages, ascending, each once
  // (none: not known), and the first one's place. See EndpointOrder::SetKeys().
  std::vector<uint64_t> order_keys;
  uint64_t first_order = 0;

  void Add(Message message) {
    bytes += message.body_bytes;
    messages.push_back(std::move(message));
  }
  // The bounds of its messages anew, for another format.
  void Remeasure(subscriptions::BodyFormat format);
  size_t size() const { return messages.size() + members_left_out; }
};
// A new batch without messages, with the history of `of`.
Batch PieceOf(const Batch& of);
// What one message that is read back takes: its record, and its place in the batch and the sets.
// Later, what its part of the request takes.
inline constexpr size_t kMessageOverheadBytes = 512;
inline size_t RoomOf(const Message& message) { return message.bytes + kMessageOverheadBytes; }
// What is parked is read back when it is needed.
void DropParkedContents(Batch& batch);
// What reading back those takes that have no content.
size_t RoomToLoad(const Batch& batch);
// The same of what has to wait for room: what is fresh does not, also beside others of its batch
// that were parked.
size_t RoomNeeded(const Batch& batch);
// What a batch that waits for its next try takes, its members apart.
inline constexpr size_t kWaitingBatchBytes = 300;
inline constexpr size_t kWaitingMemberBytes = 110;
inline size_t WaitingBytes(const Batch& batch) {
  return kWaitingBatchBytes + kWaitingMemberBytes * batch.messages.size() +
         sizeof(uint64_t) * batch.order_keys.size();
}
// The identity of one message, or a hash of those of several in their order.
IdBytes BatchKey(const std::vector<Message>& messages);

}  // namespace postrider::delivery
