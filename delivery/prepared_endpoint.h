#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/crypto/key_ring.h"
#include "core/http/http_sink.h"
#include "core/http/url.h"
#include "delivery/endpoint_auth.h"
#include "delivery/signer.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {

// An endpoint's settings, made ready for sending: URL taken apart, secrets opened, keys prepared.
// Threads: owned by one shard.
struct PreparedEndpoint {
  std::shared_ptr<const subscriptions::Endpoint> endpoint;
  HttpUrl url;
  std::string authority;  // of the URL
  SecretSet secrets;
  EndpointAuth auth;
  std::shared_ptr<const TlsMaterial> tls;  // may be null
  std::string connection_group;
};

// FailedPrecondition or the key ring's error when no request can be made from it; never names a
// secret.
absl::StatusOr<std::unique_ptr<PreparedEndpoint>> PrepareEndpoint(
    std::shared_ptr<const subscriptions::Endpoint> endpoint, const KeyRing& keys);

}  // namespace postrider::delivery
