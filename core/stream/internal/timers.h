#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"

namespace postrider::internal {

// The timers of one task: at most one per key and tag. It fires nothing by itself. A heap of four
// children a node, over blocks of memory that know their place in it.
// Threads: owned by one task. Bounds: by the keys that its owner keeps; see kTimerBytes.
class Timers {
 public:
  struct Due {
    std::string key;
    uint32_t tag = 0;
    MonotonicTime time;
  };
  // What one holds beside the bytes of its key, about.
  static constexpr size_t kTimerBytes = 100;

  void Set(absl::string_view key, uint32_t tag, MonotonicTime time);
  void Cancel(absl::string_view key, uint32_t tag);
  // None when there is no such timer.
  absl::optional<MonotonicTime> TimeOf(absl::string_view key, uint32_t tag) const;
  absl::optional<MonotonicTime> Earliest() const;
  // The number that the next Set() gets: PopDue() with it leaves out what is set from now on.
  uint64_t mark() const { return next_; }
  // Takes out the earliest one at or before `now` that was set before `mark`; equal times in the
  // order of Set().
  absl::optional<Due> PopDue(MonotonicTime now, uint64_t mark);
  void Clear();
  size_t size() const { return by_key_.size(); }
  size_t memory_bytes() const { return by_key_.size() * kTimerBytes + key_bytes_; }

 private:
  // One block of memory: the key's bytes lie behind it.
  struct Timer {
    uint32_t place;  // in the heap
    uint32_t hash;   // of key and tag
    uint32_t tag;
    uint32_t key_bytes;
    absl::string_view key() const {
      return absl::string_view(reinterpret_cast<const char*>(this + 1), key_bytes);
    }
  };
  struct Free {
    void operator()(Timer* timer) const { ::operator delete(timer); }
  };
  using Owned = std::unique_ptr<Timer, Free>;
  static Owned Make(absl::string_view key, uint32_t tag);

  struct Name {
    absl::string_view key;
    uint32_t tag;
    friend bool operator==(const Name&, const Name&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Name& name) {
      return H::combine(std::move(h), name.key, name.tag);
    }
  };
  static Name NameOf(const Name& name) { return name; }
  static Name NameOf(const Owned& timer) { return Name{timer->key(), timer->tag}; }
  struct HashName {
    using is_transparent = void;
    size_t operator()(const Name& name) const {
      return static_cast<uint32_t>(absl::Hash<Name>()(name));
    }
    size_t operator()(const Owned& timer) const { return timer->hash; }
  };
  struct EqualName {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return NameOf(a) == NameOf(b);
    }
  };
  // The time lies beside the pointer, so that comparing touches no timer.
  struct Place {
    int64_t time;
    uint64_t order;
    Timer* timer;
  };
  static constexpr size_t kChildren = 4;
  static bool Before(const Place& a, const Place& b) {
    return a.time < b.time || (a.time == b.time && a.order < b.order);
  }
  void Up(size_t at, const Place& place);
  void Down(size_t at, const Place& place);
  // Moves the place there to where it belongs.
  void Settle(size_t at, const Place& place);
  void Remove(size_t at);
  Due Pop(size_t at);

  absl::flat_hash_set<Owned, HashName, EqualName> by_key_;
  std::vector<Place> heap_;
  uint64_t next_ = 0;
  size_t key_bytes_ = 0;
};

}  // namespace postrider::internal
