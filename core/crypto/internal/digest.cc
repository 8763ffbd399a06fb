#include "core/crypto/digest.h"

#include <openssl/evp.h>

#include <utility>

#include "core/base/check.h"

namespace postrider {
namespace {

// Fetched once: looking the algorithm up by name costs more than hashing 1 KB.
const EVP_MD* Sha256Algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  POSTRIDER_CHECK(algorithm != nullptr);
  return algorithm;
}

struct ContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

struct Sha256Hasher::Impl {
  std::unique_ptr<EVP_MD_CTX, ContextDeleter> context{EVP_MD_CTX_new()};

  void Start() { POSTRIDER_CHECK(EVP_DigestInit_ex2(context.get(), Sha256Algorithm(), nullptr)); }
};

Sha256Hasher::Sha256Hasher() : impl_(std::make_unique<Impl>()) {
  POSTRIDER_CHECK(impl_->context != nullptr);
  impl_->Start();
}
Sha256Hasher::~Sha256Hasher() = default;
Sha256Hasher::Sha256Hasher(Sha256Hasher&&) noexcept = default;
Sha256Hasher& Sha256Hasher::operator=(Sha256Hasher&&) noexcept = default;

void Sha256Hasher::Add(absl::string_view bytes) {
  POSTRIDER_CHECK(EVP_DigestUpdate(impl_->context.get(), bytes.data(), bytes.size()));
}

Sha256Digest Sha256Hasher::Finish() {
  Sha256Digest digest;
  unsigned int size = 0;
  POSTRIDER_CHECK(EVP_DigestFinal_ex(impl_->context.get(), digest.data(), &size) &&
                  size == digest.size());
  impl_->Start();
  return digest;
}

Sha256Digest Sha256(absl::string_view bytes) { return Sha256({bytes}); }

Sha256Digest Sha256(std::initializer_list<absl::string_view> parts) {
  thread_local Sha256Hasher hasher;
  for (const absl::string_view part : parts) hasher.Add(part);
  return hasher.Finish();
}

std::string HexDigest(const Sha256Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (const uint8_t byte : digest) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace postrider
