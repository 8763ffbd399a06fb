#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "api/router.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"

namespace postrider::api {

struct ServerOptions {
  std::string listen = "127.0.0.1:8080";  // address:port, IPv6 in brackets; port 0 takes a free one
  size_t connections_max = 1'024;         // the next one is answered 503 and closed
  size_t header_bytes_max = 8'192;        // request line and headers; more is 431
  std::chrono::milliseconds header_timeout{10'000};  // from a request's first byte
  std::chrono::milliseconds body_timeout{30'000};
  std::chrono::milliseconds idle_timeout{60'000};     // between requests
  std::chrono::milliseconds handler_timeout{60'000};  // then the client gets 503
  std::chrono::milliseconds write_timeout{30'000};
  std::chrono::milliseconds stop_wait_max{10'000};
};

struct ServerMetrics {
  // postrider_<folder>_...; `name` tells the servers of a process apart: "api", "probes".
  ServerMetrics(Metrics& metrics, absl::string_view name);

  Counter& answered_2xx;
  Counter& answered_4xx;
  Counter& answered_5xx;
  Counter& connections_refused;
  Gauge& connections;
};

// HTTP/1.1 for one Router. What a client gets wrong on the way in is answered here, always as
// problem+json: 400 (no HTTP, a bad target, a bad length), 404, 405 with Allow, 408, 413 (by
// Content-Length before the body is read, by what has come when chunked; then the connection is
// closed), 415, 431. Everything else goes to the gate.
//
// Threads: one thread of its own speaks HTTP; it never touches anything of ours but the router.
// Each request is posted to `loop` (EventLoop::Post, bounded; no room is a 503) and handled there,
// so gate and handlers run on the loop's thread alone and may use what lives on it. The Respond
// that they get may be called from any thread; it carries the answer back.
// Bounds:  connections_max connections, each with one request and one body at a time; a client that
// sends the next request early waits in its socket.
class Server {
 public:
  // Runs before the handler, on the loop; it calls `route.handler` itself when all is well. The
  // route lives as long as the server.
  using Gate = absl::AnyInvocable<void(const Route& route, Request request, Respond respond)>;

  // Listens before it returns: kUnavailable when the address is taken, InvalidArgument when it is
  // none. `loop` and `metrics` outlive the server. Without a gate every request goes to its
  // handler.
  static absl::StatusOr<std::unique_ptr<Server>> Start(EventLoop& loop, Router router,
                                                       ServerOptions options, Metrics& metrics,
                                                       absl::string_view name, Gate gate);
  // On the loop's thread, or when the loop has stopped. Drops every connection.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where it listens.
  uint16_t port() const;
  const Router& router() const;

  // Accepts no more, closes idle connections, lets requests end for at most stop_wait_max; then
  // `done` runs on the loop. Once, on the loop's thread.
  void Stop(absl::AnyInvocable<void() &&> done);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider::api
