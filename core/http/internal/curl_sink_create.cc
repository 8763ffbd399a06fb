#include <curl/curl.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/http/curl_sink.h"
#include "core/http/internal/curl_sink_impl.h"

namespace postrider {
namespace {

// A TLS write to a connection that the peer has reset raises it, and nobody here wants it.
void IgnoreSigpipe() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpSink>> CreateCurlSink(EventLoop& loop,
                                                         const CurlSinkOptions& options,
                                                         Resolver& resolver,
                                                         std::shared_ptr<const AddressRules> rules,
                                                         Metrics& metrics) {
  POSTRIDER_CHECK(options.pools > 0 && options.in_flight_max > 0 && options.waiting_max > 0 &&
                  options.host_in_flight_max > 0 && rules != nullptr);
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) {
    return absl::InternalError(absl::StrCat("http: libcurl: ", curl_easy_strerror(started)));
  }
  IgnoreSigpipe();
  if (access(options.ca_bundle_file.c_str(), R_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("http: the CA bundle ", options.ca_bundle_file, " cannot be read"));
  }
  return std::unique_ptr<HttpSink>(
      std::make_unique<internal::CurlSink>(loop, options, resolver, std::move(rules), metrics));
}

absl::string_view HttpFailureName(HttpFailure failure) {
  switch (failure) {
    case HttpFailure::kNone:
      return "none";
    case HttpFailure::kAddressRefused:
      return "address_refused";
    case HttpFailure::kDns:
      return "dns";
    case HttpFailure::kConnect:
      return "connect";
    case HttpFailure::kTls:
      return "tls";
    case HttpFailure::kTimeout:
      return "timeout";
    case HttpFailure::kReset:
      return "reset";
    case HttpFailure::kProtocol:
      return "protocol";
    case HttpFailure::kHeadersTooLarge:
      return "headers_too_large";
    case HttpFailure::kAborted:
      return "aborted";
    case HttpFailure::kBadRequest:
      return "bad_request";
    case HttpFailure::kOwnLimit:
      return "own_limit";
    case HttpFailure::kProxy:
      return "proxy";
  }
  return "unknown";
}

}  // namespace postrider
