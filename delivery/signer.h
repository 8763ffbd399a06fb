#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/crypto/ed25519.h"
#include "core/crypto/mac.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/endpoint_secrets.h"

namespace postrider::delivery {

// The signing secrets of one endpoint, prepared. Old ones of a rotation have an end, which is read
// at every signing.
//
// Threads: owned by one shard. Bounds: at most kSecretsMax.
class SecretSet {
 public:
  static constexpr size_t kSecretsMax = subscriptions::kEndpointSecretsMax;

  explicit SecretSet(subscriptions::SignatureScheme scheme = subscriptions::SignatureScheme::kHmac)
      : scheme_(scheme) {}

  // `secret`: the decoded bytes; `seed`: of its key pair, which is prepared if the scheme needs it.
  // Newest first. False: kSecretsMax are there already.
  [[nodiscard]] bool Add(absl::string_view secret, absl::optional<WallTime> expires = {},
                         const absl::optional<Ed25519Seed>& seed = {});
  bool empty() const { return secrets_.empty(); }

  // The value of webhook-signature (Standard Webhooks,
  // https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md):
  // for each secret that has not expired at `now` (it is valid before `expires` and no longer at
  // it), the newest first, "v1,<base64>" (HMAC-SHA256), "v1a,<base64>" (ed25519) or both, separated
  // by spaces, over "<id>.<seconds>.<body>". Empty when a scheme that is asked for has no valid
  // secret: nothing may be sent then.
  std::string Sign(absl::string_view id, int64_t timestamp_seconds, absl::string_view body,
                   WallTime now);

 private:
  struct Secret {
    HmacSha256Key key;
    absl::optional<Ed25519Key> pair;
    absl::optional<WallTime> expires;
  };
  subscriptions::SignatureScheme scheme_;
  std::vector<Secret> secrets_;
};

}  // namespace postrider::delivery
