#include "core/stream/hole_map.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/stream/log.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

CommitMetadata Metadata(OffsetSet completed) {
  CommitMetadata metadata;
  for (size_t i = 0; i < metadata.writer.size(); ++i) metadata.writer[i] = static_cast<uint8_t>(i);
  metadata.epoch = 7;
  metadata.incarnation_ms = 1'704'067'200'000;
  metadata.completed = std::move(completed);
  return metadata;
}

OffsetSet SetOf(const std::set<int64_t>& offsets) {
  OffsetSet set;
  for (const int64_t offset : offsets) set.Append(offset, offset + 1);
  return set;
}

TEST(OffsetSetTest, JoinsAdjacentRangesAndIgnoresEmptyOnes) {
  OffsetSet set;
  set.Append(3, 5);
  set.Append(5, 5);
  set.Append(5, 7);
  set.Append(9, 10);
  ASSERT_EQ(set.ranges().size(), 2u);
  EXPECT_EQ(set.ranges()[0], (OffsetSet::Range{3, 7}));
  EXPECT_EQ(set.ranges()[1], (OffsetSet::Range{9, 10}));
  EXPECT_EQ(set.size(), 5);
}

TEST(OffsetSetTest, ContainsKnowsBothEdgesOfARange) {
  OffsetSet set;
  set.Append(3, 5);
  set.Append(8, 9);
  for (int64_t offset = 0; offset < 12; ++offset) {
    EXPECT_EQ(set.Contains(offset), offset == 3 || offset == 4 || offset == 8) << offset;
  }
}

TEST(OffsetSetTest, AgreesWithANaiveSet) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    std::set<int64_t> naive;
    for (int i = 0; i < 60; ++i) naive.insert(static_cast<int64_t>(random.Below(100)));
    OffsetSet set = SetOf(naive);
    ASSERT_EQ(set.size(), static_cast<int64_t>(naive.size()));
    const auto cut = static_cast<int64_t>(random.Below(110));
    set.DropBelow(cut);
    std::erase_if(naive, [cut](int64_t offset) { return offset < cut; });
    ASSERT_EQ(set, SetOf(naive));
    for (int64_t offset = -1; offset < 111; ++offset) {
      ASSERT_EQ(set.Contains(offset), naive.contains(offset)) << offset;
    }
  }
}

TEST(HoleMapTest, EmptySetComesBack) {
  const CommitMetadata metadata = Metadata({});
  const EncodedMetadata encoded = EncodeCommitMetadata(metadata, 42);
  EXPECT_EQ(encoded.forgotten, 0);
  EXPECT_EQ(DecodeCommitMetadata(encoded.text, 42), metadata);
}

TEST(HoleMapTest, ExtremeFieldsComeBack) {
  CommitMetadata metadata = Metadata({});
  metadata.epoch = std::numeric_limits<uint64_t>::max();
  metadata.incarnation_ms = std::numeric_limits<int64_t>::min();
  const int64_t top = std::numeric_limits<int64_t>::max();
  metadata.completed.Append(top - 1, top);
  EXPECT_EQ(DecodeCommitMetadata(EncodeCommitMetadata(metadata, 0).text, 0), metadata);
  EXPECT_EQ(DecodeCommitMetadata(EncodeCommitMetadata(metadata, top - 1).text, top - 1), metadata);
}

TEST(HoleMapTest, LongRunIsShort) {
  OffsetSet set;
  set.Append(1'000, 5'000'000);
  const EncodedMetadata encoded = EncodeCommitMetadata(Metadata(set), 10);
  EXPECT_LT(encoded.text.size(), 64u);
  EXPECT_EQ(DecodeCommitMetadata(encoded.text, 10)->completed, set);
}

TEST(HoleMapTest, AlternatingOffsetsTakeABitEach) {
  OffsetSet set;
  for (int64_t offset = 101; offset < 16'000; offset += 2) set.Append(offset, offset + 1);
  const EncodedMetadata encoded = EncodeCommitMetadata(Metadata(set), 100);
  EXPECT_EQ(encoded.forgotten, 0);
  EXPECT_LE(encoded.text.size(), 2'800u);
  EXPECT_EQ(DecodeCommitMetadata(encoded.text, 100)->completed, set);
}

TEST(HoleMapTest, WhatDoesNotFitIsForgottenFromTheTop) {
  OffsetSet set;
  for (int64_t offset = 1; offset < 100'000; offset += 2) set.Append(offset, offset + 1);
  const EncodedMetadata encoded = EncodeCommitMetadata(Metadata(set), 0);
  EXPECT_LE(encoded.text.size(), kCommitMetadataTextMax);
  EXPECT_GT(encoded.text.size(), kCommitMetadataTextMax - 8);
  const auto decoded = DecodeCommitMetadata(encoded.text, 0);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->completed.size() + encoded.forgotten, set.size());
  EXPECT_GT(decoded->completed.size(), 10'000);
  OffsetSet prefix;
  for (int64_t i = 0; i < decoded->completed.size(); ++i) prefix.Append(2 * i + 1, 2 * i + 2);
  EXPECT_EQ(decoded->completed, prefix);
}

TEST(HoleMapTest, OffsetsBelowTheWatermarkAreNotWritten) {
  OffsetSet set;
  set.Append(3, 8);
  OffsetSet above;
  above.Append(5, 8);
  EXPECT_EQ(DecodeCommitMetadata(EncodeCommitMetadata(Metadata(set), 5).text, 5)->completed, above);
}

TEST(HoleMapTest, EverySetComesBackOrItsPrefix) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    const auto watermark = static_cast<int64_t>(random.Below(1ULL << (1 + random.Below(62))));
    CommitMetadata metadata = Metadata({});
    metadata.epoch = random.Next() >> random.Below(64);
    int64_t at = watermark;
    const uint64_t ranges = random.Below(3'000);
    const uint64_t gap_max = 1 + random.Below(1ULL << random.Below(14));
    const uint64_t run_max = 1 + random.Below(1ULL << random.Below(14));
    for (uint64_t i = 0; i < ranges; ++i) {
      at += 1 + static_cast<int64_t>(random.Below(gap_max));
      const int64_t end = at + 1 + static_cast<int64_t>(random.Below(run_max));
      metadata.completed.Append(at, end);
      at = end;
    }
    const EncodedMetadata encoded = EncodeCommitMetadata(metadata, watermark);
    ASSERT_LE(encoded.text.size(), kCommitMetadataTextMax);
    ASSERT_LE(encoded.text.size(), kCommitMetadataBytesMax);
    const auto decoded = DecodeCommitMetadata(encoded.text, watermark);
    ASSERT_TRUE(decoded.has_value());
    ASSERT_EQ(decoded->completed.size() + encoded.forgotten, metadata.completed.size());
    if (encoded.forgotten == 0) {
      ASSERT_EQ(*decoded, metadata);
    } else {
      // What was kept is the lowest part.
      OffsetSet rest = metadata.completed;
      ASSERT_FALSE(decoded->completed.empty());
      rest.DropBelow(decoded->completed.ranges().back().end);
      ASSERT_EQ(rest.size(), encoded.forgotten);
    }
    ASSERT_EQ(EncodeCommitMetadata(*decoded, watermark).text, encoded.text);
  }
}

TEST(HoleMapTest, EveryFlippedCharacterIsRefused) {
  OffsetSet set;
  set.Append(12, 15);
  set.Append(20, 21);
  const std::string text = EncodeCommitMetadata(Metadata(set), 10).text;
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char other : {'A', 'B', '/', '=', ' ', '\0', '\n', '-'}) {
      if (other == text[i]) continue;
      std::string mutated = text;
      mutated[i] = other;
      EXPECT_FALSE(DecodeCommitMetadata(mutated, 10).has_value()) << i << " " << int{other};
    }
  }
}

TEST(HoleMapTest, CutLongerAndEmptyTextsAreRefused) {
  const std::string text = EncodeCommitMetadata(Metadata({}), 10).text;
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(DecodeCommitMetadata(text.substr(0, size), 10).has_value()) << size;
  }
  EXPECT_FALSE(DecodeCommitMetadata(text + "A", 10).has_value());
  EXPECT_FALSE(DecodeCommitMetadata(text + "\n", 10).has_value());
  EXPECT_FALSE(DecodeCommitMetadata(std::string(5'000, 'A'), 10).has_value());
}

TEST(HoleMapTest, NegativeWatermarkIsRefused) {
  EXPECT_FALSE(DecodeCommitMetadata(EncodeCommitMetadata(Metadata({}), 0).text, -1).has_value());
}

// Mutations behind a checksum that is right: only what the encoder writes is taken.
TEST(HoleMapTest, RandomBodiesWithAGoodChecksumAreRefusedOrCanonical) {
  for (uint64_t seed = 1; seed <= 3'000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    OffsetSet set;
    int64_t at = 0;
    for (uint64_t i = random.Below(30); i > 0; --i) {
      at += 1 + static_cast<int64_t>(random.Below(9));
      set.Append(at, at + 1);
      ++at;
    }
    std::string bytes;
    ASSERT_TRUE(absl::Base64Unescape(EncodeCommitMetadata(Metadata(set), 0).text, &bytes));
    bytes.resize(bytes.size() - 4);
    for (uint64_t i = 1 + random.Below(4); i > 0; --i) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
    }
    uint32_t crc = 0xffffffff;
    for (const char c : bytes) {
      crc ^= static_cast<uint8_t>(c);
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
    }
    crc = ~crc;
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(crc >> (8 * i)));
    const std::string text = absl::Base64Escape(bytes);
    const int64_t watermark = random.Below(2) == 0 ? 0 : std::numeric_limits<int64_t>::max() - 3;
    const auto decoded = DecodeCommitMetadata(text, watermark);
    if (!decoded.has_value()) continue;
    ASSERT_EQ(EncodeCommitMetadata(*decoded, watermark).text, text);
  }
}

}  // namespace
}  // namespace postrider
