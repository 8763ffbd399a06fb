#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/crypto/key_ring.h"
#include "subscriptions/registry/ids.h"

namespace postrider::subscriptions {

inline constexpr size_t kEndpointSecretsMax = 8;

// One signing secret of an endpoint, in clear: hold it no longer than needed, log it never.
struct EndpointSecret {
  std::string secret;  // "whsec_<base64>"
  WallTime created_at;
  absl::optional<WallTime> expires_at;  // set when another one has taken its place
  // "whsk_<base64>" (signing_keys.h), of the signatures v1a; empty: made before there were such.
  std::string private_key{};

  bool active(WallTime now) const { return !expires_at || now < *expires_at; }
};

// An endpoint's secrets, the newest first, as one sealed value and back; bound to this customer's
// row of endpoints.secrets_sealed.
absl::StatusOr<std::string> SealEndpointSecrets(const KeyRing& keys, CustomerId customer,
                                                EndpointId endpoint,
                                                const std::vector<EndpointSecret>& secrets);
absl::StatusOr<std::vector<EndpointSecret>> OpenEndpointSecrets(const KeyRing& keys,
                                                                CustomerId customer,
                                                                EndpointId endpoint,
                                                                absl::string_view sealed);

// What else of an endpoint is sealed, each in its own column of its row.
enum class SealedSetting {
  kAuth,    // endpoints.auth_sealed: a password, a token, a header's value or a client secret
  kTlsKey,  // endpoints.tls_key_sealed: the key of the client certificate, as PEM
};
std::string SealSetting(const KeyRing& keys, CustomerId customer, EndpointId endpoint,
                        SealedSetting which, absl::string_view plain);
absl::StatusOr<std::string> OpenSetting(const KeyRing& keys, CustomerId customer,
                                        EndpointId endpoint, SealedSetting which,
                                        absl::string_view sealed);

// All that is sealed of an endpoint's row; empty: there is none.
struct EndpointSealed {
  std::string secrets;
  std::string auth;
  std::string tls_key;
  friend bool operator==(const EndpointSealed&, const EndpointSealed&) = default;
};
// The same, sealed with the key that seals now; what is so already stays. Errors as
// KeyRing::Open().
absl::StatusOr<EndpointSealed> Reseal(const KeyRing& keys, CustomerId customer, EndpointId endpoint,
                                      EndpointSealed sealed);

// `secrets` after a rotation at `now`: `fresh` first, the others expiring no later than
// now + overlap, without those that have expired, at most kEndpointSecretsMax.
std::vector<EndpointSecret> RotateSecrets(std::vector<EndpointSecret> secrets, std::string fresh,
                                          WallTime now, std::chrono::seconds overlap);

}  // namespace postrider::subscriptions
