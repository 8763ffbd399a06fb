#include "core/stream/internal/changelog_part.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/stream/keyed_state.h"

namespace postrider::internal {
namespace {

StateBackendOptions BackendOptions(const ChangelogOptions& options, uint64_t epoch) {
  StateBackendOptions made;
  made.epoch = epoch;
  made.overlay_bytes_max = options.overlay_bytes_max;
  made.overlays = options.overlays;
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChangelogPart>> ChangelogPart::Open(
    LogProducer& producer, const Clock& clock, const ChangelogOptions& options, size_t index,
    int32_t partition, uint64_t epoch, PartOwner& owner) {
  absl::StatusOr<std::unique_ptr<StateStore>> store =
      options.open_store(TopicPartition{options.topic, partition});
  if (!store.ok()) {
    return absl::Status(store.status().code(),
                        absl::StrCat("the store of ", options.topic, "/", partition,
                                     " cannot be opened: ", store.status().message()));
  }
  std::unique_ptr<ChangelogPart> part(new ChangelogPart(producer, clock, options, index, partition,
                                                        epoch, owner, *std::move(store)));
  part->backend_.BeginRestore(*part->replay_);
  part->SendMarker();
  return part;
}

ChangelogPart::ChangelogPart(LogProducer& producer, const Clock& clock,
                             const ChangelogOptions& options, size_t index, int32_t partition,
                             uint64_t epoch, PartOwner& owner, std::unique_ptr<StateStore> store)
    : producer_(producer),
      clock_(clock),
      options_(options),
      index_(index),
      tp_{options.topic, partition},
      epoch_(epoch),
      owner_(owner),
      store_(std::move(store)),
      replay_(std::make_unique<ChangelogReplay>(epoch, ReplayRuleOf)),
      backend_(BackendOptions(options, epoch), *store_, *this,
               [this](absl::Status why) { owner_.OnPartFailed(std::move(why)); }) {
  backend_.SetRoomCallback([this] { owner_.OnPartRoom(); });
}

ChangelogPart::~ChangelogPart() = default;

void ChangelogPart::EndRestore() {
  POSTRIDER_CHECK(replay_ != nullptr);
  backend_.EndRestore();
  owner_before_ = replay_->owner_before();
  replay_.reset();
  owner_.OnPartRestored(*this);
}

AppendRecord ChangelogPart::Wrap(EncodedChangelogRecord&& record) const {
  AppendRecord wrapped;
  wrapped.topic = tp_.topic;
  wrapped.partition = tp_.partition;
  wrapped.tombstone = record.value.empty();
  // What was put comes again when it is lost; what was removed is done again.
  wrapped.patient = record.put;
  wrapped.key = std::move(record.key);
  wrapped.value = std::move(record.value);
  return wrapped;
}

// Before everything else of this epoch.
void ChangelogPart::SendMarker() {
  if (marker_sent_) return;
  ChangelogRecord marker;
  marker.kind = ChangelogKind::kMarker;
  marker.epoch = epoch_;
  marker_sent_ = producer_.Append(
      Wrap(EncodeChangelogRecord(marker)),
      [this, alive = std::weak_ptr<const int>(alive_)](absl::StatusOr<int64_t> offset) {
        if (alive.expired()) return;
        if (!offset.ok()) return owner_.OnPartFailed(offset.status());
        marker_ = *offset;
        owner_.OnPartMarked(*this);
      });
  if (!marker_sent_) return owner_.OnPartRefused();
  // A restore waits for it.
  if (options_.gather > std::chrono::milliseconds(0)) producer_.Flush();
  if (epoch_ <= kChangelogMarkersKept) return;
  marker.kind = ChangelogKind::kErase;
  marker.epoch = epoch_ - kChangelogMarkersKept;
  // Refused: it stays, which costs a record.
  (void)producer_.Append(Wrap(EncodeChangelogRecord(marker)),
                         [](const absl::StatusOr<int64_t>&) {});
}

bool ChangelogPart::Append(EncodedChangelogRecord&& record, AppendDone&& done) {
  if (marker_sent_ && Send(record, done)) return true;
  owner_.OnPartRefused();
  return false;
}

bool ChangelogPart::AppendErasure(EncodedChangelogRecord&& record, AppendDone&& done) {
  if (held_.size() >= kHeldMax) return false;
  held_.push_back({std::move(record), std::move(done), writes_, absl::nullopt});
  if (first_unanswered_ > writes_) held_.back().answered = clock_.Now();
  return true;
}

bool ChangelogPart::Send(EncodedChangelogRecord& record, AppendDone& done) {
  struct Sent {
    std::weak_ptr<const int> alive;
    ChangelogPart* part;  // there as long as `alive`
    uint64_t write;
    AppendDone done;
  };
  auto sent = std::make_unique<Sent>(Sent{alive_, this, writes_ + 1, std::move(done)});
  Sent* const kept = sent.get();
  AppendRecord wrapped = Wrap(std::move(record));
  LogProducer::AppendDone answer =
      [sent = std::move(sent)](const absl::StatusOr<int64_t>& offset) mutable {
        if (sent->alive.expired()) return;
        sent->part->OnAnswer(sent->write);
        std::move(sent->done)(offset.status());
      };
  if (!producer_.Append(std::move(wrapped), std::move(answer))) {
    record.key = std::move(wrapped.key);
    record.value = std::move(wrapped.value);
    done = std::move(kept->done);
    return false;
  }
  ++writes_;
  answered_.push_back(false);
  return true;
}

void ChangelogPart::OnAnswer(uint64_t write) {
  answered_[write - first_unanswered_] = true;
  while (!answered_.empty() && answered_.front()) {
    answered_.pop_front();
    ++first_unanswered_;
  }
  for (Held& held : held_) {
    if (held.answered) continue;
    if (held.after >= first_unanswered_) break;
    held.answered = clock_.Now();
  }
}

void ChangelogPart::OnCommitAcknowledged(MonotonicTime issued) {
  if (held_.empty()) return;
  bool any = false;
  while (!held_.empty() && held_.front().answered && *held_.front().answered < issued) {
    if (!Send(held_.front().record, held_.front().done)) {
      owner_.OnPartRefused();
      break;
    }
    held_.pop_front();
    any = true;
  }
  if (any) backend_.OnRoom();
}

void ChangelogPart::OnRoom() {
  SendMarker();
  backend_.OnRoom();
}

void ChangelogPart::Retry() {
  if (backend_.wants_retry()) backend_.OnRoom();
}

}  // namespace postrider::internal
