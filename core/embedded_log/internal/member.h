#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/wake_fd.h"
#include "core/embedded_log/internal/core.h"
#include "core/embedded_log/internal/cursor_set.h"
#include "core/embedded_log/internal/fetcher.h"
#include "core/embedded_log/internal/writer.h"
#include "core/stream/group_membership.h"
#include "core/stream/log.h"

namespace postrider::embedded_log_internal {

// One member of a group. Nobody outside of the process can take over what it owns, so its lease
// has no end; the group's generation fences its commits all the same, for the shards of a process
// share a group.
class Member final : public GroupConsumer {
 public:
  Member(Core& core, Writer& writer, Fetcher& fetcher, EventLoop& loop, WakeFd wake,
         const GroupOptions& options, GroupHandler& handler);
  ~Member() override;
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  int wake_fd() const override { return cursors_.wake_fd(); }
  size_t Poll(size_t records_max) override;
  void Start(std::vector<StartPosition> positions) override;
  void Restart(const TopicPartition& tp, int64_t offset) override;
  void Release() override;
  void Commit(std::vector<CommitEntry> entries, CommitDone done) override;
  MonotonicTime LeaseUntil() const override { return MonotonicTime::max(); }
  void Leave(absl::AnyInvocable<void() &&> done) override;

 private:
  struct Event {
    enum class Kind {
      kNone,
      kReachable,
      kCommitted,
      kMembership,
      kNews,
    };
    Kind kind = Kind::kNone;
    bool reachable = true;
    CommitDone committed;
    std::vector<absl::Status> statuses;
    GroupMembership::Event membership;
    CursorSet::News news;
  };
  // Commits in the order of their calls; the answers come in it too. Shared with the writer, whom
  // it may outlive.
  struct PendingCommit {
    CommitDone done;
    std::vector<absl::Status> statuses;
    bool answered = false;
  };
  struct Commits {
    CursorSet* set = nullptr;  // null: the member is gone
    std::deque<std::shared_ptr<PendingCommit>> line;
  };

  void Heartbeat();
  Event NextEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void TellMembership(GroupMembership::Event&& event);
  size_t Tell(Event&& event, size_t records_max);

  Core& core_;
  Writer& writer_;
  EventLoop& loop_;
  const GroupOptions options_;
  GroupHandler& handler_;
  CursorSet cursors_;
  TimerId heartbeat_ = 0;

  std::unique_ptr<GroupMembership> membership_ ABSL_PT_GUARDED_BY(core_.mutex);
  bool told_reachable_ = true;
  const std::shared_ptr<Commits> commits_ = std::make_shared<Commits>();
};

}  // namespace postrider::embedded_log_internal
