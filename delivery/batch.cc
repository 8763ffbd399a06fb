#include "delivery/batch.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/crypto/digest.h"
#include "core/json/reader.h"
#include "delivery/body.h"

namespace postrider::delivery {
namespace {

uint32_t Narrow(size_t bytes) {
  return static_cast<uint32_t>(std::min<size_t>(bytes, std::numeric_limits<uint32_t>::max()));
}

bool IsOneJsonValue(absl::string_view data) {
  // The prover keeps 14 times the bytes of the longest text; a long one goes without.
  constexpr size_t kProverBytesMax = 64 << 10;
  if (data.size() > kProverBytesMax) return ProveJson(data) == JsonProof::kProven;
  thread_local JsonProver prover;
  return prover.Prove(data) == JsonProof::kProven;
}

}  // namespace

MessageView MessageContent::View() const {
  MessageView view;
  view.message_id = message_id;
  view.event_id = record.event_id;
  view.type = record.type;
  view.tenant = record.tenant;
  if (record.department) view.department = absl::string_view(*record.department);
  view.time = record.event_time;
  view.hops = record.hops;
  view.data = data();
  return view;
}

absl::StatusOr<std::unique_ptr<MessageContent>> MakeMessageContent(absl::string_view encoded) {
  auto content = std::make_unique<MessageContent>();
  content->encoded = std::string(encoded);
  ASSIGN_OR_RETURN(content->record, subscriptions::ViewDispatchRecord(content->encoded));
  if (!IsOneJsonValue(content->data())) {
    return absl::DataLossError("dispatch record: the data are not one JSON value");
  }
  content->message_id = subscriptions::FormatMessageId(content->record.message_id);
  return content;
}

Message MakeMessage(std::unique_ptr<MessageContent> content, uint64_t order, const IdBytes& digest,
                    subscriptions::BodyFormat format) {
  Message message;
  message.order = order;
  message.digest = digest;
  message.bytes = Narrow(content->encoded.size());
  message.body_bytes = Narrow(BodyBytesMax(format, content->View()));
  message.event_time = content->record.event_time;
  message.dispatch_time = content->record.dispatch_time;
  message.content = std::move(content);
  return message;
}

void Batch::Remeasure(subscriptions::BodyFormat format) {
  bytes = 0;
  for (Message& message : messages) {
    // Of one whose content was parked no more is known than its bound in the format of before.
    message.body_bytes =
        Narrow(message.content == nullptr ? message.body_bytes + kBodyBytesBetweenFormats
                                          : BodyBytesMax(format, message.content->View()));
    bytes += message.body_bytes;
  }
}

Batch PieceOf(const Batch& of) {
  Batch piece;
  piece.attempts = of.attempts;
  piece.tries = of.tries;
  piece.first_try = of.first_try;
  piece.last = of.last;
  piece.bisection = of.bisection;
  return piece;
}

void DropParkedContents(Batch& batch) {
  for (Message& message : batch.messages) {
    if (!message.pending) message.content.reset();
  }
}

size_t RoomToLoad(const Batch& batch) {
  size_t bytes = batch.room_left_out;
  for (const Message& message : batch.messages) {
    if (message.content == nullptr) bytes += RoomOf(message);
  }
  return bytes;
}

size_t RoomNeeded(const Batch& batch) {
  const bool fresh = std::any_of(batch.messages.begin(), batch.messages.end(),
                                 [](const Message& message) { return message.pending; });
  return fresh ? 0 : RoomToLoad(batch);
}

IdBytes BatchKey(const std::vector<Message>& messages) {
  if (messages.size() == 1) return messages.front().digest;
  Sha256Hasher hasher;
  for (const Message& message : messages) hasher.Add(DigestBytes(message.digest));
  const Sha256Digest digest = hasher.Finish();
  IdBytes key{};
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

}  // namespace postrider::delivery
