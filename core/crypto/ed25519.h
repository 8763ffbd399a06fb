#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

namespace postrider {

// The private key as RFC 8032 has it: all else is computed from these 32 bytes.
using Ed25519Seed = std::array<uint8_t, 32>;
using Ed25519PublicKey = std::array<uint8_t, 32>;
using Ed25519Signature = std::array<uint8_t, 64>;

// A private key of ed25519 (RFC 8032, pure), prepared. Signing takes about 40 us.
//
// Threads: owned by one. The key's bytes are wiped when it goes.
class Ed25519Key {
 public:
  explicit Ed25519Key(const Ed25519Seed& seed);
  ~Ed25519Key();
  Ed25519Key(Ed25519Key&&) noexcept;
  Ed25519Key& operator=(Ed25519Key&&) noexcept;

  const Ed25519PublicKey& public_key() const { return public_key_; }
  // The text must be one piece: it is hashed twice.
  Ed25519Signature Sign(absl::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  Ed25519PublicKey public_key_{};
};

// Whether `signature` is that of `text` by the key. Threads: any.
bool VerifyEd25519(const Ed25519PublicKey& key, absl::string_view text,
                   const Ed25519Signature& signature);

}  // namespace postrider
