#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/crypto/key_ring.h"
#include "core/http/http_sink.h"
#include "delivery/token_cache.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {

// How an endpoint is told who we are: a header line, or where the token of one comes from; at most
// one of them.
struct EndpointAuth {
  absl::optional<std::pair<std::string, std::string>> header;
  std::shared_ptr<const TokenSource> token;
};

// Both open what is sealed. FailedPrecondition, or the key ring's error, when the settings and the
// secret make no header or there is no secret; never with a part of it.
absl::StatusOr<EndpointAuth> PrepareAuth(const subscriptions::Endpoint& endpoint,
                                         const KeyRing& keys);
// Null: the system's trust and no certificate of ours.
absl::StatusOr<std::shared_ptr<const TlsMaterial>> PrepareTls(
    const subscriptions::Endpoint& endpoint, const KeyRing& keys);

// HttpRequest::connection_group: the customer and, with credentials, those too, so that what a
// receiver knows of a connection is never another one's. TLS material keeps itself apart.
std::string ConnectionGroup(const subscriptions::Endpoint& endpoint);

}  // namespace postrider::delivery
