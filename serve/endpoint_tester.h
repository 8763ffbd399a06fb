#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "api/endpoint_tester.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/crypto/key_ring.h"
#include "core/http/address_guard.h"
#include "core/http/egress_proxy.h"
#include "core/http/resolver.h"

namespace postrider {

struct EndpointTesterParts {
  Resolver& resolver;
  const KeyRing& keys;
  Metrics& metrics;
  std::shared_ptr<const AddressRules> rules;
  std::shared_ptr<const EgressProxy> proxy;  // null: none
  std::string ca_file;
};

// What delivery has for testing endpoints as what the API wants, with a sink of its own on `loop`.
// Both, and what `parts` refers to, outlive it.
absl::StatusOr<std::unique_ptr<api::EndpointTester>> MakeEndpointTester(
    EventLoop& loop, const EndpointTesterParts& parts);

}  // namespace postrider
