#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/core/http_sink/sink_fixture.h"
#include "tests/fakes/tls_front.h"
#include "tests/fakes/tls_stub.h"

namespace postrider {
namespace {

using tests::Certificate;
using tests::TlsStub;
using Fault = TlsStub::Fault;

Certificate::Options Named(const std::string& name, const Certificate* issuer = nullptr) {
  Certificate::Options options;
  options.common_name = name;
  options.names = "DNS:" + name;
  options.issuer = issuer;
  return options;
}

Certificate::Options Authority(const std::string& name) {
  Certificate::Options options;
  options.common_name = name;
  options.names = "";
  options.authority = true;
  return options;
}

std::shared_ptr<const TlsMaterial> Material(const Certificate* authority, const Certificate* own) {
  auto material = std::make_shared<TlsMaterial>();
  if (authority != nullptr) material->ca_pem = authority->CertificatePem();
  if (own != nullptr) {
    material->certificate_pem = own->CertificatePem();
    material->key_pem = own->KeyPem();
  }
  material->digest = material->ca_pem + material->certificate_pem + material->key_pem;
  return material;
}

class SinkTlsTest : public SinkTest {
 protected:
  SinkTlsTest()
      : authority_(Authority("Our Test CA")), certificate_(Named("hook.example", &authority_)) {
    bundle_ = ::testing::TempDir() + "sink_tls_test." + std::to_string(getpid()) + ".pem";
    authority_.WriteTo(bundle_);
    options_.ca_bundle_file = bundle_;
    resolver_.answers["hook.example"] = {{"127.0.0.1"}};
    resolver_.answers["other.example"] = {{"127.0.0.1"}};
  }
  ~SinkTlsTest() override { unlink(bundle_.c_str()); }

  std::string Url(const std::string& host, const TlsStub& stub) {
    return "https://" + host + ":" + std::to_string(stub.port()) + "/";
  }
  HttpResult SendTls(const TlsStub& stub, std::shared_ptr<const TlsMaterial> material,
                     const std::string& group = "cus_1") {
    HttpRequest request = Request(Url("hook.example", stub));
    request.tls = std::move(material);
    request.connection_group = group;
    return Send(std::move(request));
  }

  Certificate authority_;
  Certificate certificate_;
  std::string bundle_;
};

TEST_F(SinkTlsTest, VerifiesTheReceiverAndKeepsTheConnection) {
  TlsStub stub(certificate_);
  for (int i = 0; i < 3; ++i) {
    const HttpResult result = Send(Url("hook.example", stub));
    EXPECT_EQ(result.status, 200);
    EXPECT_EQ(result.body_excerpt, "safe");
    EXPECT_EQ(result.timings.tls > Duration::zero(), i == 0);
  }
  EXPECT_EQ(stub.requests().size(), 3u);
  EXPECT_EQ(stub.handshakes(), 1);
}

TEST_F(SinkTlsTest, KeepsFewerConnectionsWithoutTlsAsOthersHaveIt) {
  options_.pools = 1;
  options_.idle_connections_max = 4;
  tests::RawSocketStub plain(*loop_);
  for (const char* const group : {"cus_1", "cus_2", "cus_3", "cus_4"}) {
    HttpRequest request = Request(plain.url());
    request.connection_group = group;
    EXPECT_EQ(Send(std::move(request)).status, 200);
  }
  EXPECT_EQ(plain.open_connections(), 4);
  TlsStub stub(certificate_);
  EXPECT_EQ(SendTls(stub, nullptr, "cus_1").status, 200);
  EXPECT_EQ(SendTls(stub, nullptr, "cus_2").status, 200);
  EXPECT_TRUE(Run([&] { return plain.open_connections() <= 2; }));
  EXPECT_EQ(plain.open_connections(), 2);
}

TEST_F(SinkTlsTest, LeavesConnectionsWithoutTlsAQuarterOfThoseThatAreKept) {
  options_.pools = 1;
  options_.idle_connections_max = 4;
  tests::RawSocketStub plain(*loop_);
  EXPECT_EQ(Send(plain.url()).status, 200);
  TlsStub stub(certificate_);
  for (const char* const group : {"cus_1", "cus_2", "cus_3", "cus_4", "cus_5"}) {
    EXPECT_EQ(SendTls(stub, nullptr, group).status, 200);
  }
  EXPECT_EQ(Send(plain.url()).status, 200);
  EXPECT_EQ(plain.connections(), 1);
  // The three last ones are kept.
  EXPECT_EQ(stub.handshakes(), 5);
  for (const char* const group : {"cus_5", "cus_4", "cus_3"}) {
    EXPECT_EQ(SendTls(stub, nullptr, group).status, 200);
  }
  EXPECT_EQ(stub.handshakes(), 5);
}

TEST_F(SinkTlsTest, NewRulesCloseOnlyConnectionsToWhatTheyRefuse) {
  TlsStub refused(certificate_);
  TlsStub kept(certificate_);
  const auto own = [](std::vector<std::pair<IpAddress, uint16_t>> places) {
    AddressRulesOptions rules;
    rules.allow = {"127.0.0.0/8"};
    rules.own = std::move(places);
    return *AddressRules::Create(rules);
  };
  EXPECT_EQ(SendTls(refused, nullptr).status, 200);
  EXPECT_EQ(SendTls(kept, nullptr).status, 200);
  sink().SetAddressRules(own({{*IpAddress::Parse("10.0.0.1"), 9092}}));
  EXPECT_EQ(SendTls(refused, nullptr).status, 200);
  EXPECT_EQ(SendTls(kept, nullptr).status, 200);
  EXPECT_EQ(refused.handshakes(), 1) << "nothing that is open is refused";
  EXPECT_EQ(kept.handshakes(), 1);
  sink().SetAddressRules(own({{*IpAddress::Parse("127.0.0.1"), refused.port()}}));
  EXPECT_EQ(SendTls(refused, nullptr).failure, HttpFailure::kAddressRefused);
  EXPECT_EQ(refused.handshakes(), 1);
  sink().SetAddressRules(allow_loopback_);
  EXPECT_EQ(SendTls(refused, nullptr).status, 200);
  EXPECT_EQ(refused.handshakes(), 2);
}

TEST_F(SinkTlsTest, NewRulesHoldForARequestWhoseHandshakeIsUnderWay) {
  tests::RawSocketStub stub(*loop_);
  tests::TlsFront front(*loop_, certificate_, stub.port());
  const auto send_and_set = [&](std::shared_ptr<const AddressRules> rules) {
    const int before = front.connections();
    const int handshakes = front.handshakes();
    SendAsync(Request(absl::StrCat("https://hook.example:", front.port(), "/")));
    ASSERT_TRUE(Run([&] { return front.connections() > before; }));
    ASSERT_EQ(front.handshakes(), handshakes);
    const size_t results = results_.size();
    sink().SetAddressRules(std::move(rules));
    ASSERT_TRUE(RunUntilResults(results + 1));
  };
  send_and_set(AddressRules::Default());
  EXPECT_EQ(results_.back().failure, HttpFailure::kAddressRefused);
  EXPECT_FALSE(results_.back().request_sent);
  EXPECT_TRUE(Run([&] { return stub.open_connections() == 0; }));
  EXPECT_TRUE(stub.requests().empty());
  sink().SetAddressRules(allow_loopback_);
  AddressRulesOptions others;
  others.allow = {"127.0.0.0/8"};
  others.deny = {"10.0.0.0/8"};
  send_and_set(*AddressRules::Create(others));
  EXPECT_EQ(results_.back().status, 200);
  EXPECT_EQ(stub.requests().size(), 1u);
}

// Those have their own bound: what is kept is not given up for them.
TEST_F(SinkTlsTest, KeepsConnectionsWithoutTlsWhileOthersAreInFlight) {
  options_.pools = 1;
  options_.idle_connections_max = 2;
  tests::RawSocketStub plain(*loop_);
  tests::RawSocketStub silent(*loop_);  // it waits for the end of a head
  for (int i = 0; i < 4; ++i) {
    SendAsync(Request(absl::StrCat("https://127.0.0.1:", silent.port(), "/")));
  }
  ASSERT_TRUE(Run([&] { return silent.connections() == 4; }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Send(plain.url()).status, 200);
  EXPECT_EQ(plain.connections(), 1);
  EXPECT_EQ(plain.open_connections(), 1);
  EXPECT_EQ(results_.size(), 3u) << "the others are in flight still";
}

// CONN-05, CONN-06: none of the faults of HTTP/2 can come, as it is spoken with nobody.
TEST_F(SinkTlsTest, SpeaksHttp11WithReceiversThatWouldRatherSpeakHttp2) {
  TlsStub stub(certificate_);
  EXPECT_EQ(Send(Url("hook.example", stub)).status, 200);
  EXPECT_EQ(stub.http2_offers(), 0);
  EXPECT_EQ(stub.http11_offers(), 1);
}

TEST_F(SinkTlsTest, RefusesACertificateOfAnotherName) {
  TlsStub stub(certificate_);
  const HttpResult result = Send(Url("other.example", stub));
  EXPECT_EQ(result.failure, HttpFailure::kTls);
  EXPECT_FALSE(result.request_sent);
  EXPECT_EQ(Send(Url("127.0.0.1", stub)).failure, HttpFailure::kTls);
  EXPECT_EQ(stub.requests().size(), 0u);
}

TEST_F(SinkTlsTest, RefusesACertificateThatNobodyTrustsOrThatHasEnded) {
  const Certificate foreign(Named("hook.example"));
  TlsStub untrusted(foreign);
  EXPECT_EQ(Send(Url("hook.example", untrusted)).failure, HttpFailure::kTls);
  EXPECT_EQ(untrusted.requests().size(), 0u);

  Certificate::Options options = Named("hook.example", &authority_);
  options.days = -1;
  const Certificate ended(options);
  TlsStub expired(ended);
  EXPECT_EQ(Send(Url("hook.example", expired)).failure, HttpFailure::kTls);
  EXPECT_EQ(expired.requests().size(), 0u);
}

TEST_F(SinkTlsTest, RefusesTlsBelow12) {
  TlsStub::Options old_options;
  old_options.version_max = TLS1_1_VERSION;
  TlsStub old_stub(certificate_, old_options);
  EXPECT_EQ(Send(Url("hook.example", old_stub)).failure, HttpFailure::kTls);
  TlsStub::Options options;
  options.version_max = TLS1_2_VERSION;
  TlsStub stub(certificate_, options);
  EXPECT_EQ(Send(Url("hook.example", stub)).status, 200);
}

TEST_F(SinkTlsTest, NeedsItsBundle) {
  options_.ca_bundle_file = "/nowhere/bundle.pem";
  EXPECT_THAT(
      CreateCurlSink(*loop_, options_, resolver_, allow_loopback_, metrics_),
      tests::StatusIs(absl::StatusCode::kNotFound, ::testing::HasSubstr("/nowhere/bundle.pem")));
}

TEST_F(SinkTlsTest, AnEndpointsAuthorityIsTrustedInsteadOfTheSystems) {
  const Certificate private_authority(Authority("A Customer's CA"));
  const Certificate of_customer(Named("hook.example", &private_authority));
  TlsStub stub(of_customer);
  TlsStub public_stub(certificate_);
  const auto material = Material(&private_authority, nullptr);
  EXPECT_EQ(SendTls(stub, nullptr).failure, HttpFailure::kTls);
  EXPECT_EQ(SendTls(stub, material).status, 200);
  EXPECT_EQ(SendTls(public_stub, material).failure, HttpFailure::kTls) << "not beside it";
  // The handle that had the material serves others as before.
  EXPECT_EQ(SendTls(public_stub, nullptr).status, 200);
  EXPECT_EQ(SendTls(stub, nullptr).failure, HttpFailure::kTls);
  EXPECT_EQ(SendTls(stub, Material(&authority_, nullptr)).failure, HttpFailure::kTls);
  EXPECT_EQ(stub.requests().size(), 1u);
}

TEST_F(SinkTlsTest, ShowsTheCertificateThatTheReceiverAsksFor) {
  const Certificate own(Named("sender.example", &authority_));
  TlsStub::Options options;
  options.client_authority = &authority_;
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    options.version_max = version;
    TlsStub stub(certificate_, options);
    EXPECT_EQ(SendTls(stub, Material(nullptr, &own)).status, 200);
    EXPECT_NE(SendTls(stub, nullptr).status, 200);
    ASSERT_EQ(stub.requests().size(), 1u);
    EXPECT_EQ(stub.requests()[0].client, "sender.example");
  }
}

// Whatever the order: a connection, or a TLS session to be resumed, serves one certificate only.
TEST_F(SinkTlsTest, DifferentCertificatesOrAuthoritiesNeverShareAConnection) {
  options_.pools = 1;
  const Certificate first(Named("first.example", &authority_));
  const Certificate second(Named("second.example", &authority_));
  TlsStub::Options options;
  options.client_authority = &authority_;
  TlsStub stub(certificate_, options);
  const std::shared_ptr<const TlsMaterial> materials[] = {
      Material(nullptr, &first), Material(nullptr, &second), Material(&authority_, &first)};
  const std::string names[] = {"first.example", "second.example", "first.example"};
  constexpr size_t kRounds = 3;
  for (size_t round = 0; round < kRounds; ++round) {
    for (const auto& material : materials) EXPECT_EQ(SendTls(stub, material).status, 200);
  }
  const std::vector<TlsStub::Request> requests = stub.requests();
  ASSERT_EQ(requests.size(), 3 * kRounds);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].client, names[i % 3]);
    EXPECT_EQ(requests[i].connection, requests[i % 3].connection);
  }
  EXPECT_EQ(stub.connections(), 3);
  // The same material for another customer.
  EXPECT_EQ(SendTls(stub, materials[0], "cus_2").status, 200);
  EXPECT_EQ(stub.connections(), 4);
}

// The connections of a certificate that was replaced take no more requests.
TEST_F(SinkTlsTest, AClosedConnectionIsNotResumedWithAnotherCertificate) {
  options_.pools = 1;
  const Certificate first(Named("first.example", &authority_));
  const Certificate second(Named("second.example", &authority_));
  TlsStub::Options options;
  options.client_authority = &authority_;
  options.version_max = TLS1_2_VERSION;
  options.fault = Fault::kAnswerThenDropped;
  TlsStub stub(certificate_, options);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(SendTls(stub, Material(nullptr, i % 2 == 0 ? &first : &second)).status, 200);
  }
  const std::vector<TlsStub::Request> requests = stub.requests();
  ASSERT_EQ(requests.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(requests[i].client, i % 2 == 0 ? "first.example" : "second.example");
  }
}

TEST_F(SinkTlsTest, UnfitMaterialIsATlsFailureAndAsksNobody) {
  TlsStub stub(certificate_);
  const Certificate own(Named("sender.example", &authority_));
  const Certificate other(Named("other.example", &authority_));
  TlsMaterial broken_ca;
  broken_ca.ca_pem = "no PEM";
  TlsMaterial wrong_key;
  wrong_key.certificate_pem = own.CertificatePem();
  wrong_key.key_pem = other.KeyPem();
  TlsMaterial no_key;
  no_key.certificate_pem = own.CertificatePem();
  TlsMaterial no_certificate;
  no_certificate.certificate_pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  no_certificate.key_pem = own.KeyPem();
  int number = 0;
  for (TlsMaterial material : {broken_ca, wrong_key, no_key, no_certificate}) {
    material.digest = std::to_string(++number);
    const HttpResult result = SendTls(stub, std::make_shared<TlsMaterial>(material));
    EXPECT_EQ(result.failure, HttpFailure::kTls) << number;
    EXPECT_FALSE(result.request_sent);
  }
  EXPECT_EQ(stub.requests().size(), 0u);
  EXPECT_EQ(SendTls(stub, nullptr).status, 200);
}

TEST_F(SinkTlsTest, TellsTheFaultsOfTlsApart) {
  const auto result_of = [this](Fault fault) {
    TlsStub::Options options;
    options.fault = fault;
    TlsStub stub(certificate_, options);
    return SendTls(stub, nullptr);
  };
  for (const Fault fault : {Fault::kCloseInHandshake, Fault::kAlertInHandshake}) {
    const HttpResult result = result_of(fault);
    EXPECT_EQ(result.failure, HttpFailure::kTls);
    EXPECT_FALSE(result.request_sent);
  }
  const HttpResult unanswered = result_of(Fault::kCloseAfterRequest);
  EXPECT_EQ(unanswered.failure, HttpFailure::kReset);
  EXPECT_TRUE(unanswered.request_sent);
  // A complete head decides, and who drops the connection without a goodbye is not believed to
  // have said everything.
  const HttpResult half = result_of(Fault::kHalfAnswer);
  EXPECT_EQ(half.status, 200);
  EXPECT_TRUE(half.body_cut);
  const HttpResult dropped = result_of(Fault::kAnswerThenDropped);
  EXPECT_EQ(dropped.status, 200);
  EXPECT_EQ(dropped.body_excerpt, "safe");
  EXPECT_EQ(result_of(Fault::kGarbageAfterAnswer).status, 200);
}

// CONN-08 over TLS: what comes on an idle connection ends it, and the next request is not harmed.
TEST_F(SinkTlsTest, GarbageOnAnIdleConnectionHarmsNoRequest) {
  TlsStub::Options options;
  options.fault = Fault::kGarbageAfterAnswer;
  TlsStub stub(certificate_, options);
  for (int i = 0; i < 5; ++i) {
    const HttpResult result = SendTls(stub, nullptr);
    EXPECT_EQ(result.status, 200);
    EXPECT_EQ(result.body_excerpt, "safe");
    ASSERT_TRUE(Run([&] {
      return metrics_.AddCounter("postrider_http_idle_socket_events_total", "").value() == i + 1;
    }));
  }
  EXPECT_EQ(stub.requests().size(), 5u);
  EXPECT_EQ(stub.connections(), 5);
}

}  // namespace
}  // namespace postrider
