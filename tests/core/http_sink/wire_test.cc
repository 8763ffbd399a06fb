// What goes over the wire, byte by byte, and whom a certificate may name.

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/core/http_sink/sink_fixture.h"
#include "tests/fakes/tls_stub.h"

namespace postrider {
namespace {

using tests::Certificate;
using tests::RawSocketStub;
using tests::SendBytes;
using tests::StubAnswer;
using tests::StubRequest;
using tests::StubScript;
using tests::TlsStub;
using tests::WaitFor;

class SinkWireTest : public SinkTest {};

TEST_F(SinkWireTest, TheTargetAndTheHostStandAsTheyWereGiven) {
  RawSocketStub stub(*loop_);
  resolver_.answers["hook.example"] = {{"127.0.0.1"}};
  const std::string host = "hook.example:" + std::to_string(stub.port());
  const std::pair<std::string, std::string> rows[] = {
      {"", "/"},
      {"/", "/"},
      {"?a=b", "/?a=b"},
      {"/a//b/./c/..%2f?x=1&y=%20/?", "/a//b/./c/..%2f?x=1&y=%20/?"}};
  for (const auto& [written, sent] : rows) {
    EXPECT_EQ(Send("http://" + host + written).status, 200) << written;
    EXPECT_EQ(stub.requests().back().head.substr(0, sent.size() + 16),
              "POST " + sent + " HTTP/1.1\r\n");
    EXPECT_EQ(stub.requests().back().Header("host"), host);
  }
  EXPECT_EQ(stub.connections(), 1);
}

TEST_F(SinkWireTest, AnIpv6LiteralStandsInBrackets) {
  AddressRulesOptions rules;
  rules.allow = {"::1"};
  allow_loopback_ = *AddressRules::Create(rules);
  RawSocketStub stub(*loop_, "::1");
  const std::string host = "[::1]:" + std::to_string(stub.port());
  EXPECT_EQ(Send("http://" + host + "/").status, 200);
  ASSERT_EQ(stub.requests().size(), 1u);
  EXPECT_EQ(stub.requests()[0].Header("host"), host);
}

TEST_F(SinkWireTest, ABodyIsSentByItsBytesWhateverTheyAre) {
  RawSocketStub stub(*loop_);
  std::string all;
  for (int i = 0; i < 512; ++i) all.push_back(static_cast<char>(i % 256));
  for (const std::string& body : {std::string(), std::string(1, '\0'), all}) {
    EXPECT_EQ(Send(Request(stub.url(), body)).status, 200);
    EXPECT_EQ(stub.requests().back().Header("content-length"), std::to_string(body.size()));
    EXPECT_EQ(stub.requests().back().Header("transfer-encoding"), "");
    EXPECT_TRUE(stub.requests().back().body == body) << body.size();
  }
  EXPECT_EQ(stub.connections(), 1);
}

// However an answer is cut on its way, it is the same, and its connection is kept.
TEST_F(SinkWireTest, AnAnswerMayComeInPiecesOfAnySize) {
  const std::string answers[] = {
      StubAnswer(503, "busy", "Retry-After: 7\r\n"),
      "HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 503 No\r\nRetry-After: 7\r\n"
      "Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nbus\r\n1\r\ny\r\n0\r\nT: x\r\n\r\n"};
  for (const std::string& answer : answers) {
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{40}}) {
      RawSocketStub stub(*loop_);
      StubScript script;
      for (size_t at = 0; at < answer.size(); at += piece) {
        script.push_back(SendBytes(answer.substr(at, piece)));
        script.push_back(WaitFor(milliseconds(1)));
      }
      stub.SetScript([&](const StubRequest&) { return script; });
      for (int i = 0; i < 2; ++i) {
        const HttpResult result = Send(stub.url());
        EXPECT_EQ(result.status, 503);
        EXPECT_EQ(result.retry_after, (std::vector<std::string>{"7"}));
        EXPECT_EQ(result.body_excerpt, "busy");
        EXPECT_FALSE(result.body_cut);
      }
      EXPECT_EQ(stub.connections(), 1) << piece;
    }
  }
}

class SinkCertificateNamesTest : public SinkTest {
 protected:
  SinkCertificateNamesTest() : authority_(Authority()) {
    bundle_ = ::testing::TempDir() + "sink_wire_test." + std::to_string(getpid()) + ".pem";
    authority_.WriteTo(bundle_);
    options_.ca_bundle_file = bundle_;
  }
  ~SinkCertificateNamesTest() override { unlink(bundle_.c_str()); }

  static Certificate::Options Authority() {
    Certificate::Options options;
    options.common_name = "Our Test CA";
    options.names = "";
    options.authority = true;
    return options;
  }
  // Of a request to `host`, whose receiver shows a certificate of these alternative names.
  HttpResult SendTo(const std::string& host, const std::string& names) {
    Certificate::Options options;
    options.common_name = "receiver";
    options.names = names;
    options.issuer = &authority_;
    const Certificate certificate(options);
    TlsStub stub(certificate);
    const std::string url = "https://" + host + ":" + std::to_string(stub.port()) + "/";
    resolver_.answers[ParseHttpUrl(url)->host] = {{"127.0.0.1"}};
    return Send(url);
  }

  Certificate authority_;
  std::string bundle_;
};

TEST_F(SinkCertificateNamesTest, AnAddressIsNamedByItsCertificateAsAnAddress) {
  EXPECT_EQ(SendTo("127.0.0.1", "IP:127.0.0.1").status, 200);
  EXPECT_EQ(SendTo("127.0.0.1", "IP:127.0.0.2").failure, HttpFailure::kTls);
  EXPECT_EQ(SendTo("127.0.0.1", "DNS:127.0.0.1").failure, HttpFailure::kTls);
}

TEST_F(SinkCertificateNamesTest, AWildcardStandsForOneLabel) {
  EXPECT_EQ(SendTo("hook.customer.example", "DNS:*.customer.example").status, 200);
  EXPECT_EQ(SendTo("HOOK.customer.example", "DNS:hook.customer.example").status, 200);
  EXPECT_EQ(SendTo("a.hook.customer.example", "DNS:*.customer.example").failure, HttpFailure::kTls);
  EXPECT_EQ(SendTo("customer.example", "DNS:*.customer.example").failure, HttpFailure::kTls);
  EXPECT_EQ(SendTo("hook.customer.example", "DNS:other.example,DNS:hook.customer.example").status,
            200);
}

}  // namespace
}  // namespace postrider
