#include "core/json/members.h"

#include "core/json/reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MembersTest, GivesValuesAsTheyStandInTheText) {
  const absl::string_view text =
      " { \"a\" : 1e999 , \"d\\u0061ta\":\t{ \"x\" : [1, \"}\\\"\"] ,\"x\":2} ,\"a\":\"b\" } ";
  ASSERT_EQ(ProveJson(text), JsonProof::kProven);
  const auto members = RawMembers(text);
  ASSERT_TRUE(members.has_value());
  ASSERT_EQ(members->size(), 3u);
  EXPECT_EQ((*members)[0].name, "a");
  EXPECT_EQ((*members)[0].value, "1e999");
  EXPECT_EQ((*members)[1].name, "data");
  EXPECT_EQ((*members)[1].value, "{ \"x\" : [1, \"}\\\"\"] ,\"x\":2}");
  EXPECT_EQ((*members)[2].name, "a");
  EXPECT_EQ((*members)[2].value, "\"b\"");
}

TEST(MembersTest, GivesElementsAsTheyStandInTheText) {
  const auto elements = RawElements(" [ 1 , [2 ,3],\"]\" , {} ]");
  ASSERT_TRUE(elements.has_value());
  EXPECT_THAT(*elements, ElementsAre("1", "[2 ,3]", "\"]\"", "{}"));
}

TEST(MembersTest, TellsTheKindsApart) {
  EXPECT_FALSE(RawMembers("[1]").has_value());
  EXPECT_FALSE(RawMembers("null").has_value());
  EXPECT_FALSE(RawElements("{}").has_value());
  EXPECT_FALSE(RawElements("\"[\"").has_value());
  EXPECT_THAT(*RawMembers(" {} "), IsEmpty());
  EXPECT_THAT(*RawElements("[ ]"), IsEmpty());
}

}  // namespace
}  // namespace postrider
