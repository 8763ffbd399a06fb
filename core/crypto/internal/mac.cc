#include "core/crypto/mac.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <utility>

#include "core/base/check.h"

namespace postrider {
namespace {

EVP_MAC* HmacAlgorithm() {
  static EVP_MAC* const algorithm = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  POSTRIDER_CHECK(algorithm != nullptr);
  return algorithm;
}

struct ContextDeleter {
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

}  // namespace

struct HmacSha256Key::Impl {
  std::unique_ptr<EVP_MAC_CTX, ContextDeleter> context{EVP_MAC_CTX_new(HmacAlgorithm())};
};

HmacSha256Key::HmacSha256Key(absl::string_view key) : impl_(std::make_unique<Impl>()) {
  POSTRIDER_CHECK(impl_->context != nullptr && !key.empty() && key.size() <= 1'024);
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_end()};
  POSTRIDER_CHECK(EVP_MAC_init(impl_->context.get(),
                               reinterpret_cast<const unsigned char*>(key.data()), key.size(),
                               params));
}
HmacSha256Key::~HmacSha256Key() = default;
HmacSha256Key::HmacSha256Key(HmacSha256Key&&) noexcept = default;
HmacSha256Key& HmacSha256Key::operator=(HmacSha256Key&&) noexcept = default;

HmacTag HmacSha256Key::Mac(std::initializer_list<absl::string_view> parts) {
  EVP_MAC_CTX* const context = impl_->context.get();
  // Without key and parameters it starts anew with those it has: the cheapest way measured.
  POSTRIDER_CHECK(EVP_MAC_init(context, nullptr, 0, nullptr));
  for (const absl::string_view part : parts) {
    POSTRIDER_CHECK(EVP_MAC_update(
        context, reinterpret_cast<const unsigned char*>(part.data()), part.size()));
  }
  HmacTag tag;
  size_t size = 0;
  POSTRIDER_CHECK(EVP_MAC_final(context, tag.data(), &size, tag.size()) && size == tag.size());
  return tag;
}

}  // namespace postrider
