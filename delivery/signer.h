#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/crypto/mac.h"
#include "subscriptions/registry/endpoint_secrets.h"

namespace postrider::delivery {

// "whsec_" and base64 of 24..64 bytes -> the bytes. InvalidArgument never repeats the secret.
absl::StatusOr<std::string> DecodeSecret(absl::string_view text);

// The signing secrets of one endpoint, prepared. Old ones of a rotation have an end, which is read
// at every signing.
//
// Threads: owned by one shard. Bounds: at most kSecretsMax.
class SecretSet {
 public:
  static constexpr size_t kSecretsMax = subscriptions::kEndpointSecretsMax;

  // `secret`: the decoded bytes. Newest first. False: kSecretsMax are there already.
  [[nodiscard]] bool Add(absl::string_view secret, absl::optional<WallTime> expires = {});
  bool empty() const { return secrets_.empty(); }

  // The value of webhook-signature (Standard Webhooks v1): "v1,<base64>" for each secret that has
  // not expired at `now` (it is valid before `expires` and no longer at it), separated by spaces,
  // over "<id>.<seconds>.<body>". Empty when no secret is valid: nothing may be sent then.
  std::string Sign(absl::string_view id, int64_t timestamp_seconds, absl::string_view body,
                   WallTime now);

 private:
  struct Secret {
    HmacSha256Key key;
    absl::optional<WallTime> expires;
  };
  std::vector<Secret> secrets_;
};

}  // namespace postrider::delivery
