#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "delivery/fair_queue.h"
#include "subscriptions/registry/ids.h"

namespace postrider::delivery {

class EndpointFunction;

// Endpoints that cannot be sent to until something with a name allows it, such as a host that has
// all the requests that it may have: a line per name, each in the order in which they came.
//
// Threads: a shard's.
// Bounds:  an endpoint stands in one line at a time, which is for the function to see to.
class NamedLines {
 public:
  struct Place {
    subscriptions::CustomerId customer;
    EndpointFunction* function = nullptr;
    std::string key;  // the endpoint's
  };

  void Add(const std::string& name, Place place) { lines_[name].push_back(std::move(place)); }

  // Moves to `to` the first ones of each line, as many as `room(name)` says.
  template <typename Room>
  void Release(Room room, FairQueue& to) {
    absl::erase_if(lines_, [&](auto& entry) {
      std::deque<Place>& line = entry.second;
      for (size_t left = room(entry.first); left > 0 && !line.empty(); --left) Pop(line, to);
      return line.empty();
    });
  }
  void ReleaseAll(const std::string& name, FairQueue& to) {
    const auto found = lines_.find(name);
    if (found == lines_.end()) return;
    while (!found->second.empty()) Pop(found->second, to);
    lines_.erase(found);
  }
  void Forget(const EndpointFunction* function) {
    absl::erase_if(lines_, [&](auto& entry) {
      std::erase_if(entry.second, [&](const Place& place) { return place.function == function; });
      return entry.second.empty();
    });
  }

 private:
  static void Pop(std::deque<Place>& line, FairQueue& to) {
    Place place = std::move(line.front());
    line.pop_front();
    to.Enqueue(place.customer, place.function, place.key);
  }

  absl::flat_hash_map<std::string, std::deque<Place>> lines_;
};

}  // namespace postrider::delivery
