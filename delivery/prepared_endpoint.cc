#include "delivery/prepared_endpoint.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "core/base/status_macros.h"
#include "core/crypto/ed25519.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/signing_keys.h"

namespace postrider::delivery {

absl::StatusOr<std::unique_ptr<PreparedEndpoint>> PrepareEndpoint(
    std::shared_ptr<const subscriptions::Endpoint> endpoint, const KeyRing& keys) {
  const subscriptions::EndpointSettings& settings = endpoint->settings;
  auto prepared = std::make_unique<PreparedEndpoint>();
  prepared->secrets = SecretSet(settings.signature);
  ASSIGN_OR_RETURN(prepared->url, ParseHttpUrl(settings.url));
  prepared->authority = prepared->url.authority();
  ASSIGN_OR_RETURN(const std::vector<subscriptions::EndpointSecret> secrets,
                   subscriptions::OpenEndpointSecrets(keys, endpoint->customer, endpoint->id,
                                                      endpoint->secrets_sealed));
  for (const subscriptions::EndpointSecret& secret : secrets) {
    ASSIGN_OR_RETURN(const std::string bytes, subscriptions::DecodeSigningSecret(secret.secret));
    absl::optional<Ed25519Seed> seed;
    if (!secret.private_key.empty()) {
      ASSIGN_OR_RETURN(seed, subscriptions::DecodePrivateKey(secret.private_key));
    }
    if (!prepared->secrets.Add(bytes, secret.expires_at, seed)) break;
  }
  ASSIGN_OR_RETURN(prepared->auth, PrepareAuth(*endpoint, keys));
  ASSIGN_OR_RETURN(prepared->tls, PrepareTls(*endpoint, keys));
  prepared->connection_group = ConnectionGroup(*endpoint);
  prepared->endpoint = std::move(endpoint);
  return prepared;
}

}  // namespace postrider::delivery
