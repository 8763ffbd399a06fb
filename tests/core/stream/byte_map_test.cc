#include "core/stream/byte_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/random.h"
#include "core/stream/state_key.h"
#include "core/stream/state_store.h"

namespace postrider {
namespace {

using Map = ByteMap<std::string>;

void Put(Map& map, absl::string_view key, absl::string_view value) {
  map.FindOrInsert(key).value = std::string(value);
}
std::vector<std::string> KeysFrom(const Map& map, absl::string_view from) {
  std::vector<std::string> keys;
  for (Map::Cursor at = map.LowerBound(from); at.entry() != nullptr; at.Next()) {
    keys.emplace_back(at.entry()->key());
  }
  return keys;
}

TEST(ByteMap, FindsWhatWasPutUntilItIsErased) {
  Map map;
  EXPECT_TRUE(map.empty());
  EXPECT_EQ(map.Find("a"), nullptr);
  Put(map, "a", "1");
  Put(map, "a", "2");
  ASSERT_NE(map.Find("a"), nullptr);
  EXPECT_EQ(map.Find("a")->value, "2");
  EXPECT_EQ(map.Find("a")->key(), "a");
  EXPECT_EQ(map.size(), 1u);
  map.Erase(*map.Find("a"));
  EXPECT_EQ(map.Find("a"), nullptr);
  EXPECT_EQ(map.LowerBound("").entry(), nullptr);
}

TEST(ByteMap, EntriesStayWhereTheyAre) {
  Map map;
  Map::Entry& first = map.FindOrInsert(EncodeStateKey(2, "k", "m"));
  for (int i = 0; i < 1'000; ++i) Put(map, EncodeStateKey(2, "k", absl::StrCat(i)), "v");
  EXPECT_EQ(map.LowerBound("").entry()->key(), EncodeStateKey(2, "k", "0"));
  EXPECT_EQ(map.Find(EncodeStateKey(2, "k", "m")), &first);
}

TEST(ByteMap, GroupsThatBeginAlikeStandInTheOrderOfTheirBytes) {
  Map map;
  std::vector<std::string> keys = {"",
                                   "\x01",
                                   std::string("\0\3", 2),
                                   EncodeStateKey(3, "", ""),
                                   EncodeStateKey(3, "", "s"),
                                   EncodeStateKey(3, std::string(1, '\0'), ""),
                                   EncodeStateKey(3, "k", ""),
                                   EncodeStateKey(3, "k", "s"),
                                   EncodeStateKey(3, "k\x01", "s"),
                                   EncodeStateKey(3, "kk", "s"),
                                   std::string("\0\3k", 3),
                                   std::string("\0\3k\0", 4),
                                   std::string("\0\3k\0\2", 5)};
  for (const std::string& key : keys) Put(map, key, "v");
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(KeysFrom(map, ""), keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(KeysFrom(map, keys[i]),
              std::vector<std::string>(keys.begin() + static_cast<std::ptrdiff_t>(i), keys.end()))
        << i;
  }
}

TEST(ByteMap, ShowsNothingFromTheEndThatWasAskedForOn) {
  Map map;
  for (const char* key : {"k", "l", "m"}) {
    for (const char* sub_key : {"a", "c", "b"}) Put(map, EncodeStateKey(3, key, sub_key), "v");
  }
  for (const std::string& end :
       {EncodeStateKey(3, "l", "b"), EncodeStateKey(3, "l", "bb"), StatePrefix(3, "l"),
        StatePrefix(3, "k"), StatePrefix(3), PrefixEnd(StatePrefix(3, "l")), std::string()}) {
    std::vector<std::string> expected;
    std::vector<std::string> shown;
    for (const std::string& key : KeysFrom(map, EncodeStateKey(3, "k", "b"))) {
      if (end.empty() || key < end) expected.push_back(key);
    }
    for (Map::Cursor at = map.LowerBound(EncodeStateKey(3, "k", "b"), end); at.entry() != nullptr;
         at.Next()) {
      shown.emplace_back(at.entry()->key());
    }
    EXPECT_EQ(shown, expected);
  }
}

// Against an ordered tree, with keys in and out of order and reads between.
TEST(ByteMap, IsLikeAnOrderedTreeWhateverIsDoneToIt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    Map map;
    std::map<std::string, std::string> tree;
    uint64_t last = 0;
    const auto random_key = [&] {
      const std::string key(random.Below(3), static_cast<char>(random.Below(2)));
      if (random.Below(20) == 0) return key;  // of no group
      const uint64_t sub = random.Below(3) > 0 ? ++last : random.Below(last + 1);
      return EncodeStateKey(
          static_cast<uint16_t>(random.Below(2)), key,
          std::string(1, static_cast<char>(sub >> 8)) + std::string(1, static_cast<char>(sub)));
    };
    for (int i = 0; i < 5'000; ++i) {
      switch (random.Below(8)) {
        case 0:
        case 1:
        case 2:
        case 3: {
          const std::string key = random_key();
          Put(map, key, absl::StrCat(i));
          tree[key] = absl::StrCat(i);
          break;
        }
        case 4:
        case 5: {
          const auto at = tree.lower_bound(random_key());
          if (at == tree.end()) break;
          ASSERT_NE(map.Find(at->first), nullptr);
          EXPECT_EQ(map.Find(at->first)->value, at->second);
          map.Erase(*map.Find(at->first));
          tree.erase(at);
          break;
        }
        case 6: {
          // Some from the head on, as queues lose them.
          for (int n = 0; n < 3 && !tree.empty(); ++n) {
            const std::string head = tree.begin()->first;
            map.Erase(*map.Find(head));
            tree.erase(head);
          }
          break;
        }
        case 7: {
          const std::string from = random_key();
          auto expected = tree.lower_bound(from);
          Map::Cursor at = map.LowerBound(from);
          for (int n = 0; n < 20 && expected != tree.end(); ++n, ++expected, at.Next()) {
            ASSERT_NE(at.entry(), nullptr);
            ASSERT_EQ(at.entry()->key(), expected->first);
            ASSERT_EQ(at.entry()->value, expected->second);
          }
          break;
        }
      }
      ASSERT_EQ(map.size(), tree.size());
    }
    std::vector<std::string> keys;
    for (const auto& [key, value] : tree) keys.push_back(key);
    EXPECT_EQ(KeysFrom(map, ""), keys);
    map.Clear();
    EXPECT_EQ(map.LowerBound("").entry(), nullptr);
  }
}

}  // namespace
}  // namespace postrider
