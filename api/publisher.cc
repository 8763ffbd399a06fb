#include "api/publisher.h"

#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/thread_name.h"
#include "core/postgres/transaction.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

constexpr size_t kTopicNameMax = 249;
constexpr size_t kTypesKnownMax = 10'000;
constexpr std::chrono::seconds kAskTimeout{5};
// An append that takes so long has the log asked whether it can be written at all.
constexpr std::chrono::milliseconds kAppendSlow{250};
constexpr std::chrono::seconds kPingTimeout{3};

using TopicDone = absl::AnyInvocable<void(absl::StatusOr<int32_t>) &&>;
using TypesDone = absl::AnyInvocable<void(absl::StatusOr<std::vector<std::string>>) &&>;

// Asks the log about one topic, making it when it may. Blocks.
absl::StatusOr<int32_t> AskPartitions(Log& log, const PublishOptions& options,
                                      const std::string& topic) {
  absl::StatusOr<int32_t> count = log.Partitions(topic, kAskTimeout);
  if (!absl::IsNotFound(count.status()) || !options.create_topics) return count;
  TopicSpec spec;
  spec.name = topic;
  spec.partitions = options.partitions;
  spec.replication = options.replication;
  const absl::Status made = log.EnsureTopics({spec}, kAskTimeout);
  // Somebody else may have made it meanwhile, in another shape.
  if (!made.ok() && !absl::IsFailedPrecondition(made)) return made;
  return log.Partitions(topic, kAskTimeout);
}

// Looks types up one after another.
struct TypeSearch : std::enable_shared_from_this<TypeSearch> {
  std::vector<std::string> types;
  size_t next = 0;
  std::vector<std::string> missing;
  absl::optional<Transaction> tx;
  absl::AnyInvocable<void(const std::string&)> found;
  TypesDone done;

  void Step() {
    if (next == types.size()) return std::move(done)(std::move(missing));
    subscriptions::GetEventType(
        *tx, types[next],
        [self = shared_from_this()](absl::StatusOr<subscriptions::EventType> type) {
          if (type.ok()) {
            self->found(self->types[self->next]);
          } else if (absl::IsNotFound(type.status())) {
            self->missing.push_back(self->types[self->next]);
          } else {
            return std::move(self->done)(type.status());
          }
          ++self->next;
          self->Step();
        });
  }
};

}  // namespace

struct Publisher::Impl {
  Impl(EventLoop& event_loop, Log& the_log, Pool& the_pool, PublishOptions publish_options)
      : loop(event_loop), log(the_log), pool(the_pool), options(std::move(publish_options)) {}

  struct KnownTopic {
    int32_t partitions = 0;
    MonotonicTime until;
  };

  // An append that waits for its answer; null: it has it.
  struct Pending {
    std::shared_ptr<LogProducer::AppendDone> done;
    MonotonicTime since;
  };

  void Ask();
  void Ping();
  void Answer(const std::string& topic, absl::StatusOr<int32_t> count);
  void Watch();
  void LogAnswered(const absl::Status& status);

  EventLoop& loop;
  Log& log;
  Pool& pool;
  const PublishOptions options;
  std::unique_ptr<LogProducer> producer;
  std::unique_ptr<LogProducer> lone_producer;  // of Batches::kOfOne
  // The loop's thread only.
  absl::flat_hash_map<std::string, MonotonicTime> types;
  absl::flat_hash_map<std::string, KnownTopic> topics;
  absl::flat_hash_map<std::string, std::vector<TopicDone>> waiting;
  std::map<uint64_t, Pending> appends;  // in their order
  uint64_t next_append = 0;
  absl::Status refusing;  // why the log takes nothing now
  TimerId watch = 0;      // 0: nobody waits

  // Answers that are posted when this is false find nobody.
  const std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  absl::Mutex mutex;
  std::deque<std::string> questions ABSL_GUARDED_BY(mutex);
  bool ping ABSL_GUARDED_BY(mutex) = false;  // wanted
  bool closed ABSL_GUARDED_BY(mutex) = false;
  std::thread asker;
};

// Asks the log again and again, while appends take long or it takes none.
void Publisher::Impl::Watch() {
  if (watch != 0 || (appends.empty() && refusing.ok())) return;
  watch = loop.CallAfter(kAppendSlow, [this] {
    watch = 0;
    const bool slow =
        !appends.empty() && loop.clock().Now() - appends.begin()->second.since >= kAppendSlow;
    if (slow || !refusing.ok()) {
      absl::MutexLock lock(&mutex);
      ping = true;
    }
    Watch();
  });
}

void Publisher::Impl::Ping() {
  EventLoop::Callback answer = [this, alive = alive, status = log.Ping(kPingTimeout)] {
    if (*alive) LogAnswered(status);
  };
  // The loop is full: it is asked again.
  if (!loop.Post(std::move(answer))) answer = nullptr;
}

// Those who wait are not kept until their deadline for a log that cannot be written. What they
// appended may be written yet.
void Publisher::Impl::LogAnswered(const absl::Status& status) {
  refusing = status.ok() ? absl::OkStatus() : absl::UnavailableError(status.message());
  if (refusing.ok()) return;
  std::map<uint64_t, Pending> refused;
  refused.swap(appends);
  for (auto& [number, pending] : refused) {
    // The producer keeps it too, and still calls it.
    LogProducer::AppendDone done = std::exchange(*pending.done, nullptr);
    std::move(done)(refusing);
  }
}

void Publisher::Impl::Ask() {
  for (;;) {
    std::string topic;
    bool wanted = false;  // a ping
    {
      absl::MutexLock lock(&mutex);
      mutex.Await(absl::Condition(
          +[](Impl* impl) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return impl->closed || impl->ping || !impl->questions.empty();
          },
          this));
      if (closed) return;
      wanted = std::exchange(ping, false);
      if (!wanted) {
        topic = std::move(questions.front());
        questions.pop_front();
      }
    }
    if (wanted) {
      Ping();
      continue;
    }
    absl::StatusOr<int32_t> count = AskPartitions(log, options, topic);
    EventLoop::Callback answer = [this, alive = alive, topic, count = std::move(count)]() mutable {
      if (*alive) Answer(topic, std::move(count));
    };
    // The loop is full: those who wait have a deadline, and the next question tries again.
    if (!loop.Post(std::move(answer))) answer = nullptr;
  }
}

void Publisher::Impl::Answer(const std::string& topic, absl::StatusOr<int32_t> count) {
  if (count.ok()) topics[topic] = {*count, loop.clock().Now() + kTopicBelievedFor};
  std::vector<TopicDone> who = std::move(waiting[topic]);
  waiting.erase(topic);
  for (TopicDone& done : who) std::move(done)(count);
}

Publisher::Publisher(EventLoop& loop, Log& log, Pool& pool, PublishOptions options)
    : impl_(std::make_unique<Impl>(loop, log, pool, std::move(options))) {
  impl_->asker = std::thread([impl = impl_.get()] {
    NameThread("api-topics");
    impl->Ask();
  });
}

Publisher::~Publisher() { Close(); }

void Publisher::Close() {
  if (!*impl_->alive) return;
  *impl_->alive = false;
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->closed = true;
  }
  impl_->asker.join();
  impl_->loop.CancelTimer(impl_->watch);
  impl_->producer.reset();
  impl_->lone_producer.reset();
  absl::flat_hash_map<std::string, std::vector<TopicDone>> waiting;
  waiting.swap(impl_->waiting);
  for (auto& [topic, who] : waiting) {
    for (TopicDone& done : who) std::move(done)(absl::UnavailableError("api: closed"));
  }
}

const PublishOptions& Publisher::options() const { return impl_->options; }

absl::StatusOr<std::string> Publisher::TopicOf(absl::string_view type) const {
  std::string topic = absl::StrCat(impl_->options.topic_prefix, type);
  if (absl::StartsWith(topic, impl_->options.own_prefix)) {
    return absl::InvalidArgumentError("names a topic of Postrider's own");
  }
  if (topic.size() > kTopicNameMax || topic == "." || topic == "..") {
    return absl::InvalidArgumentError("makes no name that a topic can have");
  }
  return topic;
}

void Publisher::FindUnregistered(std::vector<std::string> types, TypesDone done) {
  auto search = std::make_shared<TypeSearch>();
  const MonotonicTime now = impl_->loop.clock().Now();
  for (std::string& type : types) {
    const auto known = impl_->types.find(type);
    if (known == impl_->types.end() || known->second <= now) {
      search->types.push_back(std::move(type));
    }
  }
  if (search->types.empty()) return std::move(done)(std::vector<std::string>());
  search->found = [impl = impl_.get(), until = now + kTypeBelievedFor](const std::string& type) {
    if (impl->types.size() >= kTypesKnownMax) impl->types.clear();
    impl->types[type] = until;
  };
  search->done = std::move(done);
  TransactionOptions options;
  options.access = TransactionOptions::Access::kReadOnly;
  Transaction::Begin(impl_->pool, options, [search](absl::StatusOr<Transaction> begun) {
    if (!begun.ok()) {
      return std::move(search->done)(absl::UnavailableError(begun.status().message()));
    }
    search->tx.emplace(*std::move(begun));
    search->Step();
  });
}

void Publisher::FindPartitions(const std::string& topic, TopicDone done) {
  const auto known = impl_->topics.find(topic);
  if (known != impl_->topics.end() && impl_->loop.clock().Now() < known->second.until) {
    return std::move(done)(known->second.partitions);
  }
  if (!*impl_->alive) return std::move(done)(absl::UnavailableError("api: closed"));
  if (!impl_->refusing.ok()) return std::move(done)(impl_->refusing);
  if (impl_->waiting.size() >= kTopicsAskedMax && !impl_->waiting.contains(topic)) {
    return std::move(done)(absl::ResourceExhaustedError("api: too many topics are asked for"));
  }
  impl_->waiting[topic].push_back(std::move(done));
  // Asked again even when somebody waits already: an answer may have found the loop full.
  absl::MutexLock lock(&impl_->mutex);
  if (impl_->questions.size() < kTopicsAskedMax) impl_->questions.push_back(topic);
}

absl::Status Publisher::Append(AppendRecord record, ProducerOptions::Batches batches,
                               LogProducer::AppendDone done) {
  if (!*impl_->alive) return absl::UnavailableError("api: closed");
  if (!impl_->refusing.ok()) return impl_->refusing;
  const bool shared = batches == ProducerOptions::Batches::kShared;
  std::unique_ptr<LogProducer>& producer = shared ? impl_->producer : impl_->lone_producer;
  if (producer == nullptr) {
    ProducerOptions options = impl_->options.producer;
    options.batches = batches;
    if (!shared) options.linger = {};
    absl::StatusOr<std::unique_ptr<LogProducer>> opened =
        impl_->log.OpenProducer(impl_->loop, options);
    if (!opened.ok()) return absl::UnavailableError(opened.status().message());
    producer = *std::move(opened);
  }
  const uint64_t number = impl_->next_append++;
  auto kept = std::make_shared<LogProducer::AppendDone>(std::move(done));
  const std::string topic = record.topic;
  LogProducer::AppendDone answer = [impl = impl_.get(), alive = impl_->alive, topic, number,
                                    kept](absl::StatusOr<int64_t> offset) {
    if (*alive) {
      // The topic may have been made anew with other partitions.
      if (!offset.ok()) impl->topics.erase(topic);
      // It was answered when the log took nothing.
      if (impl->appends.erase(number) == 0) return;
    }
    if (LogProducer::AppendDone mine = std::exchange(*kept, nullptr); mine != nullptr) {
      std::move(mine)(std::move(offset));
    }
  };
  if (!producer->Append(std::move(record), std::move(answer))) {
    return absl::ResourceExhaustedError("api: the producer's queue is full");
  }
  impl_->appends.emplace(number, Impl::Pending{std::move(kept), impl_->loop.clock().Now()});
  impl_->Watch();
  return absl::OkStatus();
}

}  // namespace postrider::api
