#include "delivery/signer.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace postrider::delivery {
namespace {

constexpr size_t kSecretBytesMin = 24;
constexpr size_t kSecretBytesMax = 64;

}  // namespace

absl::StatusOr<std::string> DecodeSecret(absl::string_view text) {
  std::string bytes;
  if (!absl::ConsumePrefix(&text, "whsec_") || !absl::Base64Unescape(text, &bytes) ||
      bytes.size() < kSecretBytesMin || bytes.size() > kSecretBytesMax) {
    return absl::InvalidArgumentError("a signing secret is whsec_ and base64 of 24 to 64 bytes");
  }
  return bytes;
}

bool SecretSet::Add(absl::string_view secret, absl::optional<WallTime> expires) {
  if (secrets_.size() == kSecretsMax) return false;
  secrets_.push_back(Secret{HmacSha256Key(secret), expires});
  return true;
}

std::string SecretSet::Sign(absl::string_view id, int64_t timestamp_seconds, absl::string_view body,
                            WallTime now) {
  const absl::AlphaNum seconds(timestamp_seconds);
  std::string header;
  for (Secret& secret : secrets_) {
    if (secret.expires && now >= *secret.expires) continue;
    const HmacTag tag = secret.key.Mac({id, ".", seconds.Piece(), ".", body});
    if (!header.empty()) header.push_back(' ');
    absl::StrAppend(&header, "v1,",
                    absl::Base64Escape(
                        absl::string_view(reinterpret_cast<const char*>(tag.data()), tag.size())));
  }
  return header;
}

}  // namespace postrider::delivery
