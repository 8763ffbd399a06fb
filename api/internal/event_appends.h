#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/stream/log.h"

namespace postrider::api {

// Appends the records of one request and keeps what has become of each of them.
//
// Apache Kafka refuses a batch as a whole for one record that its topic does not take, and the
// others in it, which may be of other requests, have nothing to do with that. So what was refused
// with its batch (kFailedPrecondition, kInvalidArgument) is appended again, each record in a batch
// of its own, and only what is refused there is one that the log can never take.
//
// Threads: the loop's.
class EventAppends : public std::enable_shared_from_this<EventAppends> {
 public:
  enum class Fate : uint8_t {
    kOpen,     // not known (yet): it may be stored
    kStored,   // acknowledged
    kRefused,  // the log can never take it
  };
  struct Entry {
    Fate fate = Fate::kOpen;
    int64_t offset = -1;  // of what is stored
  };
  // The record of that number, made anew for each try.
  using MakeRecord = std::function<AppendRecord(size_t)>;
  // As Publisher::Append().
  using Append =
      std::function<absl::Status(AppendRecord, ProducerOptions::Batches, LogProducer::AppendDone)>;

  EventAppends(size_t count, MakeRecord make, Append append)
      : entries_(count), make_(std::move(make)), append_(std::move(append)) {}

  // Appends all in their order. `done` is called once, when nothing is under way any more: then
  // what is still open cannot be written now, which failure() tells the reason of. At most once;
  // `done` may run from inside the call.
  void Start(absl::AnyInvocable<void() &&> done);
  // Begins no further try; `done` is still called.
  void Stop() { stopped_ = true; }

  const std::vector<Entry>& entries() const { return entries_; }
  const absl::Status& failure() const { return failure_; }

 private:
  using Batches = ProducerOptions::Batches;
  void Try(size_t i, Batches batches);
  void Answered(size_t i, Batches batches, const absl::StatusOr<int64_t>& offset);
  void Next();

  std::vector<Entry> entries_;
  const MakeRecord make_;
  const Append append_;
  absl::AnyInvocable<void() &&> done_;
  std::vector<size_t> alone_;  // to be appended by themselves, when all else is answered
  size_t under_way_ = 0;
  bool stopped_ = false;
  absl::Status failure_;
};

}  // namespace postrider::api
