#include "delivery/prepared_endpoint.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "subscriptions/registry/endpoint_secrets.h"

namespace postrider::delivery {

absl::StatusOr<std::unique_ptr<PreparedEndpoint>> PrepareEndpoint(
    std::shared_ptr<const subscriptions::Endpoint> endpoint, const KeyRing& keys) {
  const subscriptions::EndpointSettings& settings = endpoint->settings;
  auto prepared = std::make_unique<PreparedEndpoint>();
  ASSIGN_OR_RETURN(prepared->url, ParseHttpUrl(settings.url));
  ASSIGN_OR_RETURN(const std::vector<subscriptions::EndpointSecret> secrets,
                   subscriptions::OpenEndpointSecrets(keys, endpoint->customer, endpoint->id,
                                                      endpoint->secrets_sealed));
  for (const subscriptions::EndpointSecret& secret : secrets) {
    ASSIGN_OR_RETURN(const std::string bytes, DecodeSecret(secret.secret));
    if (!prepared->secrets.Add(bytes, secret.expires_at)) break;
  }
  prepared->endpoint = std::move(endpoint);
  return prepared;
}

}  // namespace postrider::delivery
