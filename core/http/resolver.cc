#include "core/http/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <list>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/base/metrics.h"

namespace postrider {
namespace {

std::vector<IpAddress> LookUp(const std::string& host, size_t addresses_max) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  std::vector<IpAddress> addresses;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr && addresses.size() < addresses_max;
       entry = entry->ai_next) {
    const absl::optional<IpAddress> address =
        IpAddress::FromSockaddr(entry->ai_addr, entry->ai_addrlen);
    if (address && std::find(addresses.begin(), addresses.end(), *address) == addresses.end()) {
      addresses.push_back(*address);
    }
  }
  return addresses;
}

// What the threads share with the resolver; it outlives the resolver while a lookup hangs.
class State {
 public:
  State(const SystemResolverOptions& options, const Clock& clock, Metrics& metrics)
      : options_(options),
        clock_(clock),
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
      const auto cached = cache_.find(host);
      if (cached != cache_.end() && now < cached->second.result.valid_until) {
        result = cached->second.result;
      } else {
        const auto waiting = waiting_.find(host);
        if (waiting != waiting_.end()) {
          waiting->second.push_back(std::move(done));
          return;
        }
        if (waiting_.size() < options_.lookups_max && !stopped_) {
          waiting_[host].push_back(std::move(done));
          queue_.push_back(host);
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
    queue_.clear();
    for (auto& [host, callers] : waiting_) {
      for (Resolver::Done& caller : callers) dropped.push_back(std::move(caller));
    }
    waiting_.clear();
  }

  // A thread's whole life. Clock and metrics are not touched after Stop().
  void Work() {
    while (true) {
      std::string host;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &State::HasWork));
        if (stopped_) return;
        host = std::move(queue_.front());
        queue_.pop_front();
      }
      ResolveResult result;
      result.addresses = LookUp(host, options_.addresses_max);
      std::vector<Resolver::Done> callers;
      {
        absl::MutexLock lock(&mutex_);
        if (stopped_) return;
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

  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_ || !queue_.empty(); }

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
  Counter& lookups_;
  Counter& failures_;
  Counter& refusals_;

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mutex_);
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
      std::thread([state = state_] { state->Work(); }).detach();
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
