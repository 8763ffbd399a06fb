#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "tests/core/http_sink/sink_fixture.h"

namespace postrider {
namespace {

// A certificate for hook.example that signs itself, and its key.
struct Certificate {
  Certificate() : key(EVP_EC_gen("P-256")), certificate(X509_new()) {
    X509* const x = certificate.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3'600);
    X509_gmtime_adj(X509_getm_notAfter(x), 86'400);
    X509_set_pubkey(x, key.get());
    X509_NAME* const name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("hook.example"), -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509_EXTENSION* const names =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:hook.example");
    X509_add_ext(x, names, -1);
    X509_EXTENSION_free(names);
    X509_EXTENSION* const ca =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE");
    X509_add_ext(x, ca, -1);
    X509_EXTENSION_free(ca);
    EXPECT_GT(X509_sign(x, key.get(), EVP_sha256()), 0);
  }
  void WriteTo(const std::string& path) const {
    FILE* const file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr);
    PEM_write_X509(file, certificate.get());
    std::fclose(file);
  }

  std::unique_ptr<EVP_PKEY, decltype([](EVP_PKEY* k) { EVP_PKEY_free(k); })> key;
  std::unique_ptr<X509, decltype([](X509* x) { X509_free(x); })> certificate;
};

// Answers 200 to each request, one connection after the other, on a thread of its own.
class TlsStub {
 public:
  TlsStub(const Certificate& certificate, int version_max)
      : context_(SSL_CTX_new(TLS_server_method())) {
    SSL_CTX_set_max_proto_version(context_.get(), version_max);
    if (version_max < TLS1_2_VERSION) {
      SSL_CTX_set_min_proto_version(context_.get(), version_max);
      SSL_CTX_set_cipher_list(context_.get(), "ALL:@SECLEVEL=0");
    }
    SSL_CTX_use_certificate(context_.get(), certificate.certificate.get());
    SSL_CTX_use_PrivateKey(context_.get(), certificate.key.get());
    listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listen_fd_, 16), 0);
    EXPECT_EQ(getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  // Its peers must have closed their connections, for the thread may be reading from one.
  ~TlsStub() {
    shutdown(listen_fd_, SHUT_RDWR);
    thread_.join();
    close(listen_fd_);
  }
  uint16_t port() const { return port_; }
  int handshakes() const { return handshakes_; }
  int requests() const { return requests_; }

 private:
  void Serve() {
    while (true) {
      const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      SSL* const ssl = SSL_new(context_.get());
      SSL_set_fd(ssl, fd);
      if (SSL_accept(ssl) == 1) {
        ++handshakes_;
        Answer(ssl);
      }
      SSL_free(ssl);
      close(fd);
    }
  }
  void Answer(SSL* ssl) {
    std::string in;
    char buffer[4'096];
    while (true) {
      const int got = SSL_read(ssl, buffer, sizeof(buffer));
      if (got <= 0) return;
      in.append(buffer, static_cast<size_t>(got));
      const size_t end = in.find("\r\n\r\n{}");  // the fixture's body
      if (end == std::string::npos) continue;
      in.erase(0, end + 6);
      ++requests_;
      const std::string answer = tests::StubAnswer(200, "safe");
      SSL_write(ssl, answer.data(), static_cast<int>(answer.size()));
    }
  }

  std::unique_ptr<SSL_CTX, decltype([](SSL_CTX* c) { SSL_CTX_free(c); })> context_;
  int listen_fd_ = -1;
  uint16_t port_ = 0;
  std::atomic<int> handshakes_{0};
  std::atomic<int> requests_{0};
  std::thread thread_;
};

class SinkTlsTest : public SinkTest {
 protected:
  SinkTlsTest() {
    bundle_ = ::testing::TempDir() + "sink_tls_test." + std::to_string(getpid()) + ".pem";
    certificate_.WriteTo(bundle_);
    resolver_.answers["hook.example"] = {{"127.0.0.1"}};
    resolver_.answers["other.example"] = {{"127.0.0.1"}};
  }
  ~SinkTlsTest() override {
    sink_.reset();
    unlink(bundle_.c_str());
  }
  std::string Url(const std::string& host, const TlsStub& stub) {
    return "https://" + host + ":" + std::to_string(stub.port()) + "/";
  }
  // So that the stub's thread sees the end of its connection.
  void CloseSink() { sink_.reset(); }

  Certificate certificate_;
  std::string bundle_;
};

TEST_F(SinkTlsTest, VerifiesTheReceiverAndKeepsTheConnection) {
  options_.ca_bundle_file = bundle_;
  TlsStub stub(certificate_, TLS1_3_VERSION);
  for (int i = 0; i < 3; ++i) {
    const HttpResult result = Send(Url("hook.example", stub));
    EXPECT_EQ(result.status, 200);
    EXPECT_EQ(result.body_excerpt, "safe");
    EXPECT_EQ(result.timings.tls > Duration::zero(), i == 0);
  }
  EXPECT_EQ(stub.requests(), 3);
  EXPECT_EQ(stub.handshakes(), 1);
  CloseSink();
}

TEST_F(SinkTlsTest, RefusesACertificateOfAnotherName) {
  options_.ca_bundle_file = bundle_;
  TlsStub stub(certificate_, TLS1_3_VERSION);
  const HttpResult result = Send(Url("other.example", stub));
  EXPECT_EQ(result.failure, HttpFailure::kTls);
  EXPECT_FALSE(result.request_sent);
  EXPECT_EQ(Send(Url("127.0.0.1", stub)).failure, HttpFailure::kTls);
  EXPECT_EQ(stub.requests(), 0);
  CloseSink();
}

TEST_F(SinkTlsTest, RefusesACertificateThatNobodyTrusts) {
  TlsStub stub(certificate_, TLS1_3_VERSION);
  EXPECT_EQ(Send(Url("hook.example", stub)).failure, HttpFailure::kTls);
  EXPECT_EQ(stub.requests(), 0);
  CloseSink();
}

TEST_F(SinkTlsTest, RefusesTlsBelow12) {
  options_.ca_bundle_file = bundle_;
  TlsStub old_stub(certificate_, TLS1_1_VERSION);
  EXPECT_EQ(Send(Url("hook.example", old_stub)).failure, HttpFailure::kTls);
  CloseSink();
  TlsStub stub(certificate_, TLS1_2_VERSION);
  EXPECT_EQ(Send(Url("hook.example", stub)).status, 200);
  CloseSink();
}

TEST_F(SinkTlsTest, NeedsItsBundle) {
  options_.ca_bundle_file = "/nowhere/bundle.pem";
  EXPECT_THAT(
      CreateCurlSink(*loop_, options_, resolver_, allow_loopback_, metrics_),
      tests::StatusIs(absl::StatusCode::kNotFound, ::testing::HasSubstr("/nowhere/bundle.pem")));
}

}  // namespace
}  // namespace postrider
