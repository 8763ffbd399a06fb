#include "core/http/own_addresses.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "core/base/event_loop.h"
#include "core/base/log.h"
#include "core/base/thread_name.h"

namespace postrider {

// Outlives the object as long as a lookup hangs.
struct OwnAddresses::Shared {
  absl::Mutex mutex;
  EventLoop* loop ABSL_GUARDED_BY(mutex) = nullptr;  // null: closed
  absl::Mutex more_mutex;
  MoreHosts more ABSL_GUARDED_BY(more_mutex);  // null: closed, or there are none
  // The loop's thread only; null: closed.
  Found found;

  std::vector<HostAndPort> AskForMore() {
    absl::MutexLock lock(&more_mutex);
    return more == nullptr ? std::vector<HostAndPort>() : more();
  }
};

namespace {

using Places = OwnAddresses::Places;

// What the thread knows.
class Names {
 public:
  Names(std::vector<HostAndPort> hosts, OwnAddresses::Lookup lookup) : lookup_(std::move(lookup)) {
    Add(std::move(hosts));
  }

  void Add(std::vector<HostAndPort> hosts) {
    for (HostAndPort& host : hosts) {
      if (hosts_.size() >= OwnAddresses::kHostsMax) return;
      if (std::find(hosts_.begin(), hosts_.end(), host) == hosts_.end()) {
        hosts_.push_back(std::move(host));
      }
    }
  }

  // Looks all names up, and calls `tell`, which says whether to go on, after each of them.
  template <typename Tell>
  bool LookUp(Tell&& tell) {
    absl::flat_hash_set<std::string> looked_up;  // a host with two ports: once
    if (!tell("")) return false;
    for (const HostAndPort& place : hosts_) {
      if (place.port == 0 || IpAddress::Parse(place.host)) continue;
      if (!looked_up.insert(place.host).second) continue;
      const bool found = Ask(place.host);
      if (!tell(found ? "" : place.host)) return false;
    }
    return true;
  }

  Places places() const {
    Places places;
    for (const HostAndPort& place : hosts_) {
      if (place.port == 0) continue;
      if (const absl::optional<IpAddress> literal = IpAddress::Parse(place.host)) {
        places.emplace_back(*literal, place.port);
        continue;
      }
      const auto known = known_.find(place.host);
      if (known == known_.end()) continue;
      for (const IpAddress& address : known->second) places.emplace_back(address, place.port);
    }
    return places;
  }
  OwnAddresses::Known known() const {
    for (const HostAndPort& place : hosts_) {
      if (place.port == 0 || IpAddress::Parse(place.host)) continue;
      const auto known = known_.find(place.host);
      if (known == known_.end() || known->second.empty()) return OwnAddresses::Known::kSome;
    }
    return OwnAddresses::Known::kAll;
  }

 private:
  // False: it has no address now.
  bool Ask(const std::string& host) {
    const std::vector<IpAddress> answer = lookup_(host);
    std::vector<IpAddress>& known = known_[host];
    for (const IpAddress& address : answer) {
      if (std::find(known.begin(), known.end(), address) != known.end()) continue;
      if (known.size() >= OwnAddresses::kAddressesMax) known.erase(known.begin());
      known.push_back(address);
    }
    return !answer.empty();
  }

  std::vector<HostAndPort> hosts_;
  const OwnAddresses::Lookup lookup_;
  std::map<std::string, std::vector<IpAddress>> known_;
};

}  // namespace

OwnAddresses::OwnAddresses(EventLoop& loop, std::vector<HostAndPort> hosts, MoreHosts more,
                           Lookup lookup, std::chrono::milliseconds interval, Found found)
    : shared_(std::make_shared<Shared>()) {
  shared_->found = std::move(found);
  {
    absl::MutexLock lock(&shared_->more_mutex);
    shared_->more = std::move(more);
  }
  {
    absl::MutexLock lock(&shared_->mutex);
    shared_->loop = &loop;
  }
  std::thread([shared = shared_, names = Names(std::move(hosts), std::move(lookup)),
               interval]() mutable {
    NameThread("own-names");
    absl::optional<std::pair<Places, Known>> told;
    // The loop is open, and so are the process' logs: under its lock.
    const auto tell = [&shared, &names, &told](absl::string_view missing) {
      std::pair<Places, Known> now{names.places(), names.known()};
      absl::MutexLock lock(&shared->mutex);
      if (shared->loop == nullptr) return false;
      if (!missing.empty()) {
        POSTRIDER_LOG(kWarn, "a server of our own has no address now", {"host", missing});
      }
      const bool nothing_yet = now.first.empty() && now.second == Known::kSome;
      if (told == now || nothing_yet) return true;
      EventLoop::Callback post = [shared, now]() mutable {
        if (shared->found != nullptr) shared->found(std::move(now.first), now.second);
      };
      // A full loop is told the next time.
      if (shared->loop->Post(std::move(post))) told = std::move(now);
      return true;
    };
    for (int round = 0;; ++round) {
      // What options name is not kept back by brokers that do not answer.
      if (round == 0 && !names.LookUp(tell)) return;
      names.Add(shared->AskForMore());
      if (!names.LookUp(tell)) return;
      const bool eager = round < kEagerRounds && names.known() == Known::kSome;
      const auto closed = [](Shared* one)
                              ABSL_NO_THREAD_SAFETY_ANALYSIS { return one->loop == nullptr; };
      absl::MutexLock lock(&shared->mutex);
      if (shared->mutex.AwaitWithTimeout(
              absl::Condition(+closed, shared.get()),
              absl::FromChrono(
                  eager ? std::min<std::chrono::milliseconds>(interval, std::chrono::seconds(1))
                        : interval))) {
        return;
      }
    }
  }).detach();
}

OwnAddresses::~OwnAddresses() {
  shared_->found = nullptr;
  {
    absl::MutexLock lock(&shared_->more_mutex);
    shared_->more = nullptr;
  }
  absl::MutexLock lock(&shared_->mutex);
  shared_->loop = nullptr;
}

OwnAddresses::Lookup OwnAddresses::SystemLookup() {
  return [](const std::string& host) {
    std::vector<IpAddress> addresses;
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return addresses;
    for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
      const absl::optional<IpAddress> address =
          IpAddress::FromSockaddr(one->ai_addr, one->ai_addrlen);
      if (address) addresses.push_back(*address);
    }
    ::freeaddrinfo(list);
    return addresses;
  };
}

}  // namespace postrider
