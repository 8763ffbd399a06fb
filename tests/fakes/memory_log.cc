#include "tests/fakes/memory_log.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"
#include "core/base/wake_fd.h"
#include "core/stream/group_coordinator.h"
#include "core/stream/group_membership.h"

namespace postrider {
namespace {

using RecordPtr = std::shared_ptr<const MemoryLog::StoredRecord>;

struct Partition {
  int64_t begin = 0;
  int64_t end = 0;
  std::deque<RecordPtr> records;

  // The first record at or above `offset`; null when there is none.
  RecordPtr Find(int64_t offset) const {
    const auto found =
        std::lower_bound(records.begin(), records.end(), offset,
                         [](const RecordPtr& record, int64_t at) { return record->offset < at; });
    return found == records.end() ? nullptr : *found;
  }
};

struct Topic {
  int16_t replication = 1;
  bool frozen = false;
  std::vector<Partition> partitions;
};

void Pass(const TopicPartition& tp, const MemoryLog::StoredRecord& stored,
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

bool SaysNothing(const AppendRecord& record) {
  return record.key.empty() && record.value.empty() && record.headers.empty();
}

}  // namespace

struct MemoryLog::Impl {
  explicit Impl(const Clock& log_clock) : clock(log_clock), groups(log_clock) {}

  Partition* FindPartition(const TopicPartition& tp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto found = topics.find(tp.topic);
    if (found == topics.end() || tp.partition < 0 ||
        static_cast<size_t>(tp.partition) >= found->second.partitions.size()) {
      return nullptr;
    }
    return &found->second.partitions[static_cast<size_t>(tp.partition)];
  }
  void Store(Partition& partition, StoredRecord&& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    record.offset = partition.end++;
    record.timestamp = clock.Wall();
    partition.records.push_back(std::make_shared<const StoredRecord>(std::move(record)));
  }
  void TrimPartition(Partition& partition, int64_t offset) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    partition.begin = std::max(partition.begin, offset);
    while (!partition.records.empty() && partition.records.front()->offset < partition.begin) {
      partition.records.pop_front();
    }
  }

  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Expire() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (reachable) groups.ExpireAll();
  }

  const Clock& clock;
  mutable absl::Mutex mutex;
  std::map<std::string, Topic> topics ABSL_GUARDED_BY(mutex);
  GroupCoordinator groups ABSL_GUARDED_BY(mutex);
  std::set<Consumer*> consumers ABSL_GUARDED_BY(mutex);
  std::set<Producer*> producers ABSL_GUARDED_BY(mutex);
  std::set<Reader*> readers ABSL_GUARDED_BY(mutex);
  bool reachable ABSL_GUARDED_BY(mutex) = true;
  bool hold_appends ABSL_GUARDED_BY(mutex) = false;
  CommitFault commit_fault ABSL_GUARDED_BY(mutex) = CommitFault::kNone;
  CommitObserver commit_observer ABSL_GUARDED_BY(mutex);
};

// ---------------------------------------------------------------------------------------------

class MemoryLog::Producer final : public LogProducer {
 public:
  Producer(Impl& log, EventLoop& loop, const ProducerOptions& options)
      : log_(log), loop_(loop), options_(options) {
    const absl::Status watched =
        loop_.Watch(wake_.get(), kFdReadable, [this](uint32_t) { Poll(); });
    POSTRIDER_CHECK(watched.ok());
    absl::MutexLock lock(&log_.mutex);
    log_.producers.insert(this);
  }
  ~Producer() override {
    loop_.Unwatch(wake_.get());
    {
      absl::MutexLock lock(&log_.mutex);
      log_.producers.erase(this);
    }
    while (!queue_.empty()) {
      Pending pending = std::move(queue_.front());
      queue_.pop_front();
      std::move(pending.done)(absl::AbortedError("memory log: the producer was closed"));
    }
  }

  bool Append(AppendRecord&& record, AppendDone&& done) override {
    const auto bytes = static_cast<int64_t>(record.key.size() + record.value.size());
    if (static_cast<int64_t>(queue_.size()) >= options_.queue_records_max ||
        (!queue_.empty() && queue_bytes_ + bytes > options_.queue_bytes_max)) {
      wants_room_ = true;
      return false;
    }
    queue_bytes_ += bytes;
    queue_.push_back(
        {std::move(record), std::move(done), bytes, false, absl::StatusOr<int64_t>(0)});
    absl::MutexLock lock(&log_.mutex);
    WriteAll();
    wake_.Wake();
    return true;
  }
  void SetRoomCallback(absl::AnyInvocable<void()> room) override { room_ = std::move(room); }
  size_t pending() const override { return queue_.size(); }

  void Poll() override {
    wake_.Clear();
    size_t answered = 0;
    {
      absl::MutexLock lock(&log_.mutex);
      WriteAll();
      if (!log_.reachable || log_.hold_appends) return;
      while (answered < queue_.size() && queue_[answered].written) ++answered;
    }
    // What a callback appends waits for the next call.
    for (; answered > 0; --answered) {
      Pending pending = std::move(queue_.front());
      queue_.pop_front();
      queue_bytes_ -= pending.bytes;
      std::move(pending.done)(std::move(pending.result));
    }
    const bool half_empty = static_cast<int64_t>(queue_.size()) <= options_.queue_records_max / 2 &&
                            queue_bytes_ <= options_.queue_bytes_max / 2;
    if (wants_room_ && half_empty) {
      wants_room_ = false;
      if (room_ != nullptr) room_();
    }
  }
  void Flush() override {}

  void Wake() { wake_.Wake(); }

 private:
  struct Pending {
    AppendRecord record;
    AppendDone done;
    int64_t bytes;
    bool written;
    absl::StatusOr<int64_t> result;
  };

  void WriteAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex) {
    if (!log_.reachable) return;
    bool stored = false;
    for (size_t i = FirstUnwritten(); i < queue_.size(); ++i) {
      Pending& pending = queue_[i];
      pending.written = true;
      Partition* partition = log_.FindPartition({pending.record.topic, pending.record.partition});
      if (partition == nullptr) {
        pending.result = absl::NotFoundError(absl::StrCat(
            "memory log: no partition ", pending.record.topic, "/", pending.record.partition));
      } else if (log_.topics[pending.record.topic].frozen) {
        pending.result = absl::FailedPreconditionError(
            absl::StrCat("memory log: ", pending.record.topic, " is frozen"));
      } else if (static_cast<size_t>(pending.bytes) > kRecordBytesMax) {
        pending.result = absl::InvalidArgumentError("memory log: the record is too large");
      } else if (SaysNothing(pending.record)) {
        pending.result = absl::InvalidArgumentError("memory log: the record says nothing");
      } else {
        pending.result = partition->end;
        log_.Store(*partition,
                   {0, WallTime(), std::move(pending.record.key), std::move(pending.record.value),
                    std::move(pending.record.headers), pending.record.tombstone});
        stored = true;
      }
    }
    if (stored) log_.WakeAll();
  }
  size_t FirstUnwritten() const {
    size_t i = queue_.size();
    while (i > 0 && !queue_[i - 1].written) --i;
    return i;
  }

  Impl& log_;
  EventLoop& loop_;
  const ProducerOptions options_;
  WakeFd wake_;
  std::deque<Pending> queue_;
  int64_t queue_bytes_ = 0;
  bool wants_room_ = false;
  absl::AnyInvocable<void()> room_;
};

// ---------------------------------------------------------------------------------------------

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
  WakeFd wake_;
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

// ---------------------------------------------------------------------------------------------

class MemoryLog::Reader final : public PartitionReader {
 public:
  Reader(Impl& log, ReadHandler& handler) : log_(log), handler_(handler) {
    absl::MutexLock lock(&log_.mutex);
    log_.readers.insert(this);
  }
  ~Reader() override {
    absl::MutexLock lock(&log_.mutex);
    log_.readers.erase(this);
  }

  int wake_fd() const override { return wake_.get(); }
  size_t Poll(size_t records_max) override;
  void Add(const StartPosition& position) override {
    absl::MutexLock lock(&log_.mutex);
    Reading& reading = reading_[position.tp];
    reading = Reading();
    reading.start = position;
    Resolve(reading);
    wake_.Wake();
  }
  void Remove(const TopicPartition& tp) override {
    absl::MutexLock lock(&log_.mutex);
    reading_.erase(tp);
  }
  void Wake() { wake_.Wake(); }

 private:
  struct Reading {
    StartPosition start;
    int64_t position = -1;  // not known before the partition exists
    int64_t end_told = -1;
  };
  struct Event {
    TopicPartition tp;
    RecordPtr record;  // null: the end
    int64_t next = 0;
  };

  const Partition* Resolve(Reading& reading) ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex);
  absl::optional<Event> Next(bool records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex);
  absl::optional<Event> NextOf(const TopicPartition& tp, Reading& reading, bool records)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex);

  Impl& log_;
  ReadHandler& handler_;
  WakeFd wake_;
  std::map<TopicPartition, Reading> reading_;
};

const Partition* MemoryLog::Reader::Resolve(Reading& reading) {
  const Partition* partition = log_.FindPartition(reading.start.tp);
  if (partition == nullptr || reading.position >= 0) return partition;
  switch (reading.start.at) {
    case StartPosition::At::kOffset:
      reading.position = reading.start.offset;
      break;
    case StartPosition::At::kLogStart:
      reading.position = partition->begin;
      break;
    case StartPosition::At::kLogEnd:
      reading.position = partition->end;
      break;
  }
  return partition;
}

absl::optional<MemoryLog::Reader::Event> MemoryLog::Reader::NextOf(const TopicPartition& tp,
                                                                   Reading& reading, bool records) {
  const Partition* partition = Resolve(reading);
  if (partition == nullptr) return absl::nullopt;
  reading.position = std::clamp(reading.position, partition->begin, partition->end);
  RecordPtr record = partition->Find(reading.position);
  if (record != nullptr) {
    if (!records) return absl::nullopt;
    reading.position = record->offset + 1;
    return Event{tp, std::move(record), reading.position};
  }
  reading.position = partition->end;
  if (reading.end_told == reading.position) return absl::nullopt;
  reading.end_told = reading.position;
  return Event{tp, nullptr, reading.position};
}

absl::optional<MemoryLog::Reader::Event> MemoryLog::Reader::Next(bool records) {
  if (!log_.reachable) return absl::nullopt;
  for (auto& [tp, reading] : reading_) {
    absl::optional<Event> event = NextOf(tp, reading, records);
    if (event.has_value()) return event;
  }
  return absl::nullopt;
}

size_t MemoryLog::Reader::Poll(size_t records_max) {
  wake_.Clear();
  size_t records = 0;
  while (true) {
    absl::optional<Event> event;
    {
      absl::MutexLock lock(&log_.mutex);
      event = Next(records < records_max);
    }
    if (!event.has_value()) {
      // What was left out for want of room is there for the next call.
      if (records >= records_max) wake_.Wake();
      return records;
    }
    if (event->record == nullptr) {
      handler_.OnPartitionEnd(event->tp, event->next);
      continue;
    }
    ++records;
    Pass(event->tp, *event->record, [this](const LogRecord& record) { handler_.OnRecord(record); });
  }
}

// ---------------------------------------------------------------------------------------------

void MemoryLog::Impl::WakeAll() {
  for (Consumer* consumer : consumers) consumer->Wake();
  for (Reader* reader : readers) reader->Wake();
}

// ---------------------------------------------------------------------------------------------

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
