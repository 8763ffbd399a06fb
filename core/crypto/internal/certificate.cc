#include "core/crypto/certificate.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "absl/strings/match.h"
#include "core/base/check.h"

namespace postrider {
namespace {

struct BioDeleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct X509Deleter {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct KeyDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, BioDeleter>;
using Certificate = std::unique_ptr<X509, X509Deleter>;
using Key = std::unique_ptr<EVP_PKEY, KeyDeleter>;

// What OpenSSL notes about a fault here is nobody's business later on.
struct ErrorQueueGuard {
  ErrorQueueGuard() { ERR_set_mark(); }
  ~ErrorQueueGuard() { ERR_pop_to_mark(); }
};

// An encrypted key has no passphrase here, and nobody is asked for one.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::Status CheckText(absl::string_view pem) {
  if (pem.size() > kPemBytesMax) {
    return absl::InvalidArgumentError("must be at most 65536 bytes long");
  }
  for (const char c : pem) {
    if ((c < ' ' && c != '\n' && c != '\r' && c != '\t') || c > '~') {
      return absl::InvalidArgumentError("must be PEM: printable ASCII in lines");
    }
  }
  return absl::OkStatus();
}

Bio Read(absl::string_view text) {
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  POSTRIDER_CHECK(bio != nullptr);
  return bio;
}

Certificate FirstCertificate(absl::string_view pem) {
  const Bio bio = Read(pem);
  return Certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
}

size_t Count(absl::string_view text, absl::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != absl::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

}  // namespace

absl::Status CheckCertificates(absl::string_view pem) {
  const ErrorQueueGuard guard;
  if (const absl::Status text = CheckText(pem); !text.ok()) return text;
  if (absl::StrContains(pem, "PRIVATE KEY")) {
    return absl::InvalidArgumentError("must hold no private key");
  }
  const Bio bio = Read(pem);
  size_t found = 0;
  while (Certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)) != nullptr) {
    ++found;
  }
  // Blocks of other kinds are passed over by the reader, and it stops at one that it cannot read.
  if (found == 0 || found != Count(pem, "-----BEGIN ")) {
    return absl::InvalidArgumentError("must be PEM of certificates and nothing else");
  }
  return absl::OkStatus();
}

absl::Status CheckKeyOfCertificate(absl::string_view certificate_pem, absl::string_view key_pem) {
  const ErrorQueueGuard guard;
  if (const absl::Status text = CheckText(key_pem); !text.ok()) return text;
  const Bio bio = Read(key_pem);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr || Count(key_pem, "-----BEGIN ") != 1) {
    return absl::InvalidArgumentError("must be PEM of one private key without a passphrase");
  }
  const Certificate certificate = FirstCertificate(certificate_pem);
  if (certificate == nullptr || X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError("does not belong to the first certificate");
  }
  return absl::OkStatus();
}

}  // namespace postrider
