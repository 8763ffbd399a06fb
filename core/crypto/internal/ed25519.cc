#include "core/crypto/ed25519.h"

#include <openssl/evp.h>

#include <cstddef>

#include "core/base/check.h"

namespace postrider {
namespace {

struct KeyDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct ContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

const unsigned char* BytesOf(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

struct Ed25519Key::Impl {
  std::unique_ptr<EVP_PKEY, KeyDeleter> key;
  std::unique_ptr<EVP_MD_CTX, ContextDeleter> context{EVP_MD_CTX_new()};
};

Ed25519Key::Ed25519Key(const Ed25519Seed& seed) : impl_(std::make_unique<Impl>()) {
  impl_->key.reset(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size()));
  POSTRIDER_CHECK(impl_->key != nullptr && impl_->context != nullptr);
  size_t size = public_key_.size();
  POSTRIDER_CHECK(EVP_PKEY_get_raw_public_key(impl_->key.get(), public_key_.data(), &size) == 1 &&
                  size == public_key_.size());
}
Ed25519Key::~Ed25519Key() = default;
Ed25519Key::Ed25519Key(Ed25519Key&&) noexcept = default;
Ed25519Key& Ed25519Key::operator=(Ed25519Key&&) noexcept = default;

Ed25519Signature Ed25519Key::Sign(absl::string_view text) {
  EVP_MD_CTX* const context = impl_->context.get();
  // Begun anew each time, which takes 2 us: that a context signs twice is promised nowhere.
  POSTRIDER_CHECK(EVP_MD_CTX_reset(context) == 1 &&
                  EVP_DigestSignInit(context, nullptr, nullptr, nullptr, impl_->key.get()) == 1);
  Ed25519Signature signature;
  size_t size = signature.size();
  POSTRIDER_CHECK(EVP_DigestSign(context, signature.data(), &size, BytesOf(text), text.size()) ==
                      1 &&
                  size == signature.size());
  return signature;
}

bool VerifyEd25519(const Ed25519PublicKey& key, absl::string_view text,
                   const Ed25519Signature& signature) {
  const std::unique_ptr<EVP_PKEY, KeyDeleter> prepared(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()));
  const std::unique_ptr<EVP_MD_CTX, ContextDeleter> context(EVP_MD_CTX_new());
  return prepared != nullptr && context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, prepared.get()) == 1 &&
         EVP_DigestVerify(context.get(), signature.data(), signature.size(), BytesOf(text),
                          text.size()) == 1;
}

}  // namespace postrider
