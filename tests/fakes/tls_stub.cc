#include "tests/fakes/tls_stub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "tests/fakes/raw_socket_stub.h"

namespace postrider::tests {
namespace {

void AddExtension(X509* x, int nid, const std::string& value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
  POSTRIDER_CHECK(extension != nullptr);
  X509_add_ext(x, extension, -1);
  X509_EXTENSION_free(extension);
}

template <typename Write>
std::string Pem(Write write) {
  BIO* const bio = BIO_new(BIO_s_mem());
  POSTRIDER_CHECK(write(bio) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

std::string CommonName(const X509* x) {
  char name[128] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, name, sizeof(name));
  return name;
}

}  // namespace

Certificate::Certificate(const Options& options)
    : key(EVP_EC_gen("P-256")), certificate(X509_new()) {
  constexpr long kDaySeconds = 86'400;
  static std::atomic<long> serial{1};
  X509* const x = certificate.get();
  X509_set_version(x, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x), serial++);
  X509_gmtime_adj(X509_getm_notBefore(x), -30 * kDaySeconds);
  X509_gmtime_adj(X509_getm_notAfter(x), options.days * kDaySeconds);
  X509_set_pubkey(x, key.get());
  X509_NAME* const name = X509_get_subject_name(x);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(options.common_name.c_str()),
                             -1, -1, 0);
  const Certificate* const issuer = options.issuer;
  X509_set_issuer_name(x,
                       issuer == nullptr ? name : X509_get_subject_name(issuer->certificate.get()));
  if (!options.names.empty()) AddExtension(x, NID_subject_alt_name, options.names);
  if (options.authority) AddExtension(x, NID_basic_constraints, "critical,CA:TRUE");
  POSTRIDER_CHECK(X509_sign(x, issuer == nullptr ? key.get() : issuer->key.get(), EVP_sha256()) >
                  0);
}

std::string Certificate::CertificatePem() const {
  return Pem([this](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); });
}

std::string Certificate::KeyPem() const {
  return Pem([this](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
}

void Certificate::WriteTo(const std::string& path) const {
  FILE* const file = std::fopen(path.c_str(), "w");
  POSTRIDER_CHECK(file != nullptr);
  PEM_write_X509(file, certificate.get());
  std::fclose(file);
}

TlsStub::TlsStub(const Certificate& certificate, const Options& options)
    : options_(options), context_(SSL_CTX_new(TLS_server_method())) {
  SSL_CTX_set_max_proto_version(context_.get(), options_.version_max);
  if (options_.version_max < TLS1_2_VERSION) {
    SSL_CTX_set_min_proto_version(context_.get(), options_.version_max);
    SSL_CTX_set_cipher_list(context_.get(), "ALL:@SECLEVEL=0");
  }
  SSL_CTX_use_certificate(context_.get(), certificate.certificate.get());
  SSL_CTX_use_PrivateKey(context_.get(), certificate.key.get());
  if (options_.client_authority != nullptr) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()),
                        options_.client_authority->certificate.get());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // A context that verifies clients must have a name for its sessions.
    const unsigned char id[] = {1};
    SSL_CTX_set_session_id_context(context_.get(), id, sizeof(id));
  }
  SSL_CTX_set_alpn_select_cb(context_.get(), ChooseProtocol, this);
  listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  POSTRIDER_CHECK(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  POSTRIDER_CHECK(listen(listen_fd_, 128) == 0);
  POSTRIDER_CHECK(getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  accept_thread_ = std::thread([this] { Accept(); });
}

TlsStub::~TlsStub() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    for (const auto& [number, fd] : open_) shutdown(fd, SHUT_RDWR);
  }
  shutdown(listen_fd_, SHUT_RDWR);
  accept_thread_.join();
  for (std::thread& thread : threads_) thread.join();
  close(listen_fd_);
}

// The offers are names, each behind its length.
int TlsStub::ChooseProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                            const unsigned char* offers, unsigned int offers_size, void* stub) {
  TlsStub& self = *static_cast<TlsStub*>(stub);
  const unsigned char* chosen = nullptr;
  for (unsigned int at = 0; at < offers_size; at += 1u + offers[at]) {
    const absl::string_view name(reinterpret_cast<const char*>(offers + at + 1), offers[at]);
    if (name == "h2") {
      ++self.http2_offers_;
      chosen = offers + at;
    } else if (name == "http/1.1") {
      ++self.http11_offers_;
      if (chosen == nullptr) chosen = offers + at;
    }
  }
  if (chosen == nullptr) return SSL_TLSEXT_ERR_NOACK;
  *out = chosen + 1;
  *out_size = chosen[0];
  return SSL_TLSEXT_ERR_OK;
}

std::vector<TlsStub::Request> TlsStub::requests() const {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

void TlsStub::BreakAll(Break kind) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [number, fd] : open_) {
    if (kind == Break::kHalfClose) {
      shutdown(fd, SHUT_WR);
    } else if (kind == Break::kReset) {
      const linger now = {1, 0};
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
      shutdown(fd, SHUT_RD);  // its thread then closes it
    } else {
      const std::string bytes(65'536, 'x');
      while (send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) {
      }
    }
  }
}

void TlsStub::Accept() {
  while (true) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const int number = ++connections_;
    {
      absl::MutexLock lock(&mutex_);
      if (stopped_) {
        close(fd);
        return;
      }
      open_[number] = fd;
    }
    threads_.emplace_back([this, fd, number] { Serve(fd, number); });
  }
}

void TlsStub::Serve(int fd, int number) {
  constexpr char kFatalHandshakeFailure[] = {21, 3, 3, 0, 2, 2, 40};
  char first = 0;
  if (options_.fault == Fault::kCloseInHandshake) {
    static_cast<void>(recv(fd, &first, 1, 0));
  } else if (options_.fault == Fault::kAlertInHandshake) {
    static_cast<void>(recv(fd, &first, 1, 0));
    static_cast<void>(send(fd, kFatalHandshakeFailure, sizeof(kFatalHandshakeFailure), 0));
    char rest[4'096];
    while (recv(fd, rest, sizeof(rest), 0) > 0) {
    }
  } else {
    SSL* const ssl = SSL_new(context_.get());
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1) {
      ++handshakes_;
      Answer(ssl, fd, number);
    }
    SSL_free(ssl);
  }
  absl::MutexLock lock(&mutex_);
  open_.erase(number);
  close(fd);
}

void TlsStub::Answer(SSL* ssl, int fd, int number) {
  std::string in;
  char buffer[4'096];
  while (true) {
    const int got = SSL_read(ssl, buffer, sizeof(buffer));
    if (got <= 0) return;
    in.append(buffer, static_cast<size_t>(got));
    const size_t end = in.find("\r\n\r\n{}");  // the fixture's body
    if (end == std::string::npos) continue;
    in.erase(0, end + 6);
    Request request;
    request.connection = number;
    if (X509* const peer = SSL_get1_peer_certificate(ssl); peer != nullptr) {
      request.client = CommonName(peer);
      X509_free(peer);
    }
    {
      absl::MutexLock lock(&mutex_);
      requests_.push_back(std::move(request));
    }
    if (!options_.answer.empty()) {
      for (const auto& [text, repeats] : options_.answer) {
        for (int64_t i = 0; i < repeats; ++i) {
          if (SSL_write(ssl, text.data(), static_cast<int>(text.size())) <= 0) return;
        }
      }
      return;
    }
    std::string answer = StubAnswer(200, "safe");
    switch (options_.fault) {
      case Fault::kCloseAfterRequest:
        return;
      case Fault::kHalfAnswer:
        answer = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart";
        break;
      case Fault::kAnswerThenDropped:
        answer = "HTTP/1.1 200 OK\r\n\r\nsafe";
        break;
      default:
        break;
    }
    SSL_write(ssl, answer.data(), static_cast<int>(answer.size()));
    if (options_.fault == Fault::kGarbageAfterAnswer) {
      const std::string garbage = "this is no record of TLS at all";
      static_cast<void>(send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL));
    } else if (options_.fault != Fault::kNone) {
      return;
    }
  }
}

}  // namespace postrider::tests
