#include "core/base/id.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

struct EndpointTag {
  static constexpr absl::string_view kPrefix = "ep_";
};
using EndpointId = Id<EndpointTag>;

IdBytes Filled(uint8_t byte) {
  IdBytes bytes;
  bytes.fill(byte);
  return bytes;
}

std::string Encode(const IdBytes& bytes) {
  return EncodeBase32(absl::string_view(reinterpret_cast<const char*>(bytes.data()), 16));
}

TEST(Base32Test, WritesSixteenBytesAsTwentySixCharacters) {
  EXPECT_EQ(Encode(Filled(0)), "00000000000000000000000000");
  EXPECT_EQ(Encode(Filled(0xff)), "7zzzzzzzzzzzzzzzzzzzzzzzzz");
  IdBytes one = Filled(0);
  one[15] = 1;
  EXPECT_EQ(Encode(one), "00000000000000000000000001");
  one[15] = 32;
  EXPECT_EQ(Encode(one), "00000000000000000000000010");
}

TEST(Base32Test, WritesOtherLengthsWithTheirZeroBitsInFront) {
  EXPECT_EQ(EncodeBase32(""), "");
  EXPECT_EQ(EncodeBase32("\xff"), "7z");
  EXPECT_EQ(EncodeBase32("\xff\xff\xff\xff\xff"), "zzzzzzzz");
  EXPECT_EQ(EncodeBase32(absl::string_view("\0\1", 2)), "0001");
}

TEST(Base32Test, ReadsBackWhatItWrote) {
  IdBytes bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 11);
  EXPECT_EQ(DecodeBase32Id(Encode(bytes)), bytes);
  EXPECT_EQ(DecodeBase32Id(absl::AsciiStrToUpper(Encode(bytes))), bytes);
  EXPECT_EQ(DecodeBase32Id(Encode(Filled(0xff))), Filled(0xff));
}

TEST(Base32Test, SortsTextsLikeTheirBytes) {
  IdBytes lower = Filled(0x7f);
  IdBytes higher = lower;
  higher[7] = 0x80;
  EXPECT_LT(Encode(lower), Encode(higher));
}

TEST(Base32Test, RefusesANumberThatDoesNotFitSixteenBytes) {
  EXPECT_TRUE(DecodeBase32Id("7zzzzzzzzzzzzzzzzzzzzzzzzz"));
  EXPECT_FALSE(DecodeBase32Id("80000000000000000000000000"));
}

TEST(Base32Test, RefusesAnotherLength) {
  EXPECT_FALSE(DecodeBase32Id(""));
  EXPECT_FALSE(DecodeBase32Id(std::string(25, '0')));
  EXPECT_TRUE(DecodeBase32Id(std::string(26, '0')));
  EXPECT_FALSE(DecodeBase32Id(std::string(27, '0')));
}

TEST(Base32Test, RefusesCharactersOutsideTheAlphabet) {
  for (const char c : std::string("iloIOLuU-_ \xff") + '\0') {
    std::string text(26, '0');
    text[20] = c;
    EXPECT_FALSE(DecodeBase32Id(text)) << static_cast<int>(c);
  }
}

TEST(UuidTest, ReadsAndWritesTheCanonicalForm) {
  const std::string text = "01234567-89ab-cdef-0123-456789abcdef";
  const absl::optional<IdBytes> bytes = ParseUuid(text);
  ASSERT_TRUE(bytes);
  EXPECT_EQ((*bytes)[0], 0x01);
  EXPECT_EQ((*bytes)[15], 0xef);
  EXPECT_EQ(FormatUuid(*bytes), text);
  EXPECT_EQ(ParseUuid(absl::AsciiStrToUpper(text)), bytes);
}

TEST(UuidTest, RefusesEveryOtherForm) {
  EXPECT_FALSE(ParseUuid(""));
  EXPECT_FALSE(ParseUuid("0123456789abcdef0123456789abcdef"));
  EXPECT_FALSE(ParseUuid("01234567-89ab-cdef-0123-456789abcde"));
  EXPECT_FALSE(ParseUuid("01234567-89ab-cdef-0123-456789abcdef0"));
  EXPECT_FALSE(ParseUuid("0123456-789ab-cdef-0123-456789abcdef"));
  EXPECT_FALSE(ParseUuid("01234567-89ab-cdef-0123-456789abcdeg"));
  EXPECT_FALSE(ParseUuid("01234567-89ab-cdef-0123-456789abc-ef"));
}

TEST(IdTest, CarriesItsPrefixInText) {
  const EndpointId id(Filled(0xff));
  EXPECT_EQ(id.ToString(), "ep_7zzzzzzzzzzzzzzzzzzzzzzzzz");
  EXPECT_EQ(EndpointId::Parse(id.ToString()), id);
  EXPECT_EQ(EndpointId::FromUuid(id.ToUuid()), id);
}

TEST(IdTest, RefusesAnotherKindsPrefix) {
  EXPECT_FALSE(EndpointId::Parse("su_7zzzzzzzzzzzzzzzzzzzzzzzzz"));
  EXPECT_FALSE(EndpointId::Parse("7zzzzzzzzzzzzzzzzzzzzzzzzz"));
  EXPECT_FALSE(EndpointId::Parse("ep_"));
  EXPECT_FALSE(EndpointId::Parse("ep"));
}

TEST(IdTest, IsNilUntilItIsGivenBytes) {
  EXPECT_TRUE(EndpointId().is_nil());
  EXPECT_FALSE(EndpointId(Filled(1)).is_nil());
}

TEST(IdTest, IsAKeyOfHashMapsAndOrderedByBytes) {
  const absl::flat_hash_set<EndpointId> set = {EndpointId(Filled(1)), EndpointId(Filled(2))};
  EXPECT_TRUE(set.contains(EndpointId(Filled(2))));
  EXPECT_FALSE(set.contains(EndpointId(Filled(3))));
  EXPECT_LT(EndpointId(Filled(1)), EndpointId(Filled(0x80)));
}

}  // namespace
}  // namespace postrider
