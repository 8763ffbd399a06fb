#include "subscriptions/registry/signing_keys.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/crypto/random.h"

namespace postrider::subscriptions {
namespace {

constexpr absl::string_view kSecretPrefix = "whsec_";
constexpr absl::string_view kPrivatePrefix = "whsk_";
constexpr absl::string_view kPublicPrefix = "whpk_";
constexpr size_t kSecretBytesMin = 24;
constexpr size_t kSecretBytesMax = 64;
constexpr size_t kSeedBytes = sizeof(Ed25519Seed);
constexpr size_t kPairBytes = kSeedBytes + sizeof(Ed25519PublicKey);

template <typename Bytes>
absl::string_view View(const Bytes& bytes) {
  return absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::Status Refused() {
  return absl::InvalidArgumentError(
      "a private key is whsk_ and base64 of an ed25519 seed with its public key");
}

// The seed, alone or with its public key.
absl::StatusOr<std::string> DecodePair(absl::string_view text) {
  std::string bytes;
  if (!absl::ConsumePrefix(&text, kPrivatePrefix) || !absl::Base64Unescape(text, &bytes) ||
      (bytes.size() != kSeedBytes && bytes.size() != kPairBytes)) {
    return Refused();
  }
  return bytes;
}

Ed25519Seed SeedOf(absl::string_view bytes) {
  Ed25519Seed seed{};
  std::copy_n(bytes.begin(), seed.size(), seed.begin());
  return seed;
}

}  // namespace

std::string NewSigningSecret() {
  std::array<char, 32> bytes;
  FillRandom(bytes.data(), bytes.size());
  return absl::StrCat(kSecretPrefix, absl::Base64Escape(View(bytes)));
}

absl::StatusOr<std::string> DecodeSigningSecret(absl::string_view text) {
  std::string bytes;
  if (!absl::ConsumePrefix(&text, kSecretPrefix) || !absl::Base64Unescape(text, &bytes) ||
      bytes.size() < kSecretBytesMin || bytes.size() > kSecretBytesMax) {
    return absl::InvalidArgumentError("a signing secret is whsec_ and base64 of 24 to 64 bytes");
  }
  return bytes;
}

std::string NewPrivateKey() {
  Ed25519Seed seed;
  FillRandom(seed.data(), seed.size());
  const Ed25519PublicKey public_key = Ed25519Key(seed).public_key();
  return absl::StrCat(kPrivatePrefix,
                      absl::Base64Escape(absl::StrCat(View(seed), View(public_key))));
}

absl::StatusOr<Ed25519Seed> DecodePrivateKey(absl::string_view text) {
  ASSIGN_OR_RETURN(const std::string bytes, DecodePair(text));
  const Ed25519Seed seed = SeedOf(bytes);
  if (bytes.size() == kPairBytes &&
      absl::string_view(bytes).substr(kSeedBytes) != View(Ed25519Key(seed).public_key())) {
    return Refused();
  }
  return seed;
}

absl::StatusOr<std::string> PublicKeyOf(absl::string_view private_key) {
  ASSIGN_OR_RETURN(const std::string bytes, DecodePair(private_key));
  const std::string key = bytes.size() == kPairBytes
                              ? bytes.substr(kSeedBytes)
                              : std::string(View(Ed25519Key(SeedOf(bytes)).public_key()));
  return absl::StrCat(kPublicPrefix, absl::Base64Escape(key));
}

}  // namespace postrider::subscriptions
