#pragma once

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace postrider::tests {

struct OpensslDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

// A certificate with its key, for tests.
struct Certificate {
  struct Options {
    std::string common_name = "hook.example";
    std::string names = "DNS:hook.example";  // subjectAltName; empty: none
    const Certificate* issuer = nullptr;     // null: it signs itself
    bool authority = false;
    int days = 1;  // negative: it ended so long ago
  };
  explicit Certificate(const Options& options);

  std::string CertificatePem() const;
  std::string KeyPem() const;
  void WriteTo(const std::string& path) const;

  std::unique_ptr<EVP_PKEY, OpensslDeleter> key;
  std::unique_ptr<X509, OpensslDeleter> certificate;
};

// An HTTPS receiver on an ephemeral port of 127.0.0.1 with a thread per connection: it answers each
// request with the fixture's body "{}" by 200 and "safe", unless a fault is set. It would rather
// speak HTTP/2, if that were offered. Threads: its figures may be read from any.
class TlsStub {
 public:
  enum class Fault {
    kNone,
    kCloseInHandshake,    // after the client's first bytes
    kAlertInHandshake,    // a fatal alert instead of an answer
    kCloseAfterRequest,   // without an answer and without a goodbye
    kHalfAnswer,          // a head that promises more than comes, then the end without a goodbye
    kAnswerThenDropped,   // a whole answer until the end, which comes without a goodbye
    kGarbageAfterAnswer,  // bytes that are no TLS record
  };
  struct Options {
    int version_max = TLS1_3_VERSION;
    Fault fault = Fault::kNone;
    const Certificate* client_authority =
        nullptr;  // set: clients must show one of its certificates
    // Said in place of "safe", each text so often, and then the connection is ended.
    std::vector<std::pair<std::string, int64_t>> answer;
  };
  // What happens to the open connections below TLS, as when a host or a path goes down.
  enum class Break { kHalfClose, kReset, kFillWindow };
  struct Request {
    int connection = 0;
    std::string client;  // common name of the certificate that was shown, or ""
  };

  TlsStub(const Certificate& certificate, const Options& options);
  explicit TlsStub(const Certificate& certificate) : TlsStub(certificate, Options()) {}
  // Breaks what is open.
  ~TlsStub();

  void BreakAll(Break kind);

  uint16_t port() const { return port_; }
  int connections() const { return connections_; }
  int handshakes() const { return handshakes_; }
  int http2_offers() const { return http2_offers_; }    // in handshakes
  int http11_offers() const { return http11_offers_; }  // likewise
  std::vector<Request> requests() const;

 private:
  static int ChooseProtocol(SSL* ssl, const unsigned char** out, unsigned char* out_size,
                            const unsigned char* offers, unsigned int offers_size, void* stub);
  void Accept();
  void Serve(int fd, int number);
  void Answer(SSL* ssl, int fd, int number);

  const Options options_;
  std::unique_ptr<SSL_CTX, OpensslDeleter> context_;
  int listen_fd_ = -1;
  uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<int> handshakes_{0};
  std::atomic<int> http2_offers_{0};
  std::atomic<int> http11_offers_{0};
  mutable absl::Mutex mutex_;
  std::vector<Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::map<int, int> open_ ABSL_GUARDED_BY(mutex_);  // sockets by connection
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // of connections; the accepting thread's
  std::thread accept_thread_;
};

}  // namespace postrider::tests
