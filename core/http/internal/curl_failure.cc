#include "core/http/internal/curl_failure.h"

#include <curl/curl.h>

namespace postrider::internal {
namespace {

// Of a request that got no tunnel: was it the proxy, or whom it should have reached?
HttpFailure ProxyFailureOf(const CurlEnd& end) {
  if (end.connect_status >= 500 && end.connect_status <= 599) return HttpFailure::kConnect;
  const bool waits = end.code == CURLE_OPERATION_TIMEDOUT && end.tcp_connected;
  return end.connect_status == 0 && waits ? HttpFailure::kConnect : HttpFailure::kProxy;
}

bool HasTunnel(const CurlEnd& end) {
  return end.request_sent || (end.connect_status >= 200 && end.connect_status <= 299);
}

}  // namespace

HttpFailure FailureOf(const CurlEnd& end) {
  if (end.own_limit) return HttpFailure::kOwnLimit;
  if (end.address_refused) {
    // The proxy's, which has moved.
    return end.proxied ? HttpFailure::kProxy : HttpFailure::kAddressRefused;
  }
  if (end.proxied && !HasTunnel(end)) return ProxyFailureOf(end);
  if (end.headers_too_large) return HttpFailure::kHeadersTooLarge;
  switch (end.code) {
    case CURLE_OPERATION_TIMEDOUT:
      if (end.request_sent) return HttpFailure::kTimeout;
      return end.tcp_connected ? HttpFailure::kTls : HttpFailure::kConnect;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return HttpFailure::kDns;
    case CURLE_COULDNT_CONNECT:
    case CURLE_INTERFACE_FAILED:
    case CURLE_NO_CONNECTION_AVAILABLE:
      return HttpFailure::kConnect;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_SSL_ENGINE_SETFAILED:
    case CURLE_SSL_ENGINE_INITFAILED:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_USE_SSL_FAILED:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_SHUTDOWN_FAILED:
    case CURLE_SSL_CRL_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_CLIENTCERT:
      return HttpFailure::kTls;
    case CURLE_OUT_OF_MEMORY:
      // What it says when one header line passes its own limit.
      return end.request_sent ? HttpFailure::kHeadersTooLarge : HttpFailure::kConnect;
    case CURLE_UNSUPPORTED_PROTOCOL:  // HTTP/0.9: no status line
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP_RETURNED_ERROR:
    case CURLE_WRITE_ERROR:
    case CURLE_READ_ERROR:
    case CURLE_RANGE_ERROR:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_FILESIZE_EXCEEDED:
    case CURLE_CHUNK_FAILED:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_HTTP3:
    case CURLE_TOO_MANY_REDIRECTS:
      return HttpFailure::kProtocol;
    case CURLE_URL_MALFORMAT:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_UNKNOWN_OPTION:
    case CURLE_SETOPT_OPTION_SYNTAX:
    case CURLE_NOT_BUILT_IN:
      return HttpFailure::kBadRequest;
    default:
      // Sending, receiving, an empty answer, and what we do not know: tried again.
      return end.request_sent || end.tcp_connected ? HttpFailure::kReset : HttpFailure::kConnect;
  }
}

}  // namespace postrider::internal
