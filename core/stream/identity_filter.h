#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace postrider {

// Tells for most identities that were never added that they were not, by 12 bits for each that was:
// a Bloom filter that grows, with all bits of an identity in one word. What was added stays until
// Clear().
//
// Threads: owned by one task. Bounds: 5.6 MB, for 3,490,000 identities; once there are more it
// knows nothing any more.
class IdentityFilter {
 public:
  // By its hash, of 64 bits as random as any.
  void Add(uint64_t hash) {
    if (full_) return;
    if (layers_.empty() || added_ == layers_.back().size() * kAddedPerWordMax) Grow();
    if (full_) return;
    ++added_;
    std::vector<uint64_t>& words = layers_.back();
    words[WordOf(hash, words.size())] |= BitsOf(hash);
  }
  // False: it was not added, for sure.
  bool MayHave(uint64_t hash) const {
    if (full_) return true;
    const uint64_t bits = BitsOf(hash);
    for (const std::vector<uint64_t>& words : layers_) {
      if ((words[WordOf(hash, words.size())] & bits) == bits) return true;
    }
    return false;
  }
  void Clear() {
    layers_.clear();
    added_ = 0;
    full_ = false;
  }
  size_t memory_bytes() const {
    size_t bytes = 0;
    for (const std::vector<uint64_t>& words : layers_) bytes += words.size() * sizeof(uint64_t);
    return bytes;
  }

 private:
  static constexpr size_t kFirstWords = 512;
  static constexpr size_t kLayersMax = 6;
  static constexpr size_t kAddedPerWordMax = 5;
  static constexpr int kBits = 5;

  static uint64_t BitsOf(uint64_t hash) {
    uint64_t bits = 0;
    for (int i = 0; i < kBits; ++i, hash >>= 6) bits |= uint64_t{1} << (hash & 63);
    return bits;
  }
  // `words` is a power of two.
  static size_t WordOf(uint64_t hash, size_t words) {
    return static_cast<size_t>(hash >> (6 * kBits)) & (words - 1);
  }
  void Grow() {
    added_ = 0;
    if (layers_.size() == kLayersMax) {
      layers_.clear();
      layers_.shrink_to_fit();
      full_ = true;
      return;
    }
    layers_.emplace_back(layers_.empty() ? kFirstWords : 4 * layers_.back().size());
  }

  std::vector<std::vector<uint64_t>> layers_;
  size_t added_ = 0;  // to the last layer
  bool full_ = false;
};

}  // namespace postrider
