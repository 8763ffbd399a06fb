#include "core/embedded_log/internal/member.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/embedded_log/internal/positions.h"

namespace postrider::embedded_log_internal {
namespace {

constexpr int kLooksPerBound = 10;

}  // namespace

Member::Member(Core& core, Writer& writer, Fetcher& fetcher, EventLoop& loop, WakeFd wake,
               const GroupOptions& options, GroupHandler& handler)
    : core_(core),
      writer_(writer),
      loop_(loop),
      options_(options),
      handler_(handler),
      cursors_(core, fetcher, std::move(wake), CursorSet::Outside::kTold, options.prefetch_bytes) {
  absl::MutexLock lock(&core_.mutex);
  commits_->set = &cursors_;
  membership_ =
      std::make_unique<GroupMembership>(core_.groups, options_, [this] { cursors_.Wake(); });
  Heartbeat();
}

Member::~Member() {
  loop_.CancelTimer(heartbeat_);
  absl::MutexLock lock(&core_.mutex);
  commits_->set = nullptr;
  membership_->Drop();
}

// What keeps time for the whole group, for a stuck member cannot. Nobody listens for heartbeats
// here: some within the bound that is looked at are enough.
void Member::Heartbeat() {
  const auto interval =
      std::max(options_.heartbeat_interval, options_.poll_interval_max / kLooksPerBound);
  heartbeat_ = loop_.CallAfter(interval, [this] {
    {
      absl::MutexLock lock(&core_.mutex);
      core_.groups.Expire(options_.group);
    }
    Heartbeat();
  });
}

void Member::Start(std::vector<StartPosition> positions) {
  absl::MutexLock lock(&core_.mutex);
  POSTRIDER_CHECK(membership_->reads());
  cursors_.Clear();
  for (const StartPosition& position : positions) {
    POSTRIDER_CHECK(membership_->has(position.tp));
    cursors_.Add(position);
  }
}

void Member::Restart(const TopicPartition& tp, int64_t offset) {
  absl::MutexLock lock(&core_.mutex);
  if (!membership_->reads() || !membership_->has(tp)) return;
  cursors_.Add({tp, StartPosition::At::kOffset, offset});
}

void Member::Release() {
  absl::MutexLock lock(&core_.mutex);
  membership_->Release();
  cursors_.Clear();
  membership_->Rejoin();
  cursors_.Wake();
}

void Member::Leave(absl::AnyInvocable<void() &&> done) {
  absl::MutexLock lock(&core_.mutex);
  membership_->Leave(std::move(done));
  cursors_.Wake();
}

// A position is the group's at once, so that a successor that is given it meanwhile cannot be
// overtaken by it; it is answered when it is on the disk. All that follows it is written later.
void Member::Commit(std::vector<CommitEntry> entries, CommitDone done) {
  auto commit = std::make_shared<PendingCommit>();
  commit->done = std::move(done);
  std::vector<CommitEntry> taken;
  {
    absl::MutexLock lock(&core_.mutex);
    GroupCoordinator::Group& group = core_.groups.group(options_.group);
    const bool fenced = membership_->fenced();
    for (CommitEntry& entry : entries) {
      absl::Status status;
      if (fenced || !membership_->has(entry.tp)) {
        status = absl::AbortedError("embedded log: the group has moved on");
      } else {
        status = CheckPosition(entry.position);
      }
      if (status.ok()) {
        group.committed[entry.tp] = entry.position;
        taken.push_back(std::move(entry));
      }
      commit->statuses.push_back(std::move(status));
    }
    commits_->line.push_back(commit);
    if (taken.empty()) {
      commit->answered = true;
      cursors_.Wake();
      return;
    }
    // Under the mutex, so that changes reach the writer in the order in which they were made.
    writer_.Submit({WritePositions(options_.group, std::move(taken)),
                    [core = &core_, commits = commits_, commit](const absl::Status& status) {
                      absl::MutexLock done_lock(&core->mutex);
                      for (absl::Status& one : commit->statuses) {
                        if (one.ok()) one = status;
                      }
                      commit->answered = true;
                      if (commits->set != nullptr) commits->set->Wake();
                    }});
  }
}

size_t Member::Poll(size_t records_max) {
  {
    absl::MutexLock lock(&core_.mutex);
    cursors_.BeginPoll();
    membership_->Polled();
    core_.groups.Expire(options_.group);
  }
  size_t records = 0;
  while (true) {
    Event event;
    {
      absl::MutexLock lock(&core_.mutex);
      event = NextEvent();
      if (event.kind == Event::Kind::kNone) {
        // What was left out for want of room is there for the next call.
        if (records >= records_max) cursors_.Wake();
        return records;
      }
      if (event.kind == Event::Kind::kNews) {
        event.news = cursors_.Next(records < records_max);
        if (event.news.kind == CursorSet::News::Kind::kNone) {
          if (records >= records_max) cursors_.Wake();
          return records;
        }
      }
    }
    records += Tell(std::move(event), records_max - records);
  }
}

Member::Event Member::NextEvent() {
  Event event;
  if (told_reachable_ != core_.writable.ok()) {
    told_reachable_ = core_.writable.ok();
    event.kind = Event::Kind::kReachable;
    event.reachable = told_reachable_;
    return event;
  }
  if (!commits_->line.empty() && commits_->line.front()->answered) {
    event.kind = Event::Kind::kCommitted;
    event.committed = std::move(commits_->line.front()->done);
    event.statuses = std::move(commits_->line.front()->statuses);
    commits_->line.pop_front();
    return event;
  }
  event.membership = membership_->Next();
  switch (event.membership.kind) {
    case GroupMembership::Event::Kind::kNone:
      if (membership_->reads()) event.kind = Event::Kind::kNews;
      return event;
    case GroupMembership::Event::Kind::kRevoked:
    case GroupMembership::Event::Kind::kLost:
      cursors_.Clear();
      break;
    default:
      break;
  }
  event.kind = Event::Kind::kMembership;
  return event;
}

void Member::TellMembership(GroupMembership::Event&& event) {
  switch (event.kind) {
    case GroupMembership::Event::Kind::kNone:
      break;
    case GroupMembership::Event::Kind::kAssigned:
      handler_.OnAssigned(std::move(event.assignment));
      break;
    case GroupMembership::Event::Kind::kNothingMatches:
      handler_.OnNothingMatches();
      break;
    case GroupMembership::Event::Kind::kRevoked:
      handler_.OnRevoked();
      break;
    case GroupMembership::Event::Kind::kLost:
      handler_.OnLost();
      break;
    case GroupMembership::Event::Kind::kLeft:
      if (event.left != nullptr) std::move(event.left)();
      break;
  }
}

size_t Member::Tell(Event&& event, size_t records_max) {
  switch (event.kind) {
    case Event::Kind::kNone:
      break;
    case Event::Kind::kReachable:
      handler_.OnReachable(event.reachable);
      break;
    case Event::Kind::kCommitted:
      std::move(event.committed)(std::move(event.statuses));
      break;
    case Event::Kind::kMembership:
      TellMembership(std::move(event.membership));
      break;
    case Event::Kind::kNews:
      switch (event.news.kind) {
        case CursorSet::News::Kind::kNone:
          break;
        case CursorSet::News::Kind::kPartitionEnd:
          handler_.OnPartitionEnd(event.news.cursor->start.tp, event.news.offset);
          break;
        case CursorSet::News::Kind::kOutOfRange:
          handler_.OnOutOfRange(event.news.cursor->start.tp, event.news.offset);
          break;
        case CursorSet::News::Kind::kRecords:
          return cursors_.Pass(event.news.cursor, records_max,
                               [this](const LogRecord& record) { handler_.OnRecord(record); });
      }
      break;
  }
  return 0;
}

}  // namespace postrider::embedded_log_internal
