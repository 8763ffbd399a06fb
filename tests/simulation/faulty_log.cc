#include "tests/simulation/faulty_log.h"

#include <deque>
#include <utility>

#include "core/base/check.h"

namespace postrider::simulation {

using std::chrono::milliseconds;

class FaultyLog::Producer final : public LogProducer {
 public:
  Producer(FaultyLog& log, EventLoop& loop, const ProducerOptions& options,
           std::unique_ptr<LogProducer> inner)
      : log_(log), loop_(loop), options_(options), inner_(std::move(inner)) {
    log_.producer_ = this;
  }
  ~Producer() override {
    log_.producer_ = nullptr;
    loop_.CancelTimer(timer_);
    alive_.reset();
    inner_.reset();
    for (auto& [number, done] : done_) std::move(done)(absl::AbortedError("closed"));
  }

  bool Append(AppendRecord&& record, AppendDone&& done) override {
    if (static_cast<int64_t>(done_.size()) >= options_.queue_records_max) {
      wants_room_ = true;
      return false;
    }
    const uint64_t number = ++last_;
    Held held{number, std::move(record), MonotonicTime::min(), Fate::kWell, Duration::zero()};
    Random& random = log_.random_;
    const LogFaults& faults = log_.faults_;
    const uint64_t chance = random.Below(1'000);
    const auto delay = [&] {
      return milliseconds(
          1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(faults.delay_ms_max))));
    };
    if (chance < faults.fail_unwritten) {
      held.fate = Fate::kUnwritten;
    } else if (chance < faults.fail_unwritten + faults.fail_written) {
      held.fate = Fate::kWrittenUnknown;
    }
    if (failing_.contains({held.record.topic, held.record.partition})) held.fate = Fate::kUnwritten;
    if (random.Below(1'000) < faults.delay_write) held.write_at = loop_.clock().Now() + delay();
    if (random.Below(1'000) < faults.delay_answer) held.answer_after = delay();
    done_.emplace(number, std::move(done));
    held_[{held.record.topic, held.record.partition}].push_back(std::move(held));
    Write();
    return true;
  }
  void SetRoomCallback(absl::AnyInvocable<void()> room) override { room_ = std::move(room); }
  size_t pending() const override { return done_.size(); }
  void Poll() override {
    Write();
    inner_->Poll();
  }
  void Flush() override { inner_->Flush(); }

  std::vector<AppendRecord> TakeGhosts() {
    std::vector<AppendRecord> ghosts;
    for (auto& [tp, queue] : held_) {
      for (size_t count = log_.random_.Below(queue.size() + 1); count > 0; --count) {
        if (queue.front().fate != Fate::kUnwritten) ghosts.push_back(queue.front().record);
        queue.pop_front();
      }
    }
    return ghosts;
  }

 private:
  enum class Fate { kWell, kUnwritten, kWrittenUnknown };
  struct Held {
    uint64_t number;
    AppendRecord record;
    MonotonicTime write_at;
    Fate fate;
    Duration answer_after;
  };

  void Write() {
    const MonotonicTime now = loop_.clock().Now();
    bool left = false;
    for (auto& [tp, queue] : held_) {
      while (!queue.empty() && log_.faults_.reachable && !log_.faults_.dead &&
             queue.front().write_at <= now) {
        Held held = std::move(queue.front());
        queue.pop_front();
        WriteOne(std::move(held));
      }
      left = left || !queue.empty();
    }
    if (left && timer_ == 0) {
      timer_ = loop_.CallAfter(milliseconds(10), [this] {
        timer_ = 0;
        Write();
      });
    }
  }
  void WriteOne(Held&& held) {
    const std::weak_ptr<const int> alive = alive_;
    const TopicPartition tp{held.record.topic, held.record.partition};
    if (held.fate == Fate::kUnwritten) {
      for (Held& behind : held_[tp]) behind.fate = Fate::kUnwritten;
      ++failing_[tp];
      loop_.CallAfter(held.answer_after, [this, alive, tp, number = held.number] {
        if (alive.expired() || log_.faults_.dead) return;
        if (--failing_[tp] == 0) failing_.erase(tp);
        Answer(number, absl::InternalError("not written"));
      });
      return;
    }
    log_.oracle_.Appended(held.record);
    const AppendRecord told = held.record;
    const bool taken = inner_->Append(std::move(held.record),
                                      [this, alive, told, number = held.number, fate = held.fate,
                                       after = held.answer_after](absl::StatusOr<int64_t> offset) {
                                        if (alive.expired()) return;
                                        POSTRIDER_CHECK(offset.ok());
                                        if (log_.after_answer) log_.after_answer(told);
                                        if (log_.faults_.dead) return;
                                        if (fate == Fate::kWrittenUnknown)
                                          offset = absl::InternalError("the answer was lost");
                                        if (after == Duration::zero())
                                          return Answer(number, std::move(offset));
                                        loop_.CallAfter(after, [this, alive, number, offset] {
                                          if (!alive.expired()) Answer(number, offset);
                                        });
                                      });
    POSTRIDER_CHECK(taken);
    if (log_.after_append) log_.after_append(told);
  }
  void Answer(uint64_t number, absl::StatusOr<int64_t> offset) {
    const auto found = done_.find(number);
    AppendDone done = std::move(found->second);
    done_.erase(found);
    std::move(done)(std::move(offset));
    if (wants_room_ && static_cast<int64_t>(done_.size()) <= options_.queue_records_max / 2) {
      wants_room_ = false;
      if (room_) room_();
    }
  }

  FaultyLog& log_;
  EventLoop& loop_;
  const ProducerOptions options_;
  std::unique_ptr<LogProducer> inner_;
  std::map<TopicPartition, std::deque<Held>> held_;
  std::map<uint64_t, AppendDone> done_;
  // Appends that were not written and are not answered: what follows them is not written either.
  std::map<TopicPartition, int> failing_;
  uint64_t last_ = 0;
  bool wants_room_ = false;
  absl::AnyInvocable<void()> room_;
  TimerId timer_ = 0;
  std::shared_ptr<const int> alive_ = std::make_shared<const int>(0);
};

class FaultyLog::Consumer final : public GroupConsumer {
 public:
  Consumer(FaultyLog& log, EventLoop& loop, const GroupOptions& options,
           std::unique_ptr<GroupConsumer> inner)
      : log_(log), loop_(loop), options_(options), inner_(std::move(inner)) {}

  int wake_fd() const override { return inner_->wake_fd(); }
  size_t Poll(size_t records_max) override { return inner_->Poll(records_max); }
  void Start(std::vector<StartPosition> positions) override { inner_->Start(std::move(positions)); }
  void Restart(const TopicPartition& tp, int64_t offset) override { inner_->Restart(tp, offset); }
  void Release() override { inner_->Release(); }
  void Commit(std::vector<CommitEntry> entries, CommitDone done) override {
    if (log_.before_commit) log_.before_commit(entries);
    if (log_.faults_.dead) return;
    std::vector<CommitEntry> told = entries;
    inner_->Commit(
        std::move(entries), [this, told = std::move(told), issued = loop_.clock().Now(),
                             done = std::move(done)](std::vector<absl::Status> statuses) mutable {
          for (size_t i = 0; i < told.size(); ++i) {
            if (!statuses[i].ok()) continue;
            log_.oracle_.CommitAcknowledged(told[i]);
            log_.lease_ =
                std::max(log_.lease_, issued + options_.session_timeout - std::chrono::seconds(1));
            if (log_.after_commit) log_.after_commit(told[i]);
          }
          std::move(done)(std::move(statuses));
        });
  }
  MonotonicTime LeaseUntil() const override { return inner_->LeaseUntil(); }
  void Leave(absl::AnyInvocable<void() &&> done) override { inner_->Leave(std::move(done)); }

 private:
  FaultyLog& log_;
  EventLoop& loop_;
  const GroupOptions options_;
  std::unique_ptr<GroupConsumer> inner_;
};

class FaultyLog::Reader final : public PartitionReader {
 public:
  Reader(FaultyLog& log, std::unique_ptr<PartitionReader> inner)
      : log_(log), inner_(std::move(inner)) {}

  int wake_fd() const override { return inner_->wake_fd(); }
  // What is left out comes with the next turn.
  size_t Poll(size_t records_max) override {
    return inner_->Poll(std::min(records_max, log_.faults_.read_max));
  }
  void Add(const StartPosition& position) override { inner_->Add(position); }
  void Remove(const TopicPartition& tp) override { inner_->Remove(tp); }

 private:
  FaultyLog& log_;
  std::unique_ptr<PartitionReader> inner_;
};

absl::StatusOr<std::unique_ptr<LogProducer>> FaultyLog::OpenProducer(
    EventLoop& loop, const ProducerOptions& options) {
  POSTRIDER_CHECK(producer_ == nullptr);
  auto inner = log().OpenProducer(loop, ProducerOptions());
  if (!inner.ok()) return inner.status();
  return std::make_unique<Producer>(*this, loop, options, *std::move(inner));
}

absl::StatusOr<std::unique_ptr<GroupConsumer>> FaultyLog::JoinGroup(EventLoop& loop,
                                                                    const GroupOptions& options,
                                                                    GroupHandler& handler) {
  auto inner = log().JoinGroup(loop, options, handler);
  if (!inner.ok()) return inner.status();
  return std::make_unique<Consumer>(*this, loop, options, *std::move(inner));
}

absl::StatusOr<std::unique_ptr<PartitionReader>> FaultyLog::OpenReader(EventLoop& loop,
                                                                       const ReaderOptions& options,
                                                                       ReadHandler& handler) {
  auto inner = log().OpenReader(loop, options, handler);
  if (!inner.ok()) return inner.status();
  return std::make_unique<Reader>(*this, *std::move(inner));
}

std::vector<AppendRecord> FaultyLog::TakeGhosts() {
  return producer_ == nullptr ? std::vector<AppendRecord>() : producer_->TakeGhosts();
}

}  // namespace postrider::simulation
