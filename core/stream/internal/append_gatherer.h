#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::internal {

// Gathers appends to many partitions for a while and hands them on together. A request to the log
// carries one partition's records, and costs it and us far more than the records in it: where each
// partition gets few and nobody waits for the answer, company is worth more than haste. A
// producer's own linger is the same for all that it carries.
//
// With `per_partition` the wait grows with the partitions for which something waits: the requests
// have a bound of one in each such span, however many partitions there are, and where few wait
// nothing waits long.
//
// Patient records wait longer, up to `patience`, but never let others wait: with the first that is
// not patient all go in its time.
//
// What waits here is not in the log: for those who appended it is as what the log has not answered
// yet.
//
// Threads: the loop's.
// Bounds:  kRecordsMax and kBytesMax wait. At half of either all is handed on at once.
class AppendGatherer final : public LogProducer {
 public:
  static constexpr size_t kRecordsMax = 2'000;
  static constexpr size_t kBytesMax = 2 << 20;

  // `loop` and `producer` outlive it. `gather`: how long the first one waits for company, at most.
  // `per_partition`: how long for each partition for which something waits; 0: always `gather`.
  // `patience`: how long the first one waits while all are patient; at least `gather`.
  AppendGatherer(EventLoop& loop, LogProducer& producer, std::chrono::milliseconds gather,
                 std::chrono::microseconds per_partition = std::chrono::microseconds(0),
                 std::chrono::milliseconds patience = std::chrono::milliseconds(0))
      : loop_(loop),
        producer_(producer),
        gather_(gather),
        per_partition_(per_partition),
        patience_(std::max(gather, patience)) {}
  // Those that wait are answered with kAborted.
  ~AppendGatherer() override;

  [[nodiscard]] bool Append(AppendRecord&& record, AppendDone&& done) override;
  void SetRoomCallback(absl::AnyInvocable<void()> room) override { room_ = std::move(room); }
  // The producer has room again.
  void OnRoom();
  size_t waiting() const { return waiting_.size(); }
  // Those that wait here and with the producer.
  size_t pending() const override { return waiting_.size() + producer_.pending(); }
  void Poll() override { producer_.Poll(); }
  // Hands on what waits, and flushes the producer.
  void Flush() override;
  // False, as it begins: what waits is handed on, and from now on everything at once.
  void SetGathering(bool gathering);

 private:
  struct Waiting {
    AppendRecord record;
    AppendDone done;
    size_t bytes;
  };
  // When the first one has waited for as long as those that wait ask for by now.
  MonotonicTime Due() const;
  void ArmTimer();
  void HandOn();

  EventLoop& loop_;
  LogProducer& producer_;
  const std::chrono::milliseconds gather_;
  const std::chrono::microseconds per_partition_;
  const std::chrono::milliseconds patience_;
  absl::AnyInvocable<void()> room_;
  bool gathering_ = false;
  bool refused_ = false;
  std::deque<Waiting> waiting_;
  size_t bytes_ = 0;
  // Hashes of the partitions for which something waits, with `per_partition` only; two that fall
  // together make the wait a little shorter.
  absl::flat_hash_set<size_t> partitions_;
  MonotonicTime first_;  // when the first of those that wait came
  absl::optional<MonotonicTime> first_impatient_;
  TimerId timer_ = 0;
};

}  // namespace postrider::internal
