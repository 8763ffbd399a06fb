#include "core/base/bytes.h"

#include <cstdint>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace postrider {
namespace {

std::string Varint(uint64_t value) {
  ByteWriter writer;
  writer.Varint(value);
  return writer.Take();
}

TEST(BytesTest, ReadsBackEveryKindOfPart) {
  ByteWriter writer;
  writer.U8(0xfe);
  writer.U32(0xdeadbeef);
  writer.U64(0x0123456789abcdefULL);
  writer.Varint(300);
  writer.Zigzag(-2);
  writer.String("text");
  writer.Raw("raw");

  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.U8(), 0xfe);
  EXPECT_EQ(reader.U32(), 0xdeadbeef);
  EXPECT_EQ(reader.U64(), 0x0123456789abcdefULL);
  EXPECT_EQ(reader.Varint(), 300u);
  EXPECT_EQ(reader.Zigzag(), -2);
  EXPECT_EQ(reader.String(), "text");
  EXPECT_FALSE(reader.done());
  EXPECT_EQ(reader.Raw(3), "raw");
  EXPECT_TRUE(reader.done());
}

TEST(BytesTest, WritesIntegersWithTheLowestByteFirst) {
  ByteWriter writer;
  writer.U32(0x04030201);
  EXPECT_EQ(writer.bytes(), "\x01\x02\x03\x04");
}

TEST(BytesTest, WritesVarintsInTheFewestBytes) {
  EXPECT_EQ(Varint(0).size(), 1u);
  EXPECT_EQ(Varint(127).size(), 1u);
  EXPECT_EQ(Varint(128).size(), 2u);
  EXPECT_EQ(Varint(std::numeric_limits<uint64_t>::max()).size(), 10u);
}

TEST(BytesTest, ReadsTheExtremesOfSignedNumbers) {
  for (const int64_t value : {std::numeric_limits<int64_t>::min(), int64_t{-1}, int64_t{0},
                              std::numeric_limits<int64_t>::max()}) {
    ByteWriter writer;
    writer.Zigzag(value);
    ByteReader reader(writer.bytes());
    EXPECT_EQ(reader.Zigzag(), value);
    EXPECT_TRUE(reader.done());
  }
}

TEST(BytesTest, RefusesAVarintOfMoreThanSixtyFourBits) {
  const std::string most = std::string(9, '\xff') + '\x01';
  ByteReader fits(most);
  EXPECT_EQ(fits.Varint(), std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(fits.ok());

  const std::string more = std::string(9, '\xff') + '\x02';
  ByteReader overflows(more);
  EXPECT_EQ(overflows.Varint(), 0u);
  EXPECT_FALSE(overflows.ok());

  const std::string endless(11, '\xff');
  ByteReader too_long(endless);
  too_long.Varint();
  EXPECT_FALSE(too_long.ok());
}

TEST(BytesTest, TellsOfAVarintThatIsLongerThanItNeeds) {
  for (const std::string& bytes : {std::string("\0", 1), std::string("\x80\1", 2), Varint(1 << 14),
                                   Varint(std::numeric_limits<uint64_t>::max())}) {
    ByteReader reader(bytes);
    reader.Varint();
    EXPECT_TRUE(reader.done());
    EXPECT_FALSE(reader.padded());
  }
  for (const std::string& bytes : {std::string("\x80\0", 2), std::string("\xff\x80\0", 3),
                                   std::string(9, '\x80') + std::string(1, '\0')}) {
    ByteReader reader(bytes + "\1");
    reader.Varint();
    reader.Varint();
    EXPECT_TRUE(reader.done());
    EXPECT_TRUE(reader.padded());
  }
}

TEST(BytesTest, ReadsNothingPastTheEnd) {
  ByteReader short_number("\x01\x02\x03");
  EXPECT_EQ(short_number.U32(), 0u);
  EXPECT_FALSE(short_number.ok());

  ByteReader short_text(
      "\x05"
      "four");
  EXPECT_EQ(short_text.String(), "");
  EXPECT_FALSE(short_text.ok());

  const std::string huge = Varint(std::numeric_limits<uint64_t>::max()) + "x";
  ByteReader huge_text(huge);
  EXPECT_EQ(huge_text.String(), "");
  EXPECT_FALSE(huge_text.ok());
}

TEST(BytesTest, GivesZeroAfterTheFirstFault) {
  ByteReader reader("\x01");
  reader.U32();
  EXPECT_EQ(reader.U8(), 0);
  EXPECT_EQ(reader.Raw(0), "");
  EXPECT_FALSE(reader.ok());
  EXPECT_FALSE(reader.done());
}

}  // namespace
}  // namespace postrider
