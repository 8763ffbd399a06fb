#include "core/stream/state_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/random.h"

namespace postrider {
namespace {

std::string RandomPart(Random& random) {
  std::string part;
  for (uint64_t n = random.Below(4); n > 0; --n) {
    part.push_back("\x00\x01\x02\xfe\xff"[random.Below(5)]);
  }
  return part;
}

TEST(StateKey, SortsAsItsPartsDoAndComesBack) {
  constexpr uint64_t kSeed = 7'411;
  SCOPED_TRACE(absl::StrCat("seed ", kSeed));
  Random random(kSeed);
  const auto random_key = [&random] {
    return StateKey{static_cast<uint16_t>(random.Below(2) * 255 + random.Below(2)),
                    RandomPart(random), RandomPart(random)};
  };
  for (int i = 0; i < 20'000; ++i) {
    const StateKey a = random_key();
    const StateKey b = random_key();
    const std::string encoded_a = EncodeStateKey(a.state, a.key, a.sub_key);
    const std::string encoded_b = EncodeStateKey(b.state, b.key, b.sub_key);
    ASSERT_EQ(std::tie(a.state, a.key, a.sub_key) < std::tie(b.state, b.key, b.sub_key),
              encoded_a < encoded_b);
    ASSERT_EQ(DecodeStateKey(encoded_a), a);
    const bool same_key = a.state == b.state && a.key == b.key;
    ASSERT_EQ(encoded_b.rfind(StatePrefix(a.state, a.key), 0) == 0, same_key);
    ASSERT_EQ(encoded_b.rfind(StatePrefix(a.state), 0) == 0, a.state == b.state);
    ASSERT_EQ(StateKeyGroupBytes(encoded_a), StatePrefix(a.state, a.key).size());
  }
}

TEST(StateKey, RefusesWhatItWouldNotHaveWritten) {
  const std::string good = EncodeStateKey(3, std::string("k\0y", 3), "s");
  EXPECT_NE(DecodeStateKey(good), absl::nullopt);
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_EQ(DecodeStateKey(good.substr(0, cut)), absl::nullopt) << cut;
  }
  EXPECT_EQ(DecodeStateKey(good + "x"), absl::nullopt);
  EXPECT_EQ(DecodeStateKey(std::string("\0\3k\0\2\0\1\0\1", 9)), absl::nullopt);
}

TEST(StateKey, WhatHasNoPartIsAGroupOfItsOwn) {
  for (const std::string& key :
       {std::string(), std::string("\0", 1), std::string("\0\1", 2), std::string("\0\3k", 3),
        std::string("\0\3k\0", 4), std::string("\0\3k\0\xff\0\2", 7)}) {
    EXPECT_EQ(StateKeyGroupBytes(key), key.size());
  }
}

}  // namespace
}  // namespace postrider
