#include "core/http/own_addresses.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
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
  absl::AnyInvocable<void(Places)> found;

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

  Places LookUp() {
    Places places;
    std::map<std::string, std::vector<IpAddress>> looked_up;  // a host with two ports: once
    for (const HostAndPort& place : hosts_) {
      if (place.port == 0) continue;
      if (const absl::optional<IpAddress> literal = IpAddress::Parse(place.host)) {
        places.emplace_back(*literal, place.port);
        continue;
      }
      auto [now, is_new] = looked_up.try_emplace(place.host);
      if (is_new) now->second = Known(place.host);
      for (const IpAddress& address : now->second) places.emplace_back(address, place.port);
    }
    return places;
  }

 private:
  std::vector<IpAddress> Known(const std::string& host) {
    std::vector<IpAddress>& known = known_[host];
    const std::vector<IpAddress> answer = lookup_(host);
    if (answer.empty()) {
      POSTRIDER_LOG(kWarn, "a server of our own has no address", {"host", host},
                    {"known", known.size()});
    }
    for (const IpAddress& address : answer) {
      if (std::find(known.begin(), known.end(), address) != known.end()) continue;
      if (known.size() >= OwnAddresses::kAddressesMax) known.erase(known.begin());
      known.push_back(address);
    }
    return known;
  }

  std::vector<HostAndPort> hosts_;
  const OwnAddresses::Lookup lookup_;
  std::map<std::string, std::vector<IpAddress>> known_;
};

}  // namespace

OwnAddresses::OwnAddresses(EventLoop& loop, std::vector<HostAndPort> hosts, MoreHosts more,
                           Lookup lookup, std::chrono::milliseconds interval,
                           absl::AnyInvocable<void(Places)> found)
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
    absl::optional<Places> told;
    while (true) {
      names.Add(shared->AskForMore());
      Places places = names.LookUp();
      absl::MutexLock lock(&shared->mutex);
      if (shared->loop == nullptr) return;
      if (told != places) {
        EventLoop::Callback tell = [shared, places]() mutable {
          if (shared->found != nullptr) shared->found(std::move(places));
        };
        // A full loop is told the next time.
        if (shared->loop->Post(std::move(tell))) told = std::move(places);
      }
      const auto closed = [](Shared* one)
                              ABSL_NO_THREAD_SAFETY_ANALYSIS { return one->loop == nullptr; };
      if (shared->mutex.AwaitWithTimeout(absl::Condition(+closed, shared.get()),
                                         absl::FromChrono(interval))) {
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
