#include "core/embedded_log/embedded_log.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/check.h"
#include "core/base/loop_answers.h"
#include "core/base/status_macros.h"
#include "core/base/steady_wait.h"
#include "core/base/wake_fd.h"
#include "core/embedded_log/internal/catalogue.h"
#include "core/embedded_log/internal/core.h"
#include "core/embedded_log/internal/database.h"
#include "core/embedded_log/internal/fetcher.h"
#include "core/embedded_log/internal/member.h"
#include "core/embedded_log/internal/partition_reader.h"
#include "core/embedded_log/internal/positions.h"
#include "core/embedded_log/internal/producer.h"
#include "core/embedded_log/internal/upkeep.h"
#include "core/embedded_log/internal/writer.h"

namespace postrider {

using embedded_log_internal::Core;
using embedded_log_internal::Database;
using embedded_log_internal::DatabaseOptions;
using embedded_log_internal::EmbeddedReader;
using embedded_log_internal::Fetcher;
using embedded_log_internal::Member;
using embedded_log_internal::PartitionPtr;
using embedded_log_internal::Producer;
using embedded_log_internal::TopicPtr;
using embedded_log_internal::Upkeep;
using embedded_log_internal::Writer;
using embedded_log_internal::WriteSet;

namespace {

constexpr size_t kMemoryBytesMin = 8 << 20;
constexpr int kCallsMax = 1'024;

absl::Status NoPartition(const TopicPartition& tp) {
  return absl::NotFoundError(absl::StrCat("embedded log: no partition ", tp.ToString()));
}

// One call of Trim() or OffsetForTime(), counted until its answer has run on the loop that asked.
template <typename Result>
class PendingCall {
 public:
  using Done = absl::AnyInvocable<void(Result) &&>;

  PendingCall(LoopAnswers::Place place, std::shared_ptr<std::atomic<int>> calls, Done done)
      : place_(std::move(place)), calls_(std::move(calls)), done_(std::move(done)) {
    one_too_many_ = calls_->fetch_add(1) >= kCallsMax;
  }
  bool one_too_many() const { return one_too_many_; }
  // Threads: any.
  void Answer(Result result) {
    place_.Give(
        [calls = std::move(calls_), done = std::move(done_), result = std::move(result)]() mutable {
          calls->fetch_sub(1);
          std::move(done)(std::move(result));
        });
  }

 private:
  LoopAnswers::Place place_;
  std::shared_ptr<std::atomic<int>> calls_;
  Done done_;
  bool one_too_many_ = false;
};

// From the loop's own thread, when there is no place in its line.
template <typename Result>
void AnswerSoon(EventLoop& loop, absl::Status why, absl::AnyInvocable<void(Result) &&> done) {
  loop.CallAfter(Duration::zero(), [why = std::move(why), done = std::move(done)]() mutable {
    std::move(done)(std::move(why));
  });
}

absl::Status TooManyCalls() {
  return absl::ResourceExhaustedError("embedded log: too many calls wait");
}

}  // namespace

struct EmbeddedLog::Impl {
  static std::function<std::filesystem::space_info()> SpaceOf(const EmbeddedLogOptions& options) {
    if (options.space != nullptr) return options.space;
    return [directory = options.directory] {
      std::error_code error;
      return std::filesystem::space(directory, error);
    };
  }

  Impl(const EmbeddedLogOptions& options, const Clock& clock, Metrics& metrics)
      // A third for the latest records, which is where readers are.
      : core(clock, metrics, std::max(options.memory_bytes, kMemoryBytesMin) / 3),
        database_bytes(std::max(options.memory_bytes, kMemoryBytesMin) * 2 / 3),
        writer(core, {options.sync_interval, options.retry_interval, options.slow_after,
                      options.reserve_bytes, SpaceOf(options)}),
        upkeep(core, writer,
               {options.upkeep_interval, options.retention.count(), options.retention_bytes}) {}

  // What changes topics or positions from outside is made one at a time; `prepare` runs on the
  // writer's thread and, once the change is on the disk, `apply` too, under the core's mutex.
  absl::Status Change(std::chrono::milliseconds timeout,
                      absl::AnyInvocable<absl::Status(WriteSet&)> prepare,
                      absl::AnyInvocable<void(Core&)> apply) {
    struct Shared {
      absl::Mutex mutex;
      SteadyWait wait;
      bool answered = false;
      absl::Status status;
    };
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const auto left = [deadline] { return deadline - std::chrono::steady_clock::now(); };
    {
      absl::MutexLock lock(&admin_mutex);
      const auto idle = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !admin_busy; };
      if (!admin_wait.For(admin_mutex, left(), idle)) {
        return absl::UnavailableError("embedded log: a change before this one has not ended");
      }
      admin_busy = true;
    }
    const auto shared = std::make_shared<Shared>();
    writer.Submit({std::move(prepare),
                   [this, shared, apply = std::move(apply)](const absl::Status& status) mutable {
                     if (status.ok() && apply != nullptr) {
                       absl::MutexLock lock(&core.mutex);
                       apply(core);
                     }
                     {
                       absl::MutexLock lock(&admin_mutex);
                       admin_busy = false;
                     }
                     admin_wait.Notify();
                     absl::MutexLock lock(&shared->mutex);
                     shared->status = status;
                     shared->answered = true;
                     shared->wait.Notify();
                   }});
    absl::MutexLock lock(&shared->mutex);
    if (!shared->wait.For(shared->mutex, left(), [&shared] { return shared->answered; })) {
      return absl::UnavailableError("embedded log: the change is not on the disk yet");
    }
    return shared->status;
  }

  // A change of topics, and the copy of the entries after it. That one which cannot be written is
  // older than it should be does no harm before there is damage.
  absl::Status ChangeTopics(std::chrono::milliseconds timeout,
                            absl::AnyInvocable<absl::Status(WriteSet&)> prepare,
                            absl::AnyInvocable<void(Core&)> apply) {
    RETURN_IF_ERROR(Change(timeout, std::move(prepare), std::move(apply)));
    embedded_log_internal::KeepEntryCopy(core);
    return absl::OkStatus();
  }

  Core core;
  const size_t database_bytes;
  absl::Mutex admin_mutex;
  SteadyWait admin_wait;
  bool admin_busy ABSL_GUARDED_BY(admin_mutex) = false;
  LoopAnswers answers;
  const std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  Writer writer;
  std::unique_ptr<Fetcher> fetcher;
  Upkeep upkeep;
};

EmbeddedLog::EmbeddedLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<EmbeddedLog>> EmbeddedLog::Open(const EmbeddedLogOptions& options,
                                                               const Clock& clock,
                                                               Metrics& metrics) {
  auto impl = std::make_unique<Impl>(options, clock, metrics);
  DatabaseOptions database;
  database.directory = options.directory;
  database.memory_bytes = impl->database_bytes;
  database.env = options.env;
  database.on_damage = [core = &impl->core](absl::string_view) {
    core->metrics.damage.Increment();
  };
  ASSIGN_OR_RETURN(impl->core.database, Database::Open(database));
  RETURN_IF_ERROR(embedded_log_internal::LoadCatalogue(impl->core, impl->writer));
  embedded_log_internal::KeepEntryCopy(impl->core);
  impl->writer.Start();
  impl->fetcher = std::make_unique<Fetcher>(impl->core);
  if (options.upkeep_interval > std::chrono::milliseconds::zero()) impl->upkeep.Start();
  return std::unique_ptr<EmbeddedLog>(new EmbeddedLog(std::move(impl)));
}

EmbeddedLog::~EmbeddedLog() {
  impl_->writer.Stop();
  impl_->upkeep.Stop();
  impl_->fetcher->Stop();
  // With the positions of groups as they are now.
  embedded_log_internal::KeepEntryCopy(impl_->core);
  absl::MutexLock lock(&impl_->core.mutex);
  POSTRIDER_CHECK(impl_->core.sets.empty() && impl_->core.producers == 0);
}

absl::StatusOr<std::unique_ptr<LogProducer>> EmbeddedLog::OpenProducer(
    EventLoop& loop, const ProducerOptions& options) {
  auto producer = std::make_unique<Producer>(impl_->core, impl_->writer, loop, options);
  RETURN_IF_ERROR(producer->Start());
  return std::unique_ptr<LogProducer>(std::move(producer));
}

absl::StatusOr<std::unique_ptr<GroupConsumer>> EmbeddedLog::JoinGroup(EventLoop& loop,
                                                                      const GroupOptions& options,
                                                                      GroupHandler& handler) {
  if (options.group.empty() || options.topics.empty() ||
      options.group.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("embedded log: a group needs a name and topics");
  }
  ASSIGN_OR_RETURN(WakeFd wake, WakeFd::Create());
  return std::make_unique<Member>(impl_->core, impl_->writer, *impl_->fetcher, loop,
                                  std::move(wake), options, handler);
}

absl::StatusOr<std::unique_ptr<PartitionReader>> EmbeddedLog::OpenReader(
    EventLoop&, const ReaderOptions& options, ReadHandler& handler) {
  ASSIGN_OR_RETURN(WakeFd wake, WakeFd::Create());
  return std::make_unique<EmbeddedReader>(impl_->core, *impl_->fetcher, std::move(wake), options,
                                          handler);
}

absl::Status EmbeddedLog::EnsureTopics(const std::vector<TopicSpec>& topics,
                                       std::chrono::milliseconds timeout) {
  std::vector<TopicSpec> missing;
  {
    absl::MutexLock lock(&impl_->core.mutex);
    for (const TopicSpec& spec : topics) {
      RETURN_IF_ERROR(embedded_log_internal::CheckTopic(spec));
      const auto found = impl_->core.topics.find(spec.name);
      if (found == impl_->core.topics.end()) {
        missing.push_back(spec);
      } else if (found->second->partitions.size() != static_cast<size_t>(spec.partitions)) {
        return absl::FailedPreconditionError(
            absl::StrCat("embedded log: ", spec.name, " exists with ",
                         found->second->partitions.size(), " partitions, not ", spec.partitions));
      }
    }
  }
  if (missing.empty()) return absl::OkStatus();
  auto made = std::make_shared<std::vector<TopicPtr>>();
  return impl_->ChangeTopics(
      timeout,
      [impl = impl_.get(), missing, made](WriteSet& set) {
        return embedded_log_internal::MakeTopics(impl->core, impl->writer.topics(), missing, *made,
                                                 set);
      },
      [impl = impl_.get(), made](Core& core) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        for (const TopicPtr& topic : *made) {
          impl->writer.topics()[topic->name] = topic;
          core.AddTopic(topic);
        }
      });
}

absl::StatusOr<int32_t> EmbeddedLog::Partitions(const std::string& topic,
                                                std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->core.mutex);
  const auto found = impl_->core.topics.find(topic);
  if (found == impl_->core.topics.end()) {
    return absl::NotFoundError(absl::StrCat("embedded log: no topic ", topic));
  }
  return static_cast<int32_t>(found->second->partitions.size());
}

absl::StatusOr<Log::Range> EmbeddedLog::Offsets(const TopicPartition& tp,
                                                std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->core.mutex);
  const PartitionPtr partition = impl_->core.FindPartition(tp);
  if (partition == nullptr) return NoPartition(tp);
  return Range{partition->begin, partition->end};
}

void EmbeddedLog::Trim(EventLoop& loop, const TopicPartition& tp, int64_t offset,
                       absl::AnyInvocable<void(absl::Status) &&> done) {
  PartitionPtr partition;
  {
    absl::MutexLock lock(&impl_->core.mutex);
    partition = impl_->core.FindPartition(tp);
  }
  absl::StatusOr<LoopAnswers::Place> place = impl_->answers.Expect(loop);
  if (!place.ok()) return AnswerSoon<absl::Status>(loop, place.status(), std::move(done));
  PendingCall<absl::Status> call(*std::move(place), impl_->calls, std::move(done));
  if (partition == nullptr) return call.Answer(NoPartition(tp));
  if (call.one_too_many()) return call.Answer(TooManyCalls());
  impl_->writer.Submit({[impl = impl_.get(), partition, offset](WriteSet& set) {
                          return embedded_log_internal::PrepareTrim(impl->core, partition, offset,
                                                                    set);
                        },
                        [impl = impl_.get(), partition, offset,
                         call = std::move(call)](const absl::Status& status) mutable {
                          if (status.ok()) {
                            absl::MutexLock lock(&impl->core.mutex);
                            impl->core.SetBegin(*partition, offset);
                          }
                          call.Answer(status);
                        }});
}

void EmbeddedLog::OffsetForTime(EventLoop& loop, const TopicPartition& tp, WallTime time,
                                absl::AnyInvocable<void(absl::StatusOr<int64_t>) &&> done) {
  PartitionPtr partition;
  {
    absl::MutexLock lock(&impl_->core.mutex);
    partition = impl_->core.FindPartition(tp);
  }
  absl::StatusOr<LoopAnswers::Place> place = impl_->answers.Expect(loop);
  if (!place.ok())
    return AnswerSoon<absl::StatusOr<int64_t>>(loop, place.status(), std::move(done));
  PendingCall<absl::StatusOr<int64_t>> call(*std::move(place), impl_->calls, std::move(done));
  if (partition == nullptr) return call.Answer(NoPartition(tp));
  if (call.one_too_many()) return call.Answer(TooManyCalls());
  impl_->fetcher->Call([impl = impl_.get(), partition, time, call = std::move(call)]() mutable {
    call.Answer(impl->fetcher->OffsetForTime(partition, time));
  });
}

void EmbeddedLog::Ends(EventLoop& loop, std::vector<TopicPartition> partitions,
                       absl::AnyInvocable<void(std::vector<absl::optional<int64_t>>) &&> done) {
  std::vector<absl::optional<int64_t>> ends(partitions.size());
  {
    absl::MutexLock lock(&impl_->core.mutex);
    for (size_t i = 0; i < partitions.size(); ++i) {
      const PartitionPtr partition = impl_->core.FindPartition(partitions[i]);
      if (partition != nullptr) ends[i] = partition->end;
    }
  }
  loop.CallAfter(Duration::zero(), [ends = std::move(ends), done = std::move(done)]() mutable {
    std::move(done)(std::move(ends));
  });
}

absl::StatusOr<Log::GroupState> EmbeddedLog::DescribeGroup(
    const std::string& group, const std::vector<TopicPartition>& partitions,
    std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->core.mutex);
  const auto* found = impl_->core.groups.Find(group);
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

absl::Status EmbeddedLog::ResetGroup(const std::string& group,
                                     const std::vector<CommitEntry>& entries,
                                     std::chrono::milliseconds timeout) {
  if (group.empty() || group.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("embedded log: a group needs a name");
  }
  return impl_->Change(
      timeout,
      [impl = impl_.get(), group, entries](WriteSet& set) {
        absl::MutexLock lock(&impl->core.mutex);
        auto& mine = impl->core.groups.group(group);
        if (!mine.members.empty()) {
          return absl::FailedPreconditionError(
              absl::StrCat("embedded log: group ", group, " has members"));
        }
        for (const CommitEntry& entry : entries) {
          if (impl->core.FindPartition(entry.tp) == nullptr) return NoPartition(entry.tp);
          RETURN_IF_ERROR(embedded_log_internal::CheckPosition(entry.position));
        }
        // At once, as a member's: whoever joins from here on is given them.
        for (const CommitEntry& entry : entries) mine.committed[entry.tp] = entry.position;
        return embedded_log_internal::WritePositions(group, entries)(set);
      },
      nullptr);
}

absl::Status EmbeddedLog::DeleteTopic(const std::string& topic, std::chrono::milliseconds timeout) {
  return impl_->ChangeTopics(
      timeout,
      [impl = impl_.get(), topic](WriteSet& set) {
        impl->writer.topics().erase(topic);
        absl::MutexLock lock(&impl->core.mutex);
        embedded_log_internal::RemoveTopicEntries(impl->core, topic, set);
        return absl::OkStatus();
      },
      [topic](Core& core) ABSL_NO_THREAD_SAFETY_ANALYSIS { core.RemoveTopic(topic); });
}

absl::Status EmbeddedLog::FreezeTopic(const std::string& topic, std::chrono::milliseconds timeout) {
  return impl_->ChangeTopics(
      timeout,
      [impl = impl_.get(), topic](WriteSet& set) {
        const auto found = impl->writer.topics().find(topic);
        if (found == impl->writer.topics().end()) {
          return absl::NotFoundError(absl::StrCat("embedded log: no topic ", topic));
        }
        absl::MutexLock lock(&impl->core.mutex);
        found->second->frozen = true;
        set.PutEntry(embedded_log_internal::TopicKey(topic),
                     embedded_log_internal::EncodeTopic(*found->second));
        return absl::OkStatus();
      },
      nullptr);
}

absl::Status EmbeddedLog::Ping(std::chrono::milliseconds) {
  absl::MutexLock lock(&impl_->core.mutex);
  return impl_->core.writable;
}

std::vector<EmbeddedLog::TopicState> EmbeddedLog::Topics() const {
  absl::MutexLock lock(&impl_->core.mutex);
  std::vector<TopicState> topics;
  for (const auto& [name, topic] : impl_->core.topics) {
    topics.push_back({name, static_cast<int32_t>(topic->partitions.size()),
                      WallTimeFromMillis(topic->created_ms), topic->frozen, topic->settings});
  }
  return topics;
}

std::vector<std::string> EmbeddedLog::Groups() const {
  absl::MutexLock lock(&impl_->core.mutex);
  return impl_->core.groups.Names();
}

void EmbeddedLog::RunUpkeep() { impl_->upkeep.Round(Upkeep::Urgency::kAlways); }

}  // namespace postrider
