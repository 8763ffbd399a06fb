#pragma once

#include <cstdint>

namespace postrider {

// Randomness for jitter, sampling and simulation: seeded, fast, not for secrets
// (those: core/crypto/random.h). Threads: owned by one.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // SplitMix64 (Steele, Lea, Flood 2014).
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // Even over 0 .. bound-1; bound > 0.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // 0 <= x < 1
  double Fraction() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

}  // namespace postrider
