#include "tests/fakes/memory_log_consumer.h"

#include <algorithm>
#include <utility>

namespace postrider {

using memory_log_internal::Partition;
using memory_log_internal::Pass;
using memory_log_internal::RecordPtr;

void MemoryLog::Consumer::StoreCommits() {
  if (!Connected()) return;
  for (PendingCommit& commit : commits_) {
    if (commit.stored) continue;
    commit.stored = true;
    const bool fenced = membership_->fenced() || commit.generation != membership_->generation();
    for (CommitEntry& entry : commit.entries) {
      absl::Status status;
      if (fenced || !membership_->has(entry.tp)) {
        status = absl::AbortedError("memory log: the group has moved on");
      } else if (entry.position.metadata.size() > kCommitMetadataBytesMax) {
        status = absl::InvalidArgumentError("memory log: the metadata is too large");
      } else if (log_.commit_fault == CommitFault::kRefuse) {
        status = absl::UnavailableError("memory log: refused");
      } else {
        log_.groups.group(options_.group).committed[entry.tp] = entry.position;
        if (log_.commit_observer) log_.commit_observer(options_.group, membership_->id(), entry);
        if (log_.commit_fault == CommitFault::kLoseAnswer) {
          status = absl::UnavailableError("memory log: the answer was lost");
        }
      }
      commit.answer.push_back(std::move(status));
    }
    commit.held = log_.commit_fault == CommitFault::kHold;
  }
}

size_t MemoryLog::Consumer::Poll(size_t records_max) {
  wake_.Clear();
  {
    absl::MutexLock lock(&log_.mutex);
    membership_->Polled();
    log_.Expire();
  }
  size_t records = 0;
  while (true) {
    Event event;
    {
      absl::MutexLock lock(&log_.mutex);
      event = NextEvent();
      if (event.kind == Event::Kind::kNone) event = NextRecord(records < records_max);
      if (event.kind == Event::Kind::kNone) {
        // What was left out for want of room is there for the next call.
        if (records >= records_max) wake_.Wake();
        return records;
      }
    }
    if (event.kind == Event::Kind::kRecord) ++records;
    Tell(std::move(event));
  }
}

MemoryLog::Consumer::Event MemoryLog::Consumer::NextEvent() {
  Event event;
  if (told_reachable_ != log_.reachable) {
    told_reachable_ = log_.reachable;
    event.kind = told_reachable_ ? Event::Kind::kReachable : Event::Kind::kUnreachable;
    return event;
  }
  if (!Connected()) return event;
  StoreCommits();
  if (!commits_.empty() && commits_.front().stored && !commits_.front().held) {
    event.kind = Event::Kind::kCommitted;
    event.commit = std::move(commits_.front());
    commits_.pop_front();
    for (const absl::Status& status : event.commit.answer) {
      if (status.ok()) {
        last_acknowledged_issue_ = std::max(last_acknowledged_issue_, event.commit.issued);
      }
    }
    return event;
  }
  event.membership = membership_->Next();
  if (event.membership.kind == GroupMembership::Event::Kind::kNone) return event;
  if (!membership_->reads()) reading_.clear();
  event.kind = Event::Kind::kMembership;
  return event;
}

MemoryLog::Consumer::Event MemoryLog::Consumer::NextRecord(bool records) {
  if (!Connected() || !membership_->reads()) return Event();
  for (size_t i = 0; i < reading_.size(); ++i) {
    if (turn_ >= reading_.size()) turn_ = 0;
    Event event = NextOf(reading_[turn_], records);
    if (event.kind == Event::Kind::kRecord && ++run_ >= kRunMax) {
      run_ = 0;
      ++turn_;
    }
    if (event.kind != Event::Kind::kNone) return event;
    run_ = 0;
    ++turn_;
  }
  return Event();
}

MemoryLog::Consumer::Event MemoryLog::Consumer::NextOf(Reading& reading, bool records) {
  Event event;
  const Partition* partition = log_.FindPartition(reading.tp);
  if (partition == nullptr || reading.out_of_range) return event;
  event.tp = reading.tp;
  if (reading.position < partition->begin || reading.position > partition->end) {
    reading.out_of_range = true;
    event.kind = Event::Kind::kOutOfRange;
    event.offset = partition->begin;
    return event;
  }
  RecordPtr record = partition->Find(reading.position);
  if (record != nullptr) {
    if (!records) return event;
    event.kind = Event::Kind::kRecord;
    reading.position = record->offset + 1;
    event.record = std::move(record);
    return event;
  }
  reading.position = partition->end;
  if (reading.end_told != reading.position) {
    reading.end_told = reading.position;
    event.kind = Event::Kind::kPartitionEnd;
    event.offset = reading.position;
  }
  return event;
}

void MemoryLog::Consumer::TellMembership(GroupMembership::Event&& event) {
  switch (event.kind) {
    case GroupMembership::Event::Kind::kNone:
      return;
    case GroupMembership::Event::Kind::kAssigned:
      return handler_.OnAssigned(std::move(event.assignment));
    case GroupMembership::Event::Kind::kNothingMatches:
      return handler_.OnNothingMatches();
    case GroupMembership::Event::Kind::kRevoked:
      return handler_.OnRevoked();
    case GroupMembership::Event::Kind::kLost:
      return handler_.OnLost();
    case GroupMembership::Event::Kind::kLeft:
      if (event.left != nullptr) std::move(event.left)();
      return;
  }
}

void MemoryLog::Consumer::Tell(Event&& event) {
  switch (event.kind) {
    case Event::Kind::kNone:
      return;
    case Event::Kind::kReachable:
      return handler_.OnReachable(true);
    case Event::Kind::kUnreachable:
      return handler_.OnReachable(false);
    case Event::Kind::kCommitted:
      return std::move(event.commit.done)(std::move(event.commit.answer));
    case Event::Kind::kMembership:
      return TellMembership(std::move(event.membership));
    case Event::Kind::kPartitionEnd:
      return handler_.OnPartitionEnd(event.tp, event.offset);
    case Event::Kind::kOutOfRange:
      return handler_.OnOutOfRange(event.tp, event.offset);
    case Event::Kind::kRecord:
      return Pass(event.tp, *event.record,
                  [this](const LogRecord& record) { handler_.OnRecord(record); });
  }
}

}  // namespace postrider
