#include "loadtest/signature.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace postrider::loadtest {
namespace {

struct ContextFree {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

using Digest = std::array<unsigned char, 32>;

// HMAC-SHA256 by its definition; the parts are hashed one after the other, so that a large body is
// not copied.
Digest Hmac(absl::string_view key, std::initializer_list<absl::string_view> parts) {
  constexpr size_t kBlock = 64;
  std::array<unsigned char, kBlock> inner_pad{};
  std::array<unsigned char, kBlock> outer_pad{};
  std::unique_ptr<EVP_MD_CTX, ContextFree> context(EVP_MD_CTX_new());
  Digest digest{};
  if (key.size() > kBlock) {
    EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
    EVP_DigestUpdate(context.get(), key.data(), key.size());
    EVP_DigestFinal_ex(context.get(), digest.data(), nullptr);
    key = absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  for (size_t i = 0; i < kBlock; ++i) {
    const auto byte = i < key.size() ? static_cast<unsigned char>(key[i]) : 0;
    inner_pad[i] = static_cast<unsigned char>(byte ^ 0x36);
    outer_pad[i] = static_cast<unsigned char>(byte ^ 0x5c);
  }
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  EVP_DigestUpdate(context.get(), inner_pad.data(), kBlock);
  for (absl::string_view part : parts) EVP_DigestUpdate(context.get(), part.data(), part.size());
  EVP_DigestFinal_ex(context.get(), digest.data(), nullptr);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  EVP_DigestUpdate(context.get(), outer_pad.data(), kBlock);
  EVP_DigestUpdate(context.get(), digest.data(), digest.size());
  EVP_DigestFinal_ex(context.get(), digest.data(), nullptr);
  return digest;
}

}  // namespace

absl::StatusOr<std::string> DecodeSecret(absl::string_view secret) {
  constexpr absl::string_view kPrefix = "whsec_";
  std::string bytes;
  if (secret.substr(0, kPrefix.size()) != kPrefix ||
      !absl::Base64Unescape(secret.substr(kPrefix.size()), &bytes) || bytes.empty()) {
    return absl::InvalidArgumentError("loadtest: a secret is not whsec_ and base64");
  }
  return bytes;
}

std::string Sign(absl::string_view secret_bytes, absl::string_view id, absl::string_view timestamp,
                 absl::string_view body) {
  const Digest digest = Hmac(secret_bytes, {id, ".", timestamp, ".", body});
  return absl::StrCat("v1,", absl::Base64Escape(absl::string_view(
                                 reinterpret_cast<const char*>(digest.data()), digest.size())));
}

bool VerifySignature(absl::string_view secret_bytes, absl::string_view id,
                     absl::string_view timestamp, absl::string_view body,
                     absl::string_view header) {
  const std::string expected = Sign(secret_bytes, id, timestamp, body);
  bool good = false;
  for (absl::string_view given : absl::StrSplit(header, ' ')) {
    if (given.size() == expected.size() &&
        CRYPTO_memcmp(given.data(), expected.data(), expected.size()) == 0) {
      good = true;
    }
  }
  return good;
}

}  // namespace postrider::loadtest
