#include "delivery/signer.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace postrider::delivery {
namespace {

using subscriptions::SignatureScheme;

template <typename Bytes>
void AppendSignature(absl::string_view version, const Bytes& bytes, std::string* header) {
  if (!header->empty()) header->push_back(' ');
  absl::StrAppend(header, version, ",",
                  absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(bytes.data()),
                                                       bytes.size())));
}

}  // namespace

bool SecretSet::Add(absl::string_view secret, absl::optional<WallTime> expires,
                    const absl::optional<Ed25519Seed>& seed) {
  if (secrets_.size() == kSecretsMax) return false;
  secrets_.push_back(Secret{HmacSha256Key(secret), absl::nullopt, expires});
  if (seed && scheme_ != SignatureScheme::kHmac) secrets_.back().pair.emplace(*seed);
  return true;
}

std::string SecretSet::Sign(absl::string_view id, int64_t timestamp_seconds, absl::string_view body,
                            WallTime now) {
  const bool hmac = scheme_ != SignatureScheme::kEd25519;
  const bool ed25519 = scheme_ != SignatureScheme::kHmac;
  const absl::AlphaNum seconds(timestamp_seconds);
  std::string text;  // in one piece, which ed25519 alone needs
  if (ed25519) text = absl::StrCat(id, ".", seconds, ".", body);
  bool signed_by_hmac = false;
  bool signed_by_ed25519 = false;
  std::string header;
  for (Secret& secret : secrets_) {
    if (secret.expires && now >= *secret.expires) continue;
    if (hmac) {
      AppendSignature("v1", secret.key.Mac({id, ".", seconds.Piece(), ".", body}), &header);
      signed_by_hmac = true;
    }
    if (ed25519 && secret.pair) {
      AppendSignature("v1a", secret.pair->Sign(text), &header);
      signed_by_ed25519 = true;
    }
  }
  if (hmac != signed_by_hmac || ed25519 != signed_by_ed25519) return "";
  return header;
}

}  // namespace postrider::delivery
