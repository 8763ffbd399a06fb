#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/id.h"

namespace postrider {

// The last 16,384 exact 128-bit identities of one task with the lowest offset at which each was
// met, so that what a producer wrote twice (a crash between its write and its commit) is dropped. A
// record that comes again at its own offset is not a repeat: it is re-read.
//
// Threads: owned by one task. Bounds: about 1 MB once it is full.
class RecentIdentities {
 public:
  static constexpr size_t kIdentitiesMax = 16'384;

  // Whether `identity` was met at a lower offset. Otherwise it is remembered with `offset` from now
  // on and the oldest is forgotten. Records that are skipped since they are complete already pass
  // through here too.
  bool SeenBefore(const IdBytes& identity, int64_t offset) {
    const auto [found, added] = offsets_.try_emplace(Key::Of(identity), offset);
    if (!added) {
      if (found->second < offset) return true;
      found->second = offset;
      return false;
    }
    if (order_.size() < kIdentitiesMax) {
      order_.push_back(found->first);
    } else {
      offsets_.erase(order_[oldest_]);
      order_[oldest_] = Key::Of(identity);
      oldest_ = (oldest_ + 1) % kIdentitiesMax;
    }
    return false;
  }
  size_t size() const { return offsets_.size(); }

 private:
  struct Key {
    uint64_t high;
    uint64_t low;
    static Key Of(const IdBytes& bytes) {
      Key key;
      std::memcpy(&key.high, bytes.data(), 8);
      std::memcpy(&key.low, bytes.data() + 8, 8);
      return key;
    }
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.high, key.low);
    }
  };
  absl::flat_hash_map<Key, int64_t> offsets_;
  std::vector<Key> order_;
  size_t oldest_ = 0;
};

}  // namespace postrider
