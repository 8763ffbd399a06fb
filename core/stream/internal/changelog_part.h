#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/stream/changelog.h"
#include "core/stream/job.h"
#include "core/stream/log.h"
#include "core/stream/record.h"
#include "core/stream/state_backend.h"
#include "core/stream/state_store.h"

namespace postrider::internal {

class ChangelogPart;

// What a part tells its task. Threads: the shard's.
class PartOwner {
 public:
  virtual ~PartOwner() = default;
  // The owner's marker is in the log: what stands before it is to be read now.
  virtual void OnPartMarked(ChangelogPart& part) = 0;
  virtual void OnPartRestored(ChangelogPart& part) = 0;
  // The task cannot go on.
  virtual void OnPartFailed(absl::Status why) = 0;
  // The log had no room for a write: OnRoom() is to be called when it has.
  virtual void OnPartRefused() = 0;
  // There is room again for a write that was refused for another reason.
  virtual void OnPartRoom() = 0;
};

// What one task has of one changelog: the partition that it writes, a store, the backend between,
// and the replay while it is being restored.
//
//   Open() --marker acknowledged--> OnPartMarked() --Restore() each, EndRestore()-->
//   OnPartRestored()
//
// An erasure of a former owner's record that was replaced makes sense only if what replaced it
// stands. A worker that lost its partition without knowing may append both after its successor's
// marker, where the replacement is ignored and the erasure would still work. So such erasures are
// held back until the group has acknowledged a commit that was issued after the answers to all
// earlier writes: it was still the owner then. The removal of what is finished waits for nothing.
//
// Threads: the shard's.
// Bounds:  the overlay's (ChangelogOptions); kHeldMax erasures are held.
class ChangelogPart final : private ChangelogWriter {
 public:
  // Makes the store and appends the marker. All that is passed outlives it; after its end no answer
  // of the log reaches anybody.
  static absl::StatusOr<std::unique_ptr<ChangelogPart>> Open(LogProducer& producer,
                                                             const Clock& clock,
                                                             const ChangelogOptions& options,
                                                             size_t index, int32_t partition,
                                                             uint64_t epoch, PartOwner& owner);
  ~ChangelogPart() override;

  StateBackend& backend() { return backend_; }
  size_t index() const { return index_; }
  ChangelogOptions::Restore when() const { return options_.restore; }
  const TopicPartition& partition() const { return tp_; }

  // Of a restore. The offset of the marker, once it is known.
  const absl::optional<int64_t>& marker() const { return marker_; }
  // As StateBackend::RestoreRecord().
  absl::Status Restore(absl::string_view key, absl::string_view value) {
    return backend_.RestoreRecord(key, value);
  }
  void EndRestore();
  bool restored() const { return replay_ == nullptr; }
  // Once restored: as ChangelogReplay::owner_before().
  uint64_t owner_before() const { return owner_before_; }
  void Fail(absl::Status why) { owner_.OnPartFailed(std::move(why)); }

  // The producer may have room again.
  void OnRoom();
  // The store may have room again; called now and then.
  void Retry();
  // A commit of this shard that was issued then was acknowledged.
  void OnCommitAcknowledged(MonotonicTime issued);
  // Writes that have no answer yet.
  size_t pending() const { return backend_.pending(); }

 private:
  static constexpr size_t kHeldMax = 10'000;
  struct Held {
    EncodedChangelogRecord record;
    AppendDone done;
    uint64_t after;  // the write that is to be answered first, and all before it
    absl::optional<MonotonicTime> answered;
  };

  ChangelogPart(LogProducer& producer, const Clock& clock, const ChangelogOptions& options,
                size_t index, int32_t partition, uint64_t epoch, PartOwner& owner,
                std::unique_ptr<StateStore> store);
  bool Append(EncodedChangelogRecord&& record, AppendDone&& done) override;
  bool AppendErasure(EncodedChangelogRecord&& record, AppendDone&& done) override;
  // On false `record` and `done` are as they were.
  bool Send(EncodedChangelogRecord& record, AppendDone& done);
  void SendMarker();
  void OnAnswer(uint64_t write);
  AppendRecord Wrap(EncodedChangelogRecord&& record) const;

  LogProducer& producer_;
  const Clock& clock_;
  const ChangelogOptions& options_;
  const size_t index_;
  const TopicPartition tp_;
  const uint64_t epoch_;
  PartOwner& owner_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<ChangelogReplay> replay_;
  StateBackend backend_;

  uint64_t owner_before_ = 0;
  bool marker_sent_ = false;
  absl::optional<int64_t> marker_;
  uint64_t writes_ = 0;  // that the producer took
  uint64_t first_unanswered_ = 1;
  std::deque<bool> answered_;  // of first_unanswered_ and those after it
  std::deque<Held> held_;
  // Callbacks that may come after it hold it weakly.
  const std::shared_ptr<const int> alive_ = std::make_shared<const int>(0);
};

}  // namespace postrider::internal
