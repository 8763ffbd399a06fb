#include "loadtest/http_request.h"

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loadtest/behaviour.h"
#include "loadtest/envelope.h"
#include "loadtest/signature.h"

namespace postrider::loadtest {
namespace {

using ::testing::ElementsAre;
using Result = HttpRequestReader::Result;

TEST(HttpRequestReaderTest, CutsAStreamIntoRequestsHoweverItArrives) {
  const std::string stream =
      "POST /e/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nWebhook-Id:  msg_1 \r\n\r\nhello"
      "GET /next HTTP/1.1\r\n\r\n"
      "POST /c HTTP/1.1\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\n"
      "\r\n";
  for (size_t step : {size_t{1}, size_t{7}, stream.size()}) {
    HttpRequestReader reader;
    HttpRequest request;
    std::vector<std::string> seen;
    for (size_t at = 0; at < stream.size(); at += step) {
      reader.Append(absl::string_view(stream).substr(at, step));
      while (reader.Next(&request) == Result::kRequest) {
        seen.push_back(absl::StrCat(request.method, " ", request.target, " ",
                                    request.Header("WEBHOOK-ID"), " ", request.body));
        EXPECT_TRUE(request.keep_alive);
        reader.Consume();
      }
    }
    EXPECT_THAT(seen, ElementsAre("POST /e/1 msg_1 hello", "GET /next  ", "POST /c  abc0123456789"))
        << "step " << step;
    EXPECT_EQ(reader.buffered(), 0U);
    reader.Shrink();
  }
}

TEST(HttpRequestReaderTest, RefusesWhatIsNoRequest) {
  for (const char* bytes :
       {"nonsense\r\n\r\n", "GET / HTTP/2.0\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
        "GET /a b HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nname : x\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1x\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 16777217\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"}) {
    HttpRequestReader reader;
    HttpRequest request;
    reader.Append(bytes);
    EXPECT_EQ(reader.Next(&request), Result::kMalformed) << bytes;
  }
}

TEST(HttpRequestReaderTest, BoundsTheHead) {
  HttpRequestReader reader;
  HttpRequest request;
  reader.Append("GET / HTTP/1.1\r\n");
  reader.Append("a: " + std::string((64 << 10) - 30, 'x'));
  EXPECT_EQ(reader.Next(&request), Result::kNeedMore);
  reader.Append(std::string(100, 'x'));
  EXPECT_EQ(reader.Next(&request), Result::kMalformed);
}

TEST(HttpRequestReaderTest, SaysOnceThatTheSenderWaitsToGoOn) {
  HttpRequestReader reader;
  HttpRequest request;
  reader.Append("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(reader.Next(&request), Result::kNeedMore);
  EXPECT_TRUE(reader.TakeContinue());
  EXPECT_FALSE(reader.TakeContinue());
  reader.Append("ab");
  EXPECT_EQ(reader.Next(&request), Result::kRequest);
  EXPECT_FALSE(reader.TakeContinue());
  EXPECT_EQ(request.body, "ab");
}

TEST(HttpRequestReaderTest, HearsThatAConnectionWillNotBeKept) {
  for (const char* head :
       {"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"}) {
    HttpRequestReader reader;
    HttpRequest request;
    reader.Append(head);
    ASSERT_EQ(reader.Next(&request), Result::kRequest);
    EXPECT_FALSE(request.keep_alive);
  }
}

// The example of the Standard Webhooks specification's reference libraries.
TEST(SignatureTest, AgreesWithTheKnownVector) {
  const auto secret = DecodeSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
  ASSERT_TRUE(secret.ok());
  EXPECT_EQ(Sign(*secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", R"({"test": 2432232314})"),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(SignatureTest, TakesAnyOfSeveralAndNoneForAnotherByteOrKey) {
  const std::string secret(32, 'k');
  const std::string good = Sign(secret, "id", "1", "body");
  EXPECT_TRUE(VerifySignature(secret, "id", "1", "body", good));
  EXPECT_TRUE(VerifySignature(secret, "id", "1", "body", "v1a,xx v1,AAAA " + good));
  EXPECT_FALSE(VerifySignature(secret, "id", "1", "bodY", good));
  EXPECT_FALSE(VerifySignature(secret, "id", "2", "body", good));
  EXPECT_FALSE(VerifySignature(secret, "ie", "1", "body", good));
  EXPECT_FALSE(VerifySignature(std::string(32, 'l'), "id", "1", "body", good));
  EXPECT_FALSE(VerifySignature(secret, "id", "1", "body", ""));
  EXPECT_FALSE(VerifySignature(secret, "id", "1", "body", good.substr(3)));
}

TEST(SignatureTest, HashesALongKeyFirst) {
  // RFC 4231, case 6: a key of 131 bytes; here over "." joined parts that give the same text.
  const std::string secret(131, '\xaa');
  EXPECT_TRUE(VerifySignature(secret, "a", "b", "c", Sign(secret, "a", "b", "c")));
  EXPECT_NE(Sign(secret, "a", "b", "c"), Sign(secret.substr(0, 64), "a", "b", "c"));
}

TEST(SignatureTest, RefusesASecretThatIsNone) {
  EXPECT_FALSE(DecodeSecret("").ok());
  EXPECT_FALSE(DecodeSecret("whsec_").ok());
  EXPECT_FALSE(DecodeSecret("whsec_%%%%").ok());
  EXPECT_FALSE(DecodeSecret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").ok());
}

constexpr char kOne[] =
    R"({"id":"msg_1","event_id":"ev","type":"a.b","timestamp":"2026-01-01T00:00:00.000Z",)"
    R"("tenant":"t1","department":null,"data":{"a":[1,"}],{"],"b":"\u00e9"}})";

TEST(EnvelopeReaderTest, ReadsOneAndMany) {
  EnvelopeReader reader;
  std::vector<std::string> seen;
  const auto visit = [&](const EnvelopeMessage& m) {
    seen.push_back(absl::StrCat(m.id, "|", m.event_id, "|", m.type, "|", m.tenant, "|",
                                m.department, "|", m.data));
  };
  const std::string one = R"(msg_1|ev|a.b|t1||{"a":[1,"}],{"],"b":"\u00e9"})";
  EXPECT_EQ(reader.Read(kOne, visit), EnvelopeReader::Shape::kSingle);
  EXPECT_THAT(seen, ElementsAre(one));
  seen.clear();
  const std::string other =
      R"({"data":"text","department":"d1","tenant":"t2","timestamp":"x","type":"c","event_id":"e2","id":"m2"})";
  EXPECT_EQ(reader.Read(absl::StrCat("[", kOne, ",", other, "]"), visit),
            EnvelopeReader::Shape::kBatch);
  EXPECT_THAT(seen, ElementsAre(one, R"(m2|e2|c|t2|d1|"text")"));
}

TEST(EnvelopeReaderTest, RefusesWhatIsNoEnvelope) {
  EnvelopeReader reader;
  const auto visit = [](const EnvelopeMessage&) {};
  const std::string one = kOne;
  for (const std::string& body :
       {std::string(), std::string("1"), std::string("{}"), std::string("[1]"), one + "x",
        one + one, "[" + one, "[" + one + "]]", one.substr(0, one.size() - 1) + ",\"id\":\"y\"}",
        one.substr(0, one.size() - 1) + ",\"more\":1}"}) {
    EXPECT_EQ(reader.Read(body, visit), EnvelopeReader::Shape::kMalformed) << body;
  }
}

TEST(BehaviourTest, ReadsPathsAndRules) {
  const auto rules = Behaviours::Parse(
      "# all well but\n/e/1 500\n/e/2 429 7\n/slow/ slow 250\n/ 204\n\n/answer/500 flaky 10 # "
      "note\n");
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ(rules->For("/e/1").status, 500);
  EXPECT_EQ(rules->For("/e/12").status, 204);
  EXPECT_EQ(rules->For("/e/2").status, 429);
  EXPECT_EQ(rules->For("/e/2").retry_after_s, 7);
  EXPECT_EQ(rules->For("/slow/e/3").delay, std::chrono::milliseconds(250));
  EXPECT_EQ(rules->For("/answer/500/e/3").failing_percent, 10);

  const Behaviours none;
  EXPECT_EQ(none.For("/e/1").status, 200);
  EXPECT_EQ(none.For("/answer/503/e/1").status, 503);
  EXPECT_EQ(none.For("/answer/429/5/e/1").retry_after_s, 5);
  EXPECT_EQ(none.For("/answer/slow/20/e/1").delay, std::chrono::milliseconds(20));
  EXPECT_EQ(none.For("/answer/hang/e/1").kind, Behaviour::Kind::kHang);
  EXPECT_EQ(none.For("/answer/reset/e/1").kind, Behaviour::Kind::kReset);
  EXPECT_EQ(none.For("/answer/nonsense/e/1").status, 200);
}

TEST(BehaviourTest, RefusesRulesItDoesNotKnow) {
  for (const char* rules :
       {"/e/1", "e/1 500", "/e/1 soon", "/e/1 slow", "/e/1 slow x", "/e/1 99", "/e/1 hang 3",
        "/e/1 500 1 2", "/e/1 flaky 101", "/e/1 limit 0", "/e/1 limit"}) {
    EXPECT_FALSE(Behaviours::Parse(rules).ok()) << rules;
  }
}

TEST(BehaviourTest, BreaksDownFarAboveItsLimit) {
  ASSERT_EQ(Behaviours::Parse("/e/1 limit 20\n")->For("/e/1").requests_per_second, 20);
  RequestRates rates;
  for (int request = 1; request <= 60; ++request) {
    EXPECT_EQ(rates.Answer("/e/1", 20, 5'000 + request), request <= 20 ? 200 : 429) << request;
  }
  EXPECT_EQ(rates.Answer("/e/2", 20, 5'500), 200) << "each has its own";
  EXPECT_EQ(rates.Answer("/e/1", 20, 6'000), 200) << "another second";
  for (int request = 2; request <= 60; ++request) rates.Answer("/e/1", 20, 6'000 + request);
  EXPECT_EQ(rates.breakdowns(), 0U);
  EXPECT_EQ(rates.Answer("/e/1", 20, 6'100), 503);
  EXPECT_EQ(rates.breakdowns(), 1U);
  EXPECT_EQ(rates.Answer("/e/1", 20, 6'099 + RequestRates::kBrokenMs), 503);
  EXPECT_EQ(rates.Answer("/e/1", 20, 6'100 + RequestRates::kBrokenMs), 200);
  EXPECT_EQ(rates.breakdowns(), 1U);
}

TEST(BehaviourTest, FindsTheEndpointInAPath) {
  EXPECT_EQ(EndpointOfPath("/e/17"), 17U);
  EXPECT_EQ(EndpointOfPath("/answer/500/e/0"), 0U);
  for (const char* path : {"/", "/e/", "/e/x", "/e/1/2", "/e/-1", "/17"}) {
    EXPECT_FALSE(EndpointOfPath(path).has_value()) << path;
  }
}

}  // namespace
}  // namespace postrider::loadtest
