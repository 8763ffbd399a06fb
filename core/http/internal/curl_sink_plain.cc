// What becomes of a request without TLS: see plain_connections.h.

#include <curl/curl.h>
#include <fcntl.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/http/internal/curl_handles.h"
#include "core/http/internal/curl_sink_impl.h"

namespace postrider::internal {
namespace {

// As libcurl would write it. `authority` is the URL's.
std::string RequestHead(const HttpRequest& request, absl::string_view authority) {
  // The scheme's own port is left out.
  if (request.url.port == 80) authority.remove_suffix(sizeof(":80") - 1);
  size_t size = request.url.target.size() + authority.size() + 64;
  for (const auto& [name, value] : request.headers) size += name.size() + value.size() + 4;
  std::string head;
  head.reserve(size);
  absl::StrAppend(&head, "POST ", request.url.target, " HTTP/1.1\r\nHost: ", authority);
  for (const auto& [name, value] : request.headers) {
    head.append("\r\n", 2).append(name).append(": ", value.empty() ? 1 : 2).append(value);
  }
  absl::StrAppend(&head, "\r\nContent-Length: ", request.body.size(), "\r\n\r\n");
  return head;
}

// What libcurl would have said of it.
CURLcode CodeOf(const ResponseParser& parser) {
  switch (parser.failure()) {
    case HttpFailure::kNone:
      return parser.body_cut() ? CURLE_WRITE_ERROR : CURLE_OK;
    case HttpFailure::kProtocol:
      return CURLE_WEIRD_SERVER_REPLY;
    case HttpFailure::kHeadersTooLarge:
      return CURLE_OUT_OF_MEMORY;
    default:
      return CURLE_RECV_ERROR;
  }
}

}  // namespace

void CurlSink::OnConnected(Transfer& transfer) {
  CURL* const easy = transfer.slot->easy.get();
  curl_socket_t socket = CURL_SOCKET_BAD;
  curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &socket);
  if (transfer.connecting_generation != plain_.generation()) {
    const auto peer = PeerOf(socket);
    transfer.refused_since =
        RefusedSince(transfer, peer ? absl::make_optional(peer->first) : absl::nullopt);
    if (transfer.refused_since) return End(transfer, Cause::kFinished, CURLE_COULDNT_CONNECT);
  }
  // libcurl closes its own one.
  const int fd = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return EndWithoutSocket(transfer);
  metrics_.connections.Increment();
  transfer.connect_time = Microseconds(easy, CURLINFO_CONNECT_TIME_T);
  LeaveCurl(transfer);
  PlainConnection* const connection =
      plain_.Adopt(fd, transfer.route->shelf, transfer.connecting_generation);
  if (connection == nullptr) return EndWithoutSocket(transfer);
  StartExchange(transfer, *connection);
}

void CurlSink::EndWithoutSocket(Transfer& transfer) {
  transfer.own_limit = true;
  End(transfer, Cause::kFinished, CURLE_COULDNT_CONNECT);
}

void CurlSink::StartExchange(Transfer& transfer, PlainConnection& connection) {
  if (++transfer.sends > 1) metrics_.resends.Increment();
  if (transfer.head.empty()) transfer.head = RequestHead(transfer.request, transfer.host->key);
  transfer.body = transfer.request.body;
  StartReader(transfer);
  plain_.Start(connection, transfer);
}

void CurlSink::OnExchangeEnd(Exchange& exchange, Exchange::End end) {
  Transfer& transfer = static_cast<Transfer&>(exchange);
  if (end == Exchange::End::kDead && transfer.sends < kRequestSendsMax) {
    return StartInCurl(transfer);
  }
  End(transfer, Cause::kFinished, CodeOf(transfer.parser));
}

}  // namespace postrider::internal
