#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/http/egress_proxy.h"
#include "core/http/http_sink.h"

namespace postrider {

class AddressRules;
class EventLoop;
class Metrics;
class Resolver;

struct CurlSinkOptions {
  // The receivers are spread over so many connection pools: the cost of a request grows with the
  // connections of its pool.
  int pools = 64;
  // Requests at once, and those that wait for their name or a slot.
  size_t in_flight_max = 2'000;
  size_t waiting_max = 8'000;
  // Requests at once to one host and port.
  size_t host_in_flight_max = 200;
  // Of those that wait, for one host and port.
  size_t host_waiting_max = 250;
  // Kept open, over all pools; every one is a file descriptor. Those with TLS are at most three in
  // four of them, so that they do not take the places of all others; behind a proxy all.
  size_t idle_connections_max = 32'768;
  std::chrono::seconds connection_age_max{600};
  // An idle connection that is older is not used again.
  std::chrono::seconds idle_age_max{118};
  std::chrono::milliseconds resolve_timeout{5'000};
  // Of one answer, interim answers and trailers included.
  size_t response_header_bytes_max = 64 * 1024;
  int response_header_lines_max = 200;
  // The only trust there is; a PEM file.
  std::string ca_bundle_file = "/etc/ssl/certs/ca-certificates.crt";
  // Null: connections are made to the receivers themselves.
  std::shared_ptr<const EgressProxy> proxy;
};

// The sink on libcurl: HTTP/1.1 over TCP or TLS 1.2+, one per shard. It makes the process ignore
// SIGPIPE. `loop`, `resolver` and `metrics` outlive it.
absl::StatusOr<std::unique_ptr<HttpSink>> CreateCurlSink(EventLoop& loop,
                                                         const CurlSinkOptions& options,
                                                         Resolver& resolver,
                                                         std::shared_ptr<const AddressRules> rules,
                                                         Metrics& metrics);

}  // namespace postrider
