#include "tests/fakes/memory_log.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"
#include "tests/fakes/memory_log_consumer.h"
#include "tests/fakes/memory_log_impl.h"
#include "tests/fakes/memory_log_producer.h"
#include "tests/fakes/memory_log_reader.h"

namespace postrider {

using memory_log_internal::Partition;
using memory_log_internal::RecordPtr;
using memory_log_internal::Topic;

void memory_log_internal::Pass(const TopicPartition& tp, const MemoryLog::StoredRecord& stored,
                               const std::function<void(const LogRecord&)>& to) {
  std::vector<RecordHeader> headers;
  for (const auto& [name, value] : stored.headers) headers.push_back({name, value});
  LogRecord record;
  record.topic = tp.topic;
  record.partition = tp.partition;
  record.offset = stored.offset;
  record.timestamp = stored.timestamp;
  record.key = stored.key;
  if (!stored.tombstone) record.value = stored.value;
  record.headers = headers;
  to(record);
}

void MemoryLog::Impl::WakeAll() {
  for (Consumer* consumer : consumers) consumer->Wake();
  for (Reader* reader : readers) reader->Wake();
}

MemoryLog::MemoryLog(const Clock& clock) : impl_(std::make_unique<Impl>(clock)) {}

MemoryLog::~MemoryLog() {
  absl::MutexLock lock(&impl_->mutex);
  POSTRIDER_CHECK(impl_->consumers.empty() && impl_->producers.empty() && impl_->readers.empty());
}

absl::StatusOr<std::unique_ptr<LogProducer>> MemoryLog::OpenProducer(
    EventLoop& loop, const ProducerOptions& options) {
  return std::make_unique<Producer>(*impl_, loop, options);
}

absl::StatusOr<std::unique_ptr<GroupConsumer>> MemoryLog::JoinGroup(EventLoop& loop,
                                                                    const GroupOptions& options,
                                                                    GroupHandler& handler) {
  if (options.group.empty() || options.topics.empty()) {
    return absl::InvalidArgumentError("memory log: a group needs a name and topics");
  }
  return std::make_unique<Consumer>(*impl_, loop, options, handler);
}

absl::StatusOr<std::unique_ptr<PartitionReader>> MemoryLog::OpenReader(EventLoop&,
                                                                       const ReaderOptions&,
                                                                       ReadHandler& handler) {
  return std::make_unique<Reader>(*impl_, handler);
}

absl::Status MemoryLog::EnsureTopics(const std::vector<TopicSpec>& topics,
                                     std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->mutex);
  if (!impl_->reachable) return absl::UnavailableError("memory log: unreachable");
  for (const TopicSpec& spec : topics) {
    if (spec.partitions < 1) {
      return absl::InvalidArgumentError(absl::StrCat("memory log: ", spec.name, ": no partitions"));
    }
    const auto found = impl_->topics.find(spec.name);
    if (found == impl_->topics.end()) {
      Topic topic;
      topic.replication = spec.replication;
      topic.partitions.resize(static_cast<size_t>(spec.partitions));
      impl_->topics.emplace(spec.name, std::move(topic));
      impl_->groups.AddTopic(spec.name, spec.partitions);
      impl_->WakeAll();
    } else if (found->second.partitions.size() != static_cast<size_t>(spec.partitions) ||
               found->second.replication < spec.replication) {
      return absl::FailedPreconditionError(
          absl::StrCat("memory log: ", spec.name, " exists and is different"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> MemoryLog::Partitions(const std::string& topic, std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->mutex);
  if (!impl_->reachable) return absl::UnavailableError("memory log: unreachable");
  const auto found = impl_->topics.find(topic);
  if (found == impl_->topics.end()) {
    return absl::NotFoundError(absl::StrCat("memory log: no topic ", topic));
  }
  return static_cast<int32_t>(found->second.partitions.size());
}

absl::StatusOr<Log::Range> MemoryLog::Offsets(const TopicPartition& tp, std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->mutex);
  if (!impl_->reachable) return absl::UnavailableError("memory log: unreachable");
  const Partition* partition = impl_->FindPartition(tp);
  if (partition == nullptr) {
    return absl::NotFoundError(absl::StrCat("memory log: no partition ", tp.ToString()));
  }
  return Range{partition->begin, partition->end};
}

void MemoryLog::Trim(EventLoop& loop, const TopicPartition& tp, int64_t offset,
                     absl::AnyInvocable<void(absl::Status) &&> done) {
  absl::Status status;
  {
    absl::MutexLock lock(&impl_->mutex);
    Partition* partition = impl_->FindPartition(tp);
    if (!impl_->reachable) {
      status = absl::UnavailableError("memory log: unreachable");
    } else if (partition == nullptr) {
      status = absl::NotFoundError(absl::StrCat("memory log: no partition ", tp.ToString()));
    } else if (offset > partition->end) {
      status = absl::OutOfRangeError("memory log: trim past the end");
    } else {
      impl_->TrimPartition(*partition, offset);
      impl_->WakeAll();
    }
  }
  EventLoop::Callback answer = [done = std::move(done), status]() mutable {
    std::move(done)(std::move(status));
  };
  POSTRIDER_CHECK(loop.Post(std::move(answer)));
}

void MemoryLog::OffsetForTime(EventLoop& loop, const TopicPartition& tp, WallTime time,
                              absl::AnyInvocable<void(absl::StatusOr<int64_t>) &&> done) {
  absl::StatusOr<int64_t> result = absl::UnavailableError("memory log: unreachable");
  {
    absl::MutexLock lock(&impl_->mutex);
    const Partition* partition = impl_->FindPartition(tp);
    if (impl_->reachable && partition == nullptr) {
      result = absl::NotFoundError(absl::StrCat("memory log: no partition ", tp.ToString()));
    } else if (impl_->reachable) {
      const auto found =
          std::find_if(partition->records.begin(), partition->records.end(),
                       [time](const RecordPtr& record) { return record->timestamp >= time; });
      result = found == partition->records.end() ? partition->end : (*found)->offset;
    }
  }
  EventLoop::Callback answer = [done = std::move(done), result]() mutable {
    std::move(done)(std::move(result));
  };
  POSTRIDER_CHECK(loop.Post(std::move(answer)));
}

void MemoryLog::Ends(EventLoop& loop, std::vector<TopicPartition> partitions,
                     absl::AnyInvocable<void(std::vector<absl::optional<int64_t>>) &&> done) {
  std::vector<absl::optional<int64_t>> ends(partitions.size());
  {
    absl::MutexLock lock(&impl_->mutex);
    for (size_t i = 0; i < partitions.size() && impl_->reachable; ++i) {
      const Partition* partition = impl_->FindPartition(partitions[i]);
      if (partition != nullptr) ends[i] = partition->end;
    }
  }
  EventLoop::Callback answer = [done = std::move(done), ends = std::move(ends)]() mutable {
    std::move(done)(std::move(ends));
  };
  POSTRIDER_CHECK(loop.Post(std::move(answer)));
}

absl::StatusOr<Log::GroupState> MemoryLog::DescribeGroup(
    const std::string& group, const std::vector<TopicPartition>& partitions,
    std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->mutex);
  if (!impl_->reachable) return absl::UnavailableError("memory log: unreachable");
  const GroupCoordinator::Group* found = impl_->groups.Find(group);
  GroupState state;
  if (found != nullptr) state.members = static_cast<int>(found->members.size());
  for (const TopicPartition& tp : partitions) {
    AssignedPartition one;
    one.tp = tp;
    if (found != nullptr) {
      const auto committed = found->committed.find(tp);
      if (committed != found->committed.end()) one.committed = committed->second;
    }
    state.partitions.push_back(std::move(one));
  }
  return state;
}

absl::Status MemoryLog::ResetGroup(const std::string& group,
                                   const std::vector<CommitEntry>& entries,
                                   std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->mutex);
  if (!impl_->reachable) return absl::UnavailableError("memory log: unreachable");
  const GroupCoordinator::Group* found = impl_->groups.Find(group);
  if (found != nullptr && !found->members.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("memory log: group ", group, " has members"));
  }
  for (const CommitEntry& entry : entries) {
    if (impl_->FindPartition(entry.tp) == nullptr) {
      return absl::NotFoundError(absl::StrCat("memory log: no partition ", entry.tp.ToString()));
    }
    if (entry.position.offset < 0 || entry.position.metadata.size() > kCommitMetadataBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("memory log: bad position for ", entry.tp.ToString()));
    }
  }
  for (const CommitEntry& entry : entries) {
    impl_->groups.group(group).committed[entry.tp] = entry.position;
  }
  return absl::OkStatus();
}

absl::Status MemoryLog::DeleteTopic(const std::string& topic, std::chrono::milliseconds) {
  {
    absl::MutexLock lock(&impl_->mutex);
    if (!impl_->reachable) return absl::UnavailableError("memory log: unreachable");
  }
  DeleteTopic(topic);
  return absl::OkStatus();
}

absl::Status MemoryLog::FreezeTopic(const std::string& topic, std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->mutex);
  if (!impl_->reachable) return absl::UnavailableError("memory log: unreachable");
  const auto found = impl_->topics.find(topic);
  if (found == impl_->topics.end()) {
    return absl::NotFoundError(absl::StrCat("memory log: no topic ", topic));
  }
  found->second.frozen = true;
  return absl::OkStatus();
}

absl::Status MemoryLog::Ping(std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->reachable ? absl::OkStatus() : absl::UnavailableError("memory log: unreachable");
}

void MemoryLog::MakeTopic(const std::string& name, int32_t partitions) {
  TopicSpec spec;
  spec.name = name;
  spec.partitions = partitions;
  spec.replication = 1;
  POSTRIDER_CHECK(EnsureTopics({spec}, std::chrono::milliseconds(0)).ok());
}

void MemoryLog::DeleteTopic(const std::string& name) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->topics.erase(name);
  impl_->groups.RemoveTopic(name);
  impl_->WakeAll();
}

int64_t MemoryLog::Write(const TopicPartition& tp, absl::string_view key, absl::string_view value,
                         std::vector<std::pair<std::string, std::string>> headers) {
  absl::MutexLock lock(&impl_->mutex);
  Partition* partition = impl_->FindPartition(tp);
  POSTRIDER_CHECK(partition != nullptr);
  const int64_t offset = partition->end;
  impl_->Store(*partition,
               {0, WallTime(), std::string(key), std::string(value), std::move(headers), false});
  impl_->WakeAll();
  return offset;
}

int64_t MemoryLog::WriteTombstone(const TopicPartition& tp, absl::string_view key) {
  absl::MutexLock lock(&impl_->mutex);
  Partition* partition = impl_->FindPartition(tp);
  POSTRIDER_CHECK(partition != nullptr);
  const int64_t offset = partition->end;
  impl_->Store(*partition, {0, WallTime(), std::string(key), std::string(), {}, true});
  impl_->WakeAll();
  return offset;
}

void MemoryLog::Compact(const TopicPartition& tp, Tombstones tombstones) {
  absl::MutexLock lock(&impl_->mutex);
  Partition* partition = impl_->FindPartition(tp);
  POSTRIDER_CHECK(partition != nullptr);
  std::map<std::string, int64_t> last;
  for (const RecordPtr& record : partition->records) last[record->key] = record->offset;
  std::erase_if(partition->records, [&](const RecordPtr& record) {
    const bool dropped = record->tombstone && tombstones == Tombstones::kDrop;
    return dropped || last[record->key] != record->offset;
  });
}

void MemoryLog::SkipOffsets(const TopicPartition& tp, int64_t count) {
  absl::MutexLock lock(&impl_->mutex);
  Partition* partition = impl_->FindPartition(tp);
  POSTRIDER_CHECK(partition != nullptr && count >= 0);
  partition->end += count;
  impl_->WakeAll();
}

void MemoryLog::TrimNow(const TopicPartition& tp, int64_t offset) {
  absl::MutexLock lock(&impl_->mutex);
  Partition* partition = impl_->FindPartition(tp);
  POSTRIDER_CHECK(partition != nullptr && offset <= partition->end);
  impl_->TrimPartition(*partition, offset);
  impl_->WakeAll();
}

std::vector<MemoryLog::StoredRecord> MemoryLog::Records(const TopicPartition& tp) const {
  absl::MutexLock lock(&impl_->mutex);
  std::vector<StoredRecord> records;
  const Partition* partition = impl_->FindPartition(tp);
  if (partition == nullptr) return records;
  for (const RecordPtr& record : partition->records) records.push_back(*record);
  return records;
}

absl::optional<CommittedPosition> MemoryLog::Committed(const std::string& group,
                                                       const TopicPartition& tp) const {
  absl::MutexLock lock(&impl_->mutex);
  const auto& committed = impl_->groups.group(group).committed;
  const auto found = committed.find(tp);
  if (found == committed.end()) return absl::nullopt;
  return found->second;
}

void MemoryLog::ForgetCommits(const std::string& group) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->groups.group(group).committed.clear();
}

void MemoryLog::SetCommitted(const std::string& group, const TopicPartition& tp,
                             CommittedPosition position) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->groups.group(group).committed[tp] = std::move(position);
}

void MemoryLog::SetCommitObserver(CommitObserver observer) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->commit_observer = std::move(observer);
}

std::vector<uint64_t> MemoryLog::Members(const std::string& group) const {
  absl::MutexLock lock(&impl_->mutex);
  std::vector<uint64_t> ids;
  for (const auto& [id, member] : impl_->groups.group(group).members) ids.push_back(id);
  return ids;
}

int64_t MemoryLog::Generation(const std::string& group) const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->groups.group(group).generation;
}

void MemoryLog::SetReachable(bool reachable) {
  absl::MutexLock lock(&impl_->mutex);
  if (reachable && !impl_->reachable) {
    // The coordinator gives everybody a session's time after it came back.
    impl_->groups.RestartTimes();
  }
  impl_->reachable = reachable;
  impl_->WakeAll();
  for (Producer* producer : impl_->producers) producer->Wake();
}

void MemoryLog::SetCommitFault(CommitFault fault) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->commit_fault = fault;
  for (Consumer* consumer : impl_->consumers) {
    consumer->AnswerHeldCommits();
    consumer->Wake();
  }
}

void MemoryLog::HoldAppends(bool hold) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->hold_appends = hold;
  for (Producer* producer : impl_->producers) producer->Wake();
}

size_t MemoryLog::UnansweredAppends() const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->unanswered;
}

void MemoryLog::Expire(const std::string& group, uint64_t member) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->groups.RemoveMember(group, member);
}

void MemoryLog::Isolate(const std::string& group, uint64_t member, bool isolated) {
  absl::MutexLock lock(&impl_->mutex);
  for (Consumer* consumer : impl_->consumers) {
    if (consumer->options().group != group || consumer->membership_->id() != member) continue;
    consumer->isolated_ = isolated;
    if (GroupCoordinator::Member* found = impl_->groups.FindMember(group, member)) {
      found->silent_since = isolated ? impl_->clock.Now() : MonotonicTime::max();
    }
    consumer->Wake();
  }
}

}  // namespace postrider
