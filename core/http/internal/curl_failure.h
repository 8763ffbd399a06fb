#pragma once

#include "core/http/http_sink.h"

namespace postrider::internal {

// What is known of a transfer that ended without a complete head.
struct CurlEnd {
  int code = 0;  // a CURLcode; any number is answered
  bool request_sent = false;
  bool tcp_connected = false;
  bool address_refused = false;  // by the guard, all of the addresses
  bool headers_too_large = false;
  bool own_limit = false;  // there was no socket to be had for it
  // Behind an egress proxy `tcp_connected` is about the proxy.
  bool proxied = false;
  int connect_status = 0;  // what the proxy answered to CONNECT; 0: nothing
};

// Never kNone: without a head even CURLE_OK is a failure.
HttpFailure FailureOf(const CurlEnd& end);

}  // namespace postrider::internal
