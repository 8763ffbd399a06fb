#include "core/http/internal/response_parser.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace postrider::internal {
namespace {

constexpr ResponseLimits kLimits = {1'000, 20, 100, "webhook-"};

enum class Ending { kOpen, kEnd, kBreak };

// What an answer came to; equal for the same bytes however they were cut.
struct Reading {
  HttpFailure failure = HttpFailure::kNone;
  int status = 0;
  bool done = false;
  bool cut = false;
  bool reusable = false;
  size_t taken = 0;
  std::string body;
  std::vector<std::string> retry_after;
  HttpHeaders kept;

  bool operator==(const Reading& other) const {
    return failure == other.failure && status == other.status && done == other.done &&
           cut == other.cut && reusable == other.reusable && taken == other.taken &&
           body == other.body && retry_after == other.retry_after && kept == other.kept;
  }
};

Reading ReadPieces(absl::string_view bytes, size_t piece, Ending ending, AnswerTo request) {
  ResponseParser parser;
  parser.Start(kLimits, request);
  Reading reading;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const absl::string_view part = bytes.substr(at, piece);
    reading.taken += parser.OnBytes(part);
  }
  if (ending == Ending::kEnd) parser.OnEnd();
  if (ending == Ending::kBreak) parser.OnBreak();
  reading.failure = parser.failure();
  EXPECT_EQ(parser.failed(), parser.failure() != HttpFailure::kNone);
  EXPECT_EQ(parser.received_any(), !bytes.empty());
  reading.done = parser.done();
  if (parser.reader().head_done()) reading.status = parser.reader().status();
  reading.cut = parser.body_cut();
  reading.reusable = parser.reusable();
  reading.body = parser.reader().TakeBody();
  // Of an answer that was not read to its end it tells nothing.
  if (reading.failure != HttpFailure::kNone || reading.cut) reading.taken = 0;
  reading.retry_after = parser.reader().TakeRetryAfter();
  reading.kept = parser.reader().TakeKept();
  return reading;
}

// In one piece, byte by byte, and in some sizes between: always the same.
Reading Read(absl::string_view bytes, Ending ending = Ending::kOpen,
             AnswerTo request = AnswerTo::kPost) {
  const Reading whole = ReadPieces(bytes, bytes.size() + 1, ending, request);
  for (const size_t piece : {1u, 2u, 3u, 7u, 50u}) {
    const Reading cut = ReadPieces(bytes, piece, ending, request);
    EXPECT_TRUE(cut == whole) << piece << " of " << bytes;
  }
  return whole;
}

// Of a status and a body, complete and on a connection that goes on.
void ExpectWhole(const Reading& reading, int status, absl::string_view body) {
  EXPECT_TRUE(reading.done);
  EXPECT_EQ(reading.failure, HttpFailure::kNone);
  EXPECT_EQ(reading.status, status);
  EXPECT_EQ(reading.body, std::string(body));
  EXPECT_FALSE(reading.cut);
  EXPECT_TRUE(reading.reusable);
}

std::string Ok(absl::string_view fields, absl::string_view body = "") {
  return absl::StrCat("HTTP/1.1 200 OK\r\n", fields, "\r\n", body);
}

TEST(ResponseParserTest, ReadsAnAnswerOfKnownLength) {
  ExpectWhole(Read(Ok("Content-Length: 5\r\n", "hello")), 200, "hello");
  ExpectWhole(Read(Ok("content-LENGTH:5\r\nServer: x\r\n", "hello")), 200, "hello");
  ExpectWhole(Read(Ok("Content-Length: 0\r\n")), 200, "");
  ExpectWhole(Read("HTTP/1.1 404 Not Found\r\nContent-Length:  \t 2 \t\r\n\r\nno"), 404, "no");
  const Reading first = Read(Ok("Content-Length: 5\r\n", "hell"));
  EXPECT_FALSE(first.done);
  EXPECT_EQ(first.status, 200);
  EXPECT_TRUE(first.cut);
  EXPECT_FALSE(first.reusable);
}

TEST(ResponseParserTest, TellsWhetherAnythingCame) {
  ResponseParser parser;
  parser.Start(kLimits);
  EXPECT_EQ(parser.OnBytes(""), 0u);
  EXPECT_FALSE(parser.received_any());
  parser.OnEnd();
  EXPECT_EQ(parser.failure(), HttpFailure::kReset);
  parser.Start(kLimits);
  EXPECT_FALSE(parser.failed());
  EXPECT_EQ(parser.OnBytes("H"), 1u);
  EXPECT_TRUE(parser.received_any());
}

TEST(ResponseParserTest, TakesEveryFormOfAStatusLineThatTellsTheStatus) {
  for (const absl::string_view line :
       {"HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.1 200 OK", "HTTP/1.1  200 OK", "HTTP/1.2 200 OK",
        "HTTP/1.1 200 \xff\x01 any: thing"}) {
    ExpectWhole(Read(absl::StrCat(line, "\r\nContent-Length: 1\r\n\r\nx")), 200, "x");
    ExpectWhole(Read(absl::StrCat(line, "\nContent-Length: 1\n\nx")), 200, "x");
  }
  for (const int status : {200, 299, 300, 599, 600, 999}) {
    ExpectWhole(Read(absl::StrCat("HTTP/1.1 ", status, " X\r\nContent-Length: 0\r\n\r\n")), status,
                "");
  }
  for (const absl::string_view line : {"HTTP/2 200", "HTTP/2.0 200 OK"}) {
    const Reading reading = Read(absl::StrCat(line, "\r\nContent-Length: 1\r\n\r\nx"));
    EXPECT_EQ(reading.status, 200) << line;
    EXPECT_EQ(reading.body, "x");
    EXPECT_FALSE(reading.cut);
    EXPECT_FALSE(reading.reusable) << line;
  }
}

TEST(ResponseParserTest, WhatIsNoHttpIsAProtocolFailure) {
  const std::string nonsense[] = {
      "HTTP/1.1 OK\r\n\r\n",
      "HTTP/1.1 20 OK\r\n\r\n",
      "HTTP/1.1 2000 OK\r\n\r\n",
      "HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n",
      "HTTP/1.1 -20 OK\r\n\r\n",
      "HTTP/1.1 2x0 OK\r\n\r\n",
      "HTTP/1.1 200OK\r\n\r\n",
      "HTTP/1.1 200\tOK\r\n\r\n",
      std::string("HTTP/1.1 200\0OK\r\n\r\n", 19),
      "HTTP/1.1\r\n\r\n",
      "HTTP/1.1 \r\n\r\n",
      "HTTP/1.1\t200 OK\r\n\r\n",
      "HTTP/1.10 200 OK\r\n\r\n",
      "HTTP/1. 200 OK\r\n\r\n",
      "HTTP/0.9 200 OK\r\n\r\n",
      "HTTP/2.1 200 OK\r\n\r\n",
      "HTTP/9.9 200 OK\r\n\r\n",
      "http/1.1 200 OK\r\n\r\n",
      " HTTP/1.1 200 OK\r\n\r\n",
      "ICY 200 OK\r\n\r\n",
      "HTTP\n",
      "\r\n\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
      // Without the end of a line: told at once.
      "<html>200</html>",
      "SSH-2.0",
      std::string(64, '\0'),
      std::string(5'000, 'x'),
      "HX",
      // After an interim answer.
      "HTTP/1.1 100 Continue\r\n\r\nhello",
  };
  for (const std::string& text : nonsense) {
    const Reading reading = Read(text);
    EXPECT_TRUE(reading.done) << text;
    EXPECT_EQ(reading.failure, HttpFailure::kProtocol) << text;
    EXPECT_EQ(reading.status, 0) << text;
    EXPECT_FALSE(reading.reusable);
    EXPECT_FALSE(reading.cut);
  }
}

TEST(ResponseParserTest, AnEndWithinTheHeadIsAReset) {
  const std::string head = "HTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + Ok("Content-Length: 5\r\n");
  for (size_t size = 0; size < head.size(); ++size) {
    for (const Ending ending : {Ending::kEnd, Ending::kBreak}) {
      const Reading reading = Read(head.substr(0, size), ending);
      EXPECT_TRUE(reading.done);
      EXPECT_EQ(reading.failure, HttpFailure::kReset) << size;
      EXPECT_EQ(reading.status, 0);
    }
  }
  const Reading cut = Read(head, Ending::kEnd);
  EXPECT_EQ(cut.failure, HttpFailure::kNone);
  EXPECT_EQ(cut.status, 200);
  EXPECT_TRUE(cut.cut);
}

TEST(ResponseParserTest, InterimAnswersAreSkipped) {
  const std::string interim =
      "HTTP/1.1 103 Hints\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\n"
      "Retry-After: 5\r\nwebhook-rate: 1\r\nConnection: close\r\n\r\n";
  const Reading reading = Read("HTTP/1.1 100 Continue\r\n\r\n" + interim +
                               Ok("Retry-After: 9\r\nContent-Length: 1\r\n", "x"));
  ExpectWhole(reading, 200, "x");
  EXPECT_EQ(reading.retry_after, (std::vector<std::string>{"9"}));
  EXPECT_TRUE(reading.kept.empty());
  // Each has at least two lines, and 20 are allowed.
  std::string many;
  for (int i = 0; i < 8; ++i) many += "HTTP/1.1 199 X\r\n\r\n";
  ExpectWhole(Read(many + Ok("Content-Length: 0\r\n")), 200, "");
  many += "HTTP/1.1 199 X\r\n\r\n";
  EXPECT_EQ(Read(many + Ok("Content-Length: 0\r\n")).failure, HttpFailure::kHeadersTooLarge);
}

// A doubt about an interim head is one about all that follows it.
TEST(ResponseParserTest, ADoubtOfAnInterimAnswerCostsTheConnection) {
  const Reading reading =
      Read("HTTP/1.1 100 Continue\r\nno colon\r\n\r\n" + Ok("Content-Length: 1\r\n", "x"));
  EXPECT_EQ(reading.status, 200);
  EXPECT_FALSE(reading.cut);
  EXPECT_FALSE(reading.reusable);
}

TEST(ResponseParserTest, AnUpgradeThatNobodyAskedForEndsTheConnection) {
  const Reading reading =
      Read("HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n\x01\x02");
  EXPECT_TRUE(reading.done);
  EXPECT_EQ(reading.status, 101);
  EXPECT_FALSE(reading.reusable);
  EXPECT_EQ(reading.body, "");
}

TEST(ResponseParserTest, SomeAnswersHaveNoBody) {
  ExpectWhole(Read("HTTP/1.1 204 No\r\n\r\n"), 204, "");
  ExpectWhole(Read("HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n"), 204, "");
  ExpectWhole(Read("HTTP/1.1 304 Same\r\n\r\n"), 304, "");
  // What is announced may yet come, so the connection is not taken again.
  for (const absl::string_view field : {"Content-Length: 5", "Transfer-Encoding: chunked"}) {
    for (const int status : {204, 304}) {
      const Reading reading = Read(absl::StrCat("HTTP/1.1 ", status, " X\r\n", field, "\r\n\r\n"));
      EXPECT_TRUE(reading.done) << field;
      EXPECT_EQ(reading.status, status);
      EXPECT_FALSE(reading.cut);
      EXPECT_FALSE(reading.reusable) << field;
    }
  }
  // 205 has one like any other (RFC 9112, 6.3 names only 204 and 304).
  ExpectWhole(Read("HTTP/1.1 205 Reset\r\nContent-Length: 2\r\n\r\nab"), 205, "ab");
}

TEST(ResponseParserTest, BytesAfterTheAnswerAreNotTaken) {
  const std::string answers[] = {
      Ok("Content-Length: 5\r\n", "hello"),
      Ok("Content-Length: 0\r\n"),
      Ok("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
      "HTTP/1.1 204 No\r\n\r\n",
  };
  for (const std::string& answer : answers) {
    EXPECT_TRUE(Read(answer).reusable);
    for (const absl::string_view surplus : {"\r\n", "x", "HTTP/1.1 200 OK\r\n\r\n"}) {
      const Reading reading = Read(absl::StrCat(answer, surplus));
      EXPECT_EQ(reading.taken, answer.size());
      EXPECT_FALSE(reading.cut);
      EXPECT_FALSE(reading.reusable) << answer << surplus;
    }
  }
}

TEST(ResponseParserTest, TheConnectionEndsAsTheAnswerSays) {
  const absl::string_view keep[] = {"Connection: keep-alive\r\n", "Connection: x, Keep-Alive\r\n",
                                    "X-Connection: close\r\n", "Connection: closed\r\n",
                                    "Connection:\r\n"};
  for (const absl::string_view field : keep) {
    EXPECT_TRUE(Read(Ok(absl::StrCat(field, "Content-Length: 0\r\n"))).reusable) << field;
  }
  const absl::string_view close[] = {"Connection: close\r\n", "connection: Close, x\r\n",
                                     "Connection: keep-alive\r\nConnection: x ,\tCLOSE\r\n",
                                     "Connection : close\r\n"};
  for (const absl::string_view field : close) {
    const Reading reading = Read(Ok(absl::StrCat(field, "Content-Length: 1\r\n"), "x"));
    EXPECT_FALSE(reading.reusable) << field;
    EXPECT_FALSE(reading.cut);
    EXPECT_TRUE(reading.done);
  }
  // HTTP/1.0 ends it unless it says otherwise.
  EXPECT_FALSE(Read("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").reusable);
  EXPECT_TRUE(
      Read("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n").reusable);
  // The end of the connection after a whole answer changes only that.
  const Reading ended = Read(Ok("Content-Length: 1\r\n", "x"), Ending::kEnd);
  EXPECT_FALSE(ended.cut);
  EXPECT_FALSE(ended.reusable);
  EXPECT_EQ(ended.failure, HttpFailure::kNone);
}

TEST(ResponseParserTest, WithoutALengthTheBodyGoesToTheEnd) {
  for (const absl::string_view head :
       {"HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked;q=1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n"}) {
    const std::string bytes = absl::StrCat(head, "until the end");
    EXPECT_FALSE(Read(bytes).done) << head;
    EXPECT_TRUE(Read(bytes).cut);
    const Reading ended = Read(bytes, Ending::kEnd);
    EXPECT_TRUE(ended.done);
    EXPECT_EQ(ended.status, 200);
    EXPECT_EQ(ended.body, "until the end");
    EXPECT_FALSE(ended.cut) << head;
    EXPECT_FALSE(ended.reusable);
    // A connection that breaks may have had more to say.
    const Reading broken = Read(bytes, Ending::kBreak);
    EXPECT_TRUE(broken.cut);
    EXPECT_EQ(broken.failure, HttpFailure::kNone);
    EXPECT_EQ(broken.status, 200);
  }
}

TEST(ResponseParserTest, LengthsThatSayTheSameAreOne) {
  for (const absl::string_view fields :
       {"Content-Length: 5\r\nContent-Length: 5\r\n", "Content-Length: 5, 5\r\n",
        "Content-Length: 5\r\ncontent-length: 005\r\n"}) {
    ExpectWhole(Read(Ok(fields, "hello")), 200, "hello");
  }
}

TEST(ResponseParserTest, AHeadThatContradictsItselfDecidesAndEndsTheConnection) {
  const absl::string_view heads[] = {
      "Content-Length: 5\r\nContent-Length: 6\r\n",
      "Content-Length: 5, 6\r\n",
      "Content-Length: 5,\r\n",
      "Content-Length:\r\n",
      "Content-Length: -5\r\n",
      "Content-Length: +5\r\n",
      "Content-Length: 0x5\r\n",
      "Content-Length: 5 5\r\n",
      "Content-Length: 5\r\r\n",
      "Content-Length: five\r\n",
      "Content-Length: 5\r\n 6\r\n",
      "Transfer-Encoding:\r\n chunked\r\n",
      "Transfer-Encoding: chunked, chunked\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: Chunked\r\n",
      "Transfer-Encoding: chunked\r\nContent-Length: x\r\n",
  };
  for (const absl::string_view fields : heads) {
    const Reading reading = Read(Ok(fields, "5\r\nhello\r\n0\r\n\r\n"));
    EXPECT_TRUE(reading.done) << fields;
    EXPECT_EQ(reading.failure, HttpFailure::kNone);
    EXPECT_EQ(reading.status, 200);
    EXPECT_EQ(reading.body, "") << fields;
    EXPECT_TRUE(reading.cut) << fields;
    EXPECT_FALSE(reading.reusable);
  }
}

TEST(ResponseParserTest, WhatCouldBeReadInTwoWaysCostsTheConnectionAlone) {
  const std::string heads[] = {
      "Content-Length : 5\r\n",
      "Content-Length\t: 5\r\n",
      "Content-Length: 5\r\nX: a\r\n b\r\n",
      " Content-Length: 6\r\nContent-Length: 5\r\n",
      "Content-Length: 5\r\nX: a\r\n \t\r\n",
      "Content-Length: 5\r\nno colon\r\n",
      "Content-Length: 5\r\n: no name\r\n",
      "Content-Length: 5\r\nX: a\rb\r\n",
      "Content-Length: 5\r\n\rX: b\r\n",
      std::string("Content-Length: 5\r\nX: a\0b\r\n", 27),
      std::string("Content-Length: 5\r\nX\0: b\r\n", 26),
      "Transfer-Encoding: identity\r\nContent-Length: 5\r\n",
      "Transfer-Encoding:\r\nContent-Length: 5\r\n",
  };
  for (const std::string& fields : heads) {
    const Reading reading = Read(Ok(fields, "hello"));
    EXPECT_TRUE(reading.done) << fields;
    EXPECT_EQ(reading.status, 200);
    EXPECT_EQ(reading.body, "hello") << fields;
    EXPECT_FALSE(reading.cut);
    EXPECT_FALSE(reading.reusable) << fields;
  }
}

// A line of blanks is no empty line: what comes after it is the head still.
TEST(ResponseParserTest, ALineOfBlanksEndsNoHead) {
  const Reading reading =
      Read("HTTP/1.1 503 Busy\r\n \r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(reading.status, 503);
  EXPECT_EQ(reading.retry_after, (std::vector<std::string>{"7"}));
  EXPECT_FALSE(reading.reusable);
}

TEST(ResponseParserTest, ReadsAChunkedBody) {
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  ExpectWhole(Read(Ok(chunked, "0\r\n\r\n")), 200, "");
  ExpectWhole(Read(Ok(chunked, "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n")), 200, "hello!");
  ExpectWhole(Read(Ok(chunked, "00A\r\n0123456789\r\na\r\n0123456789\r\n000\r\n\r\n")), 200,
              "01234567890123456789");
  ExpectWhole(Read(Ok("transfer-encoding: gzip,\tChunked\r\n", "1\r\nx\r\n0\r\n\r\n")), 200, "x");
  ExpectWhole(Read(Ok("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")),
              200, "");
  // Extensions and trailers mean nothing to us.
  ExpectWhole(Read(Ok(chunked,
                      "1;a=\"b;\" ; c\r\nx\r\n0 \t;d\r\nContent-Length: 9\r\n"
                      "webhook-rate: 4\r\nConnection: close\r\n\r\n")),
              200, "x");
}

TEST(ResponseParserTest, ALengthBesideChunksCostsTheConnection) {
  for (const absl::string_view head :
       {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    const Reading reading = Read(absl::StrCat(head, "5\r\nhello\r\n0\r\n\r\n"));
    EXPECT_TRUE(reading.done) << head;
    EXPECT_EQ(reading.body, "hello");
    EXPECT_FALSE(reading.cut);
    EXPECT_FALSE(reading.reusable) << head;
  }
}

TEST(ResponseParserTest, LoneLineFeedsBetweenChunksCostTheConnection) {
  for (const absl::string_view body :
       {"1\nx\r\n0\r\n\r\n", "1\r\nx\n0\r\n\r\n", "1\r\nx\r\n0\n\r\n", "1;a\nx\r\n0\r\n\r\n"}) {
    const Reading reading = Read(Ok("Transfer-Encoding: chunked\r\n", body));
    EXPECT_TRUE(reading.done) << body;
    EXPECT_EQ(reading.body, "x");
    EXPECT_FALSE(reading.cut);
    EXPECT_FALSE(reading.reusable) << body;
  }
}

TEST(ResponseParserTest, ABrokenChunkEndsTheReading) {
  for (const absl::string_view bad :
       {"zz\r\n", "\r\n", "-5\r\n", "+5\r\n", " 5\r\n", "0x5\r\n", ";a\r\n", "5x\r\n", "5\rx",
        "ffffffffffffffff\r\n", "0000000000000001\r\n", "5;a\rb\r\n"}) {
    const Reading first = Read(Ok("Transfer-Encoding: chunked\r\n", absl::StrCat(bad, "hello")));
    EXPECT_TRUE(first.done) << bad;
    EXPECT_EQ(first.status, 200);
    EXPECT_EQ(first.body, "");
    EXPECT_TRUE(first.cut) << bad;
    EXPECT_FALSE(first.reusable);
    const Reading second =
        Read(Ok("Transfer-Encoding: chunked\r\n", absl::StrCat("2\r\nab\r\n", bad, "hello")));
    EXPECT_TRUE(second.done) << bad;
    EXPECT_EQ(second.body, "ab");
    EXPECT_TRUE(second.cut) << bad;
  }
  for (const absl::string_view body : {"2\r\nabc", "2\r\nab\rx", "2\r\nab0\r\n\r\n"}) {
    const Reading reading = Read(Ok("Transfer-Encoding: chunked\r\n", body));
    EXPECT_TRUE(reading.done) << body;
    EXPECT_EQ(reading.body, "ab");
    EXPECT_TRUE(reading.cut) << body;
  }
  // The largest that is taken for a size.
  const Reading large = Read(Ok("Transfer-Encoding: chunked\r\n", "fffffffffffffff\r\nabc"));
  EXPECT_FALSE(large.done);
  EXPECT_EQ(large.body, "abc");
}

TEST(ResponseParserTest, AChunkedBodyWithoutItsEndIsCut) {
  const std::string whole = "5\r\nhello\r\n0\r\nT: x\r\n\r\n";
  for (size_t size = 0; size < whole.size(); ++size) {
    for (const Ending ending : {Ending::kEnd, Ending::kBreak}) {
      const Reading reading =
          Read(Ok("Transfer-Encoding: chunked\r\n", whole.substr(0, size)), ending);
      EXPECT_EQ(reading.status, 200);
      EXPECT_TRUE(reading.cut) << size;
      EXPECT_EQ(reading.failure, HttpFailure::kNone);
    }
  }
}

TEST(ResponseParserTest, StopsWhenTheBodyIsLongerThanWanted) {
  const std::string fits(100, 'x');
  const std::string beyond(101, 'x');
  ExpectWhole(Read(Ok("Content-Length: 100\r\n", fits)), 200, fits);
  ExpectWhole(Read(Ok("Transfer-Encoding: chunked\r\n", "64\r\n" + fits + "\r\n0\r\n\r\n")), 200,
              fits);
  EXPECT_FALSE(Read(Ok("", fits), Ending::kEnd).cut);
  for (const std::string& answer :
       {Ok("Content-Length: 101\r\n", beyond),
        Ok("Content-Length: 18446744073709551616\r\n", beyond),
        Ok("Content-Length: 9223372036854775807\r\n", beyond), Ok("", beyond),
        Ok("Transfer-Encoding: chunked\r\n", "65\r\n" + beyond)}) {
    const Reading reading = Read(answer);
    EXPECT_TRUE(reading.done);
    EXPECT_EQ(reading.status, 200);
    EXPECT_EQ(reading.body, fits);
    EXPECT_TRUE(reading.cut);
    EXPECT_FALSE(reading.reusable);
  }
}

TEST(ResponseParserTest, TooLargeAHeadIsAFailureOnBothSidesOfEachLimit) {
  // 1,000 bytes and 20 lines.
  const std::string rest = "Content-Length: 0\r\n\r\n";
  const auto head = [&](size_t bytes) {
    const std::string first = "HTTP/1.1 200 OK\r\nX: ";
    return first + std::string(bytes - first.size() - 2 - rest.size(), 'y') + "\r\n" + rest;
  };
  ASSERT_EQ(head(1'000).size(), 1'000u);
  ExpectWhole(Read(head(1'000)), 200, "");
  EXPECT_EQ(Read(head(1'001)).failure, HttpFailure::kHeadersTooLarge);
  EXPECT_EQ(Read("HTTP/1.1 200 " + std::string(987, 'y')).failure, HttpFailure::kNone);
  EXPECT_EQ(Read("HTTP/1.1 200 " + std::string(988, 'y')).failure, HttpFailure::kHeadersTooLarge);
  // What comes first counts: the limit, or the byte that is no HTTP.
  const std::string interim = "HTTP/1.1 103 H\r\nX: " + std::string(975, 'y') + "\r\n\r\n";
  ASSERT_EQ(interim.size(), 998u);
  EXPECT_EQ(Read(interim + "HTx").failure, HttpFailure::kHeadersTooLarge);
  EXPECT_EQ(Read(interim + "Hx\n").failure, HttpFailure::kProtocol);
  const auto lines = [](int count) {
    std::string text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n";
    for (int i = 3; i < count; ++i) text += "a: b\r\n";
    return text + "\r\n";
  };
  ExpectWhole(Read(lines(20)), 200, "");
  EXPECT_EQ(Read(lines(21)).failure, HttpFailure::kHeadersTooLarge);
  EXPECT_EQ(Read(lines(21)).status, 0);
}

TEST(ResponseParserTest, TrailersAndExtensionsCountToTheLimitsOfTheHead) {
  std::string lines;
  for (int i = 0; i < 16; ++i) lines += "T: x\r\n";
  const std::string head = "Transfer-Encoding: chunked\r\n";
  ExpectWhole(Read(Ok(head, "1\r\na\r\n0\r\n" + lines + "\r\n")), 200, "a");
  const size_t left = 1'000 - Ok(head).size() - 2;
  ExpectWhole(Read(Ok(head, "1;" + std::string(left - 1, 'e') + "\r\na\r\n0\r\n\r\n")), 200, "a");
  for (const std::string& body :
       {"1\r\na\r\n0\r\n" + lines + "T: x\r\n\r\n", "1\r\na\r\n0\r\n" + std::string(1'000, 'T'),
        "1\r\na\r\n0;" + std::string(1'000, 'e')}) {
    const Reading reading = Read(Ok(head, body));
    EXPECT_TRUE(reading.done);
    EXPECT_EQ(reading.failure, HttpFailure::kNone);
    EXPECT_EQ(reading.status, 200);
    EXPECT_EQ(reading.body, "a");
    EXPECT_TRUE(reading.cut);
    EXPECT_FALSE(reading.reusable);
  }
}

TEST(ResponseParserTest, KeepsTheFieldsThatAreWanted) {
  const Reading reading =
      Read(Ok("Retry-After : 7\r\nWebhook-Rate: 5 \r\nX-Webhook-Rate: 6\r\nContent-Length: 0\r\n"));
  EXPECT_EQ(reading.retry_after, (std::vector<std::string>{"7"}));
  EXPECT_EQ(reading.kept, (HttpHeaders{{"webhook-rate", "5"}}));
}

TEST(ResponseParserTest, A2xxToConnectOpensTheTunnelWhateverItAnnounces) {
  for (const absl::string_view fields :
       {"", "Content-Length: 5\r\n", "Connection: close\r\n", "no colon\r\n"}) {
    const Reading reading = Read(Ok(fields), Ending::kOpen, AnswerTo::kConnect);
    ExpectWhole(reading, 200, "");
  }
  ExpectWhole(
      Read("HTTP/1.0 200 Connection established\r\n\r\n", Ending::kOpen, AnswerTo::kConnect), 200,
      "");
  const Reading refused =
      Read("HTTP/1.1 502 No\r\nContent-Length: 2\r\n\r\nno", Ending::kOpen, AnswerTo::kConnect);
  EXPECT_EQ(refused.status, 502);
  EXPECT_EQ(refused.body, "no");
}

TEST(ResponseParserTest, StartsAnewAfterAnAnswerOfAnyKind) {
  ResponseParser parser;
  for (const std::string& before :
       {Ok("Content-Length: 9\r\n", "half"), std::string("nonsense"), Ok("X: half a li"),
        Ok("Transfer-Encoding: chunked\r\n", "1\nx\n"),
        Ok("Connection: close\r\n", "to the end")}) {
    parser.Start(kLimits);
    parser.OnBytes(before);
    parser.OnBreak();
    EXPECT_FALSE(parser.reusable());
    parser.Start(kLimits);
    const std::string answer = Ok("Content-Length: 5\r\n", "hello");
    EXPECT_EQ(parser.OnBytes(answer), answer.size());
    EXPECT_TRUE(parser.reusable());
    EXPECT_FALSE(parser.failed());
    EXPECT_EQ(parser.reader().TakeBody(), "hello");
  }
}

}  // namespace
}  // namespace postrider::internal
