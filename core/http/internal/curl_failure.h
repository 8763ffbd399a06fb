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
};

// Never kNone: without a head even CURLE_OK is a failure.
HttpFailure FailureOf(const CurlEnd& end);

}  // namespace postrider::internal
