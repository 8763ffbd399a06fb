#pragma once

#include <atomic>
#include <cstddef>

namespace postrider {

// A bound in bytes that several owners draw on, on whatever threads they live: none of them may
// hold more than is left by the others. A count, nothing else: who was refused has to ask again.
//
// Threads: any.
class MemoryAccount {
 public:
  explicit MemoryAccount(size_t bytes_max) : bytes_max_(bytes_max) {}
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  // False: so much is not left, and nothing was taken.
  [[nodiscard]] bool Take(size_t bytes) {
    size_t before = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_max_ - before) return false;
    } while (!used_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
    return true;
  }
  // What was taken before.
  void Give(size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  size_t used() const { return used_.load(std::memory_order_relaxed); }
  size_t bytes_max() const { return bytes_max_; }

 private:
  const size_t bytes_max_;
  std::atomic<size_t> used_{0};
};

}  // namespace postrider
