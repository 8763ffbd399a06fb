#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "core/base/event_loop.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::internal {

// Gathers appends to many partitions for a while and hands them on together. A request to the log
// carries one partition's records, and costs it and us far more than the records in it: where each
// partition gets few and nobody waits for the answer, company is worth more than haste. A
// producer's own linger is the same for all that it carries.
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

  // Both outlive it. `gather`: how long the first one waits for company.
  AppendGatherer(EventLoop& loop, LogProducer& producer, std::chrono::milliseconds gather)
      : loop_(loop), producer_(producer), gather_(gather) {}
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
  void HandOn();

  EventLoop& loop_;
  LogProducer& producer_;
  const std::chrono::milliseconds gather_;
  absl::AnyInvocable<void()> room_;
  bool gathering_ = false;
  bool refused_ = false;
  std::deque<Waiting> waiting_;
  size_t bytes_ = 0;
  TimerId timer_ = 0;
};

}  // namespace postrider::internal
