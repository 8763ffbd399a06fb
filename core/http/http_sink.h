#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/http/header_rules.h"
#include "core/http/url.h"

namespace postrider {

class AddressRules;

// What the TLS of a customer's requests stands on. Each text is PEM.
struct TlsMaterial {
  std::string ca_pem;           // trusted instead of the system's; empty: the system's
  std::string certificate_pem;  // shown to the receiver, with its chain; empty: none
  std::string key_pem;          // of the certificate, without a passphrase
  // Of all of them, such as a SHA-256: requests of different digests never share a connection.
  std::string digest;
};

// A POST. It is sent as it stands: no redirect is followed, no proxy of the environment is used.
struct HttpRequest {
  HttpUrl url;
  // Clean lines (header_rules.h); Host and Content-Length are made by the sink. A line that is not
  // clean ends the request with kBadRequest before a byte is sent.
  HttpHeaders headers;
  std::string body;
  Duration connect_timeout = std::chrono::seconds(3);
  // From the moment the request has its slot: connect, TLS, sending, waiting, answer.
  Duration total_timeout = std::chrono::seconds(15);
  // So much of the answer's body is kept; the connection is closed when there is more.
  size_t response_body_bytes_max = 16 * 1024;
  // Lines of the answer's head whose names begin so, in any letter case, are kept; empty: none.
  std::string response_header_prefix;
  // Requests of different groups never share a connection: the customer's id, and whatever else
  // must keep them apart.
  std::string connection_group;
  // None: the system's trust and no certificate of ours. Unfit material ends the request with kTls.
  std::shared_ptr<const TlsMaterial> tls;
  // Asked, if set, when the request has its slot and nothing was sent yet: false ends it with
  // kAborted. It may bring `headers` up to date, which may have waited long, and nothing else. It
  // must not call the sink.
  std::function<bool(HttpRequest& request)> may_start;
};

enum class HttpFailure : uint8_t {
  kNone,            // there is a status
  kAddressRefused,  // none of the host's addresses may be reached
  kDns,
  kConnect,  // also when connect_timeout ends within the TLS handshake
  kTls,
  kTimeout,
  kReset,     // the connection broke before the answer's head was complete
  kProtocol,  // what came is no HTTP
  kHeadersTooLarge,
  kAborted,     // by Abort() or may_start
  kBadRequest,  // unfit for the wire; nothing was sent
  // Our egress proxy was not reached or refused us: no matter of the receiver. What it could not
  // reach by its own account (5xx to CONNECT) is kConnect.
  kProxy,
  // This machine had no socket for it: no descriptor, memory or port left. No matter of the
  // receiver either.
  kOwnLimit,
};
inline constexpr int kHttpFailures = 13;
// "none", "address_refused", ...: for metrics and logs.
absl::string_view HttpFailureName(HttpFailure failure);

struct HttpTimings {
  Duration queued{};      // waiting for the name and a slot; counts to no deadline of the receiver
  Duration dns{};         // the part of `queued` that the name took
  Duration connect{};     // 0 on a reused connection
  Duration tls{};         // likewise
  Duration first_byte{};  // from the start to the answer's first byte; 0 when there was none
  Duration total{};       // from the start to the end, without `queued`
};

struct HttpResult {
  HttpFailure failure = HttpFailure::kNone;
  // The receiver may have seen the request.
  bool request_sent = false;
  // A deadline ended it, also after a complete head, when `failure` is kNone.
  bool timed_out = false;
  // The head was complete but the body was not, or it was longer than we wanted.
  bool body_cut = false;
  // How often the request was sent again on a new connection because a kept one was dead: 0 or 1.
  int resends = 0;
  int status = 0;  // 0: no complete head
  // The values of Retry-After headers, at most 4, 128 bytes each.
  std::vector<std::string> retry_after;
  absl::optional<std::string> date;
  // See HttpRequest::response_header_prefix: names in lower case, at most 8, values of 128 bytes
  // each.
  HttpHeaders kept_headers;
  std::string body_excerpt;
  HttpTimings timings;
};

using HttpRequestId = uint64_t;  // never reused; 0 names none

// The way out to HTTP. A complete head decides the result, whatever happens to the body after it.
//
// Threads: the loop's thread, for everything.
// Bounds:  a fixed number of requests at once, the rest wait in line; CanSend() is false when that
//          is full, RoomFor() is 0 when a host has its part of it.
class HttpSink {
 public:
  using Done = absl::AnyInvocable<void(HttpResult) &&>;

  // Every request must have ended: see AbortAll().
  virtual ~HttpSink() = default;

  // False: the line is full; try again when a request has ended.
  virtual bool CanSend() const = 0;
  // How many more requests to a host and port, as HttpUrl::authority() names them, may come to wait
  // without taking from others what the line has room for: a host that hangs cannot fill it. It
  // grows when a request to that host has ended or got its slot. A promise of who calls: Send()
  // looks at CanSend() alone.
  virtual size_t RoomFor(const std::string& authority) const = 0;
  // Needs CanSend(). `done` is called exactly once, from the loop, never inside a call to the sink.
  virtual HttpRequestId Send(HttpRequest request, Done done) = 0;
  // Ends a request soon: its `done` is called with kAborted, or with its status when a complete
  // head was in. No effect on a request that has ended.
  virtual void Abort(HttpRequestId id) = 0;
  virtual void AbortAll() = 0;

  // Accepted and not ended.
  virtual size_t in_flight() const = 0;

  // Holds for every connection from now on. Connections made before to what `rules` refuse take no
  // more requests, and so do those that may be to it: behind a proxy all of them. A request whose
  // connection is being made meanwhile is not sent to what they refuse: kAddressRefused.
  virtual void SetAddressRules(std::shared_ptr<const AddressRules> rules) = 0;
};

}  // namespace postrider
