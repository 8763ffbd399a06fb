// Unit tests of what needs no server: URLs, arrays, times, COPY lines.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/postgres/connection.h"
#include "core/postgres/copy.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"
#include "core/postgres/url.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using tests::StatusIs;

TEST(DatabaseUrlTest, ReadsAndWritesEveryPart) {
  ASSERT_OK_AND_ASSIGN(
      DatabaseUrl url,
      DatabaseUrl::Parse("postgresql://us%40er:p%2Fw%3A@h1:1,h2:2/d%20b?sslmode=require"));
  EXPECT_EQ(url.user, "us@er");
  EXPECT_EQ(url.password, "p/w:");
  EXPECT_EQ(url.hosts, "h1:1,h2:2");
  EXPECT_EQ(url.database, "d b");
  EXPECT_EQ(url.parameters, "sslmode=require");
  EXPECT_EQ(url.ToString(), "postgresql://us%40er:p%2Fw%3A@h1:1,h2:2/d%20b?sslmode=require");
  EXPECT_EQ(url.ForLog(), "h1:1,h2:2/d b");
}

TEST(DatabaseUrlTest, SwapsTheUserAndKeepsThePassword) {
  ASSERT_OK_AND_ASSIGN(std::string url, WithUser("postgres://a:s3cret@h:1/d", "postrider_api"));
  EXPECT_EQ(url, "postgresql://postrider_api:s3cret@h:1/d");
  ASSERT_OK_AND_ASSIGN(url, WithDatabase(url, "other"));
  EXPECT_EQ(url, "postgresql://postrider_api:s3cret@h:1/other");
}

TEST(DatabaseUrlTest, RefusesOthersWithoutRepeatingThem) {
  for (const char* bad : {"mysql://a:s3cret@h/d", "a:s3cret", "postgresql://a:s3cret %@h/d",
                          "postgresql://a:s3cret%2@h/d", "postgresql://a:s3cret%00@h/d",
                          "postgresql://a:s3cret\n@h/d"}) {
    const auto parsed = DatabaseUrl::Parse(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(absl::StrContains(parsed.status().message(), "s3cret"));
  }
}

TEST(TextArrayTest, ComesBackAsItWent) {
  const std::vector<std::string> values = {
      "", "a", "NULL", "a,b", "{}", "q\"uote", "back\\slash", " sp ace ", "\xc3\xa9", "\n\t"};
  const auto parsed = ParseTextArray(FormatTextArray(values));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(*parsed, values);
  EXPECT_EQ(ParseTextArray("{}"), std::vector<std::string>{});
  EXPECT_EQ(ParseTextArray("{a,b}"), (std::vector<std::string>{"a", "b"}));
}

TEST(TextArrayTest, RefusesWhatIsNoFlatArrayOfTexts) {
  for (const char* bad :
       {"", "{", "a", "{a", "{NULL}", "{{a},{b}}", "{a,}", "{\"a}", "{\"a\\", "{,}", "{\"a\"b}"}) {
    EXPECT_FALSE(ParseTextArray(bad).has_value()) << bad;
  }
}

TEST(SqlParamTest, WritesATimeInUtcWithMilliseconds) {
  EXPECT_EQ(*SqlParam::Time(WallTimeFromMillis(0)).value(), "1970-01-01 00:00:00.000+00");
  EXPECT_EQ(*SqlParam::Time(WallTimeFromMillis(1'704'067'200'007)).value(),
            "2024-01-01 00:00:00.007+00");
  EXPECT_EQ(*SqlParam::Time(WallTimeFromMillis(-1)).value(), "1969-12-31 23:59:59.999+00");
}

TEST(QuoteTest, DoublesQuotes) {
  EXPECT_EQ(QuoteLiteral("a'b\\c"), "'a''b\\c'");
  EXPECT_EQ(QuoteIdentifier("a\"b"), "\"a\"\"b\"");
}

TEST(CopyRowsTest, EscapesItsColumns) {
  CopyRows rows;
  rows.Text("a\tb\nc\\d\re").Int(-5).Null().Bytes(absl::string_view("\0\xff", 2));
  rows.EndRow();
  rows.Text("").EndRow();
  EXPECT_EQ(rows.rows(), 2u);
  EXPECT_EQ(rows.Take(), "a\\tb\\nc\\\\d\\re\t-5\t\\N\t\\\\x00ff\n\n");
}

}  // namespace
}  // namespace postrider
