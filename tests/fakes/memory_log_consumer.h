#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"
#include "core/base/event_loop.h"
#include "core/base/wake_fd.h"
#include "core/stream/group_membership.h"
#include "tests/fakes/memory_log.h"
#include "tests/fakes/memory_log_impl.h"

namespace postrider {

class MemoryLog::Consumer final : public GroupConsumer {
 public:
  Consumer(Impl& log, EventLoop& loop, const GroupOptions& options, GroupHandler& handler)
      : log_(log), loop_(loop), options_(options), handler_(handler) {
    absl::MutexLock lock(&log_.mutex);
    log_.consumers.insert(this);
    membership_ =
        std::make_unique<GroupMembership>(log_.groups, options_, [this] { wake_.Wake(); });
    Heartbeat();
  }
  ~Consumer() override {
    loop_.CancelTimer(heartbeat_);
    absl::MutexLock lock(&log_.mutex);
    log_.consumers.erase(this);
    if (auto* member = log_.groups.FindMember(options_.group, membership_->id())) {
      member->wake = nullptr;
      member->silent_since = std::min(member->silent_since, log_.clock.Now());
    }
  }

  int wake_fd() const override { return wake_.get(); }
  size_t Poll(size_t records_max) override;

  void Start(std::vector<StartPosition> positions) override {
    absl::MutexLock lock(&log_.mutex);
    POSTRIDER_CHECK(membership_->reads());
    reading_.clear();
    for (const StartPosition& position : positions) {
      POSTRIDER_CHECK(membership_->has(position.tp));
      Reading reading;
      reading.tp = position.tp;
      reading.position = position.offset;
      const Partition* partition = log_.FindPartition(position.tp);
      if (partition != nullptr && position.at != StartPosition::At::kOffset) {
        reading.position =
            position.at == StartPosition::At::kLogEnd ? partition->end : partition->begin;
      }
      reading_.push_back(std::move(reading));
    }
    wake_.Wake();
  }
  void Restart(const TopicPartition& tp, int64_t offset) override {
    absl::MutexLock lock(&log_.mutex);
    if (!membership_->reads() || !membership_->has(tp)) return;
    auto found = std::find_if(reading_.begin(), reading_.end(),
                              [&tp](const Reading& one) { return one.tp == tp; });
    if (found == reading_.end()) found = reading_.insert(reading_.end(), Reading());
    *found = Reading();
    found->tp = tp;
    found->position = offset;
    wake_.Wake();
  }
  void Release() override {
    absl::MutexLock lock(&log_.mutex);
    membership_->Release();
    reading_.clear();
    if (Connected()) membership_->Rejoin();  // else Poll() goes on
    wake_.Wake();
  }
  void Commit(std::vector<CommitEntry> entries, CommitDone done) override {
    absl::MutexLock lock(&log_.mutex);
    commits_.push_back({std::move(entries),
                        std::move(done),
                        log_.clock.Now(),
                        membership_->generation(),
                        {},
                        false,
                        false});
    StoreCommits();
    wake_.Wake();
  }
  MonotonicTime LeaseUntil() const override {
    if (last_acknowledged_issue_ == MonotonicTime::min()) return last_acknowledged_issue_;
    return last_acknowledged_issue_ + options_.session_timeout - std::chrono::seconds(1);
  }
  void Leave(absl::AnyInvocable<void() &&> done) override {
    absl::MutexLock lock(&log_.mutex);
    membership_->Leave(std::move(done));
    wake_.Wake();
  }

  const GroupOptions& options() const { return options_; }
  void Wake() { wake_.Wake(); }
  void AnswerHeldCommits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex) {
    for (PendingCommit& commit : commits_) commit.held = false;
    StoreCommits();
  }

 private:
  using Partition = memory_log_internal::Partition;
  using RecordPtr = memory_log_internal::RecordPtr;
  struct Reading {
    TopicPartition tp;
    int64_t position = 0;
    bool out_of_range = false;
    int64_t end_told = -1;
  };
  struct PendingCommit {
    std::vector<CommitEntry> entries;
    CommitDone done;
    MonotonicTime issued;
    int64_t generation;
    std::vector<absl::Status> answer;
    bool stored;
    bool held;
  };
  // What Poll() has to tell its handler next.
  struct Event {
    enum class Kind {
      kNone,
      kReachable,
      kUnreachable,
      kCommitted,
      kMembership,
      kRecord,
      kPartitionEnd,
      kOutOfRange,
    };
    Kind kind = Kind::kNone;
    PendingCommit commit{};
    GroupMembership::Event membership{};
    TopicPartition tp{};
    int64_t offset = 0;
    RecordPtr record{};
  };

  bool Connected() ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex) {
    if (!log_.reachable) return false;
    return log_.consumers.count(this) == 1 && isolated_ == false;
  }
  void Heartbeat() {
    heartbeat_ = loop_.CallAfter(options_.heartbeat_interval, [this] {
      {
        absl::MutexLock lock(&log_.mutex);
        log_.Expire();
      }
      Heartbeat();
    });
  }
  void StoreCommits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex);
  Event NextEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex);
  Event NextRecord(bool records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex);
  Event NextOf(Reading& reading, bool records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex);
  void Tell(Event&& event);
  void TellMembership(GroupMembership::Event&& event);

  friend struct MemoryLog::Impl;
  friend class MemoryLog;

  // So many records of one partition come in a row.
  static constexpr size_t kRunMax = 100;

  Impl& log_;
  EventLoop& loop_;
  const GroupOptions options_;
  GroupHandler& handler_;
  WakeFd wake_ = *WakeFd::Create();
  TimerId heartbeat_ = 0;

  std::unique_ptr<GroupMembership> membership_ ABSL_PT_GUARDED_BY(log_.mutex);
  bool isolated_ = false;
  bool told_reachable_ = true;
  std::vector<Reading> reading_;
  size_t turn_ = 0;
  size_t run_ = 0;
  std::deque<PendingCommit> commits_;
  MonotonicTime last_acknowledged_issue_ = MonotonicTime::min();
};

}  // namespace postrider
