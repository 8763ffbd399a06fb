#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/node_hash_map.h"
#include "absl/strings/string_view.h"

namespace postrider {

// Keyed state of the replayable kind: one value of T per key, in memory only. What it holds was
// made from records that are still pending, so the log restores it. Durable kinds (changelog, TTL)
// have the same calls behind a serialiser.
//
// Threads: owned by one task. Bounds: by the records that its owner lets pend; Clear() what is
// empty.
template <typename T>
class ReplayableValueState {
 public:
  // Null when the key has no value. The pointer stays good until Clear(key).
  T* Get(absl::string_view key) {
    auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  // The key's value, made by T(args...) if there is none.
  template <typename... Args>
  T& GetOrCreate(absl::string_view key, Args&&... args) {
    auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    return values_.try_emplace(std::string(key), std::forward<Args>(args)...).first->second;
  }
  void Clear(absl::string_view key) {
    auto found = values_.find(key);
    if (found != values_.end()) values_.erase(found);
  }
  size_t size() const { return values_.size(); }
  template <typename Visitor>
  void ForEach(Visitor&& visit) {
    for (auto& [key, value] : values_) visit(absl::string_view(key), value);
  }
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    for (const auto& [key, value] : values_) visit(absl::string_view(key), value);
  }

 private:
  absl::node_hash_map<std::string, T> values_;
};

}  // namespace postrider
