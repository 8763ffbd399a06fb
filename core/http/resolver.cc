#include "core/http/resolver.h"

#include <array>
#include <deque>
#include <list>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/base/metrics.h"
#include "core/base/thread_name.h"
#include "core/http/internal/name_lookup.h"

namespace postrider {
namespace {

// What the threads share with the resolver; it outlives the resolver while a lookup hangs.
class State {
 public:
  State(const SystemResolverOptions& options, const Clock& clock, Metrics& metrics)
      : options_(options),
        clock_(clock),
        threads_max_{options.threads, options.threads_for_new, options.threads_for_failed},
        lookups_(metrics.AddCounter("postrider_http_dns_lookups_total",
                                    "Names looked up, by result", {{"result", "found"}})),
        failures_(metrics.AddCounter("postrider_http_dns_lookups_total",
                                     "Names looked up, by result", {{"result", "failed"}})),
        refusals_(metrics.AddCounter("postrider_http_dns_lookups_total",
                                     "Names looked up, by result", {{"result", "queue_full"}})) {}

  void Resolve(const std::string& host, Resolver::Done done) {
    ResolveResult result;
    {
      absl::MutexLock lock(&mutex_);
      const MonotonicTime now = clock_.Now();
      Past past = Past::kNew;
      const auto cached = cache_.find(host);
      if (cached != cache_.end()) {
        past = cached->second.result.addresses.empty() ? Past::kFailed : Past::kFound;
      }
      if (cached != cache_.end() && now < cached->second.result.valid_until) {
        result = cached->second.result;
      } else {
        const auto waiting = waiting_.find(host);
        if (waiting != waiting_.end()) {
          waiting->second.push_back(std::move(done));
          return;
        }
        std::deque<std::string>& queue = queues_[past];
        // Those that were found are no more than the cache has.
        const size_t most = past == Past::kFound ? options_.names_max : options_.lookups_max;
        if (queue.size() < most && !stopped_) {
          waiting_[host].push_back(std::move(done));
          queue.push_back(host);
          return;
        }
        refusals_.Increment();
        result.valid_until = now;
      }
    }
    std::move(done)(std::move(result));
  }

  void Stop() {
    std::vector<Resolver::Done> dropped;
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    for (std::deque<std::string>& queue : queues_) queue.clear();
    for (auto& [host, callers] : waiting_) {
      for (Resolver::Done& caller : callers) dropped.push_back(std::move(caller));
    }
    waiting_.clear();
  }

  // A thread's whole life. Clock and metrics are not touched after Stop().
  void Work() {
    while (true) {
      std::string host;
      int past = kPasts;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &State::HasWork));
        if (stopped_) return;
        past = Next();
        host = std::move(queues_[past].front());
        queues_[past].pop_front();
        ++threads_[past];
      }
      ResolveResult result;
      result.addresses = internal::LookUpName(host, options_);
      std::vector<Resolver::Done> callers;
      {
        absl::MutexLock lock(&mutex_);
        if (stopped_) return;
        --threads_[past];
        Store(host, result);
        const auto waiting = waiting_.find(host);
        callers = std::move(waiting->second);
        waiting_.erase(waiting);
      }
      for (Resolver::Done& caller : callers) std::move(caller)(result);
    }
  }

 private:
  struct Entry {
    ResolveResult result;
    std::list<std::string>::iterator place;
  };

  // What the last answer for a name was; in the order in which they are looked up.
  enum Past : int { kFound, kNew, kFailed };
  static constexpr int kPasts = 3;

  // Whose turn it is; kPasts: nobody's.
  int Next() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    int past = 0;
    while (past < kPasts && (queues_[past].empty() || threads_[past] >= threads_max_[past])) ++past;
    return past;
  }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_ || Next() < kPasts; }

  void Store(const std::string& host, ResolveResult& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool failed = result.addresses.empty();
    (failed ? failures_ : lookups_).Increment();
    result.valid_until = clock_.Now() + (failed ? options_.failure_valid_for : options_.valid_for);
    const auto old = cache_.find(host);
    if (old != cache_.end()) {
      ages_.erase(old->second.place);
      cache_.erase(old);
    }
    while (cache_.size() >= options_.names_max && !ages_.empty()) {
      cache_.erase(ages_.front());
      ages_.pop_front();
    }
    ages_.push_back(host);
    cache_[host] = Entry{result, std::prev(ages_.end())};
  }

  const SystemResolverOptions options_;
  const Clock& clock_;
  const std::array<int, kPasts> threads_max_;
  Counter& lookups_;
  Counter& failures_;
  Counter& refusals_;

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::array<std::deque<std::string>, kPasts> queues_ ABSL_GUARDED_BY(mutex_);
  std::array<int, kPasts> threads_ ABSL_GUARDED_BY(mutex_){};  // at work
  absl::flat_hash_map<std::string, std::vector<Resolver::Done>> waiting_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Entry> cache_ ABSL_GUARDED_BY(mutex_);
  std::list<std::string> ages_ ABSL_GUARDED_BY(mutex_);  // oldest answer first
};

class SystemResolver final : public Resolver {
 public:
  SystemResolver(const SystemResolverOptions& options, const Clock& clock, Metrics& metrics)
      : state_(std::make_shared<State>(options, clock, metrics)) {
    for (int i = 0; i < options.threads; ++i) {
      // Detached, for a lookup may hang for half a minute and nobody shall wait for it.
      std::thread([state = state_] {
        NameThread("resolver");
        state->Work();
      }).detach();
    }
  }
  ~SystemResolver() override { state_->Stop(); }

  void Resolve(const std::string& host, Done done) override {
    state_->Resolve(host, std::move(done));
  }

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace

std::unique_ptr<Resolver> CreateSystemResolver(const SystemResolverOptions& options,
                                               const Clock& clock, Metrics& metrics) {
  return std::make_unique<SystemResolver>(options, clock, metrics);
}

}  // namespace postrider
