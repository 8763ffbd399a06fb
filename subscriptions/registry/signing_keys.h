#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/crypto/ed25519.h"

// The keys of an endpoint's signatures as text, as Standard Webhooks writes them. No error repeats
// a key. Threads: any.
namespace postrider::subscriptions {

// "whsec_" and base64 of 24..64 bytes: a secret of HMAC-SHA256, made of 32 random bytes.
std::string NewSigningSecret();
absl::StatusOr<std::string> DecodeSigningSecret(absl::string_view text);

// "whsk_" and base64 of the seed and the public key (64 bytes): a private key of ed25519. The seed
// alone is taken too. InvalidArgument also when the public key is not the seed's.
std::string NewPrivateKey();
absl::StatusOr<Ed25519Seed> DecodePrivateKey(absl::string_view text);
// "whpk_" and base64 of the 32 bytes that a receiver verifies with: as the private key holds them,
// which costs no more than decoding it.
absl::StatusOr<std::string> PublicKeyOf(absl::string_view private_key);

}  // namespace postrider::subscriptions
