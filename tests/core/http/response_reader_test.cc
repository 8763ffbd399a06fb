#include "core/http/internal/response_reader.h"

#include <string>

#include "gtest/gtest.h"

namespace postrider::internal {
namespace {

TEST(ResponseReaderTest, DecidesAtTheEmptyLine) {
  ResponseReader reader;
  reader.Start({1'000, 10, 100});
  EXPECT_TRUE(reader.OnHeaderLine("HTTP/1.1 429 Slow\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("RETRY-after:  7 \r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("Retry-After: 9\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("Date: x\r\n"));
  EXPECT_FALSE(reader.head_done());
  EXPECT_TRUE(reader.OnHeaderLine("\r\n"));
  EXPECT_TRUE(reader.head_done());
  EXPECT_EQ(reader.status(), 429);
  EXPECT_EQ(reader.TakeRetryAfter(), (std::vector<std::string>{"7", "9"}));
  EXPECT_EQ(reader.TakeDate(), "x");
}

TEST(ResponseReaderTest, InterimAnswersDecideNothing) {
  ResponseReader reader;
  reader.Start({1'000, 10, 100});
  for (const char* line : {"HTTP/1.1 103 Hints\r\n", "Retry-After: 5\r\n", "\r\n"}) {
    EXPECT_TRUE(reader.OnHeaderLine(line));
  }
  EXPECT_FALSE(reader.head_done());
  for (const char* line : {"HTTP/1.1 204\r\n", "\r\n"}) EXPECT_TRUE(reader.OnHeaderLine(line));
  EXPECT_TRUE(reader.head_done());
  EXPECT_EQ(reader.status(), 204);
  EXPECT_TRUE(reader.TakeRetryAfter().empty());
}

// A line of blanks continues the field before it (RFC 9112, 5.2).
TEST(ResponseReaderTest, ALineOfBlanksEndsNoHead) {
  ResponseReader reader;
  reader.Start({1'000, 10, 100});
  for (const char* line : {"HTTP/1.1 503 Busy\r\n", " \t\r\n", "Retry-After: 7\r\n"}) {
    EXPECT_TRUE(reader.OnHeaderLine(line));
  }
  EXPECT_FALSE(reader.head_done());
  EXPECT_TRUE(reader.OnHeaderLine("\r\n"));
  EXPECT_TRUE(reader.head_done());
  EXPECT_EQ(reader.TakeRetryAfter(), (std::vector<std::string>{"7"}));
}

TEST(ResponseReaderTest, CountsLinesAndBytesOfAllHeads) {
  ResponseReader lines;
  lines.Start({1'000, 3, 100});
  for (const char* line : {"HTTP/1.1 200 OK\r\n", "a: b\r\n", "\r\n"}) {
    EXPECT_TRUE(lines.OnHeaderLine(line));
  }
  EXPECT_FALSE(lines.OnHeaderLine("trailer: x\r\n"));
  EXPECT_TRUE(lines.too_large());
  EXPECT_TRUE(lines.head_done());

  ResponseReader bytes;
  bytes.Start({20, 100, 100});
  EXPECT_TRUE(bytes.OnHeaderLine("HTTP/1.1 103 x\r\n"));
  EXPECT_TRUE(bytes.OnHeaderLine("a:b\n"));
  EXPECT_FALSE(bytes.OnHeaderLine("\n"));
}

TEST(ResponseReaderTest, KeepsSoMuchOfTheBody) {
  ResponseReader reader;
  reader.Start({1'000, 10, 4});
  EXPECT_TRUE(reader.OnBody("ab"));
  EXPECT_TRUE(reader.OnBody("cd"));
  EXPECT_FALSE(reader.OnBody("e"));
  EXPECT_EQ(reader.TakeBody(), "abcd");
}

TEST(ResponseReaderTest, KeepsTheLinesWhoseNamesBeginAsAskedAndNoMoreThanAFew) {
  ResponseReader reader;
  reader.Start({10'000, 100, 100, "webhook-"});
  EXPECT_TRUE(reader.OnHeaderLine("HTTP/1.1 103 Hints\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("webhook-rate: 1\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("Webhook-Batch-MAX:  7 \r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("webhook-long: " + std::string(129, 'x') + "\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("x-webhook-a: 1\r\n"));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(reader.OnHeaderLine("webhook-b: 1\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("webhook-trailer: 1\r\n"));
  const HttpHeaders kept = reader.TakeKept();
  ASSERT_EQ(kept.size(), 8u);
  EXPECT_EQ(kept[0].first, "webhook-batch-max");
  EXPECT_EQ(kept[0].second, "7");
  EXPECT_EQ(kept[7].first, "webhook-b");

  reader.Start({10'000, 100, 100});
  EXPECT_TRUE(reader.OnHeaderLine("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("webhook-rate: 1\r\n"));
  EXPECT_TRUE(reader.OnHeaderLine("\r\n"));
  EXPECT_TRUE(reader.TakeKept().empty());
}

}  // namespace
}  // namespace postrider::internal
