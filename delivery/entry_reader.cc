#include "delivery/entry_reader.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace postrider::delivery {
namespace {

// What one turn steps over on its way to what it can have.
constexpr size_t kStepOverMax = 5'000;
constexpr size_t kDamagedMax = 64;

}  // namespace

absl::optional<Message> EntryReader::Read(uint64_t order, const IdBytes& digest,
                                          absl::string_view encoded,
                                          const ListState::Place& place) {
  if (state_.claimed.contains(digest) || left_out_.contains(digest)) {
    StepOver(order);
    return absl::nullopt;
  }
  absl::StatusOr<std::unique_ptr<MessageContent>> content = MakeMessageContent(encoded);
  if (absl::IsUnimplemented(content.status())) {
    fault_ = content.status();
    goes_on_ = false;
    return absl::nullopt;
  }
  if (!content.ok()) {
    damaged_.push_back(Backlog::Damaged{order, digest, std::string(encoded)});
    state_.drain_from = order + 1;
    goes_on_ = damaged_.size() < kDamagedMax;
    return absl::nullopt;
  }
  Message message = MakeMessage(*std::move(content), order, digest, state_.format);
  message.arrived = now_;
  message.listed = true;
  message.place = place;
  return absl::make_optional(std::move(message));
}

void EntryReader::Take(Message& message) {
  BacklogRoom::Hold& room = message.content->room;
  room = room_.Split(RoomOf(message));
  const size_t missing = RoomOf(message) - room.bytes();
  if (missing > 0) room.Merge(rooms_.TakeAnyway(state_.room, missing));
  state_.claimed.insert(message.digest);
  state_.drain_from = message.order + 1;
  ++taken_;
}

void EntryReader::StepOver(uint64_t order) {
  state_.drain_from = order + 1;
  goes_on_ = ++stepped_over_ < kStepOverMax;
}

}  // namespace postrider::delivery
