// What libcurl is told of a request, what it asks meanwhile, and what it tells at the end.

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/http/internal/curl_failure.h"
#include "core/http/internal/curl_sink_impl.h"

namespace postrider::internal {
namespace {

// libcurl's handle of a transfer takes some 8 KB. So many stay for the next burst; others go when
// none has needed them for the span, so many at a time.
constexpr size_t kSlotsKept = 64;
constexpr size_t kTrimMost = 256;
constexpr Duration kTrimEvery = std::chrono::seconds(1);

long Milliseconds(Duration duration) {
  return std::max<long>(std::chrono::ceil<std::chrono::milliseconds>(duration).count(), 1);
}

bool HasHeader(const HttpHeaders& headers, absl::string_view name) {
  return std::any_of(headers.begin(), headers.end(), [name](const auto& header) {
    return absl::EqualsIgnoreCase(header.first, name);
  });
}

}  // namespace

std::unique_ptr<CurlSink::Slot> CurlSink::TakeSlot() {
  if (!free_slots_.empty()) {
    std::unique_ptr<Slot> slot = std::move(free_slots_.back());
    free_slots_.pop_back();
    unused_slots_ = std::min(unused_slots_, free_slots_.size());
    return slot;
  }
  auto slot = std::make_unique<Slot>();
  slot->easy.reset(curl_easy_init());
  slot->sink = this;
  CURL* const easy = slot->easy.get();
  POSTRIDER_CHECK(easy != nullptr);  // out of memory
  curl_easy_setopt(easy, CURLOPT_PRIVATE, slot.get());
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_PROXY, "");
  curl_easy_setopt(easy, CURLOPT_NOPROXY, "");  // else the environment's
  if (Proxied()) SetProxy(easy);
  curl_easy_setopt(easy, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy, CURLOPT_POST, 1L);
  curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, -1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 8'192L);
  curl_easy_setopt(easy, CURLOPT_MAXLIFETIME_CONN,
                   static_cast<long>(options_.connection_age_max.count()));
  curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, static_cast<long>(options_.idle_age_max.count()));
  curl_easy_setopt(easy, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
  curl_easy_setopt(easy, CURLOPT_CAINFO, options_.ca_bundle_file.c_str());
  // Else OpenSSL asks the terminal for that of a key.
  curl_easy_setopt(easy, CURLOPT_KEYPASSWD, "");
  // With a directory the parsed bundle is not kept, and each handshake costs 20 ms of CPU.
  curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &CurlSink::OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, slot.get());
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &CurlSink::OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, slot.get());
  curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, &CurlSink::OnBeforeSend);
  curl_easy_setopt(easy, CURLOPT_PREREQDATA, slot.get());
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, &CurlSink::OnOpenSocket);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, slot.get());
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, &CurlPool::CloseSocket);
  return slot;
}

void CurlSink::FreeSlot(std::unique_ptr<Slot> slot) {
  free_slots_.push_back(std::move(slot));
  ArmTrim();
}

void CurlSink::ArmTrim() {
  if (free_slots_.size() <= kSlotsKept || trim_timer_ != 0) return;
  unused_slots_ = free_slots_.size();
  trim_timer_ = loop_.CallAfter(kTrimEvery, [this] { TrimSlots(); });
}

void CurlSink::TrimSlots() {
  trim_timer_ = 0;
  const size_t above = free_slots_.size() - std::min(free_slots_.size(), kSlotsKept);
  const size_t gone = std::min({unused_slots_, above, kTrimMost});
  free_slots_.erase(free_slots_.begin(), free_slots_.begin() + static_cast<ptrdiff_t>(gone));
  ArmTrim();
}

void CurlSink::SetProxy(CURL* easy) {
  const EgressProxy& proxy = *options_.proxy;
  curl_easy_setopt(easy, CURLOPT_HTTPPROXYTUNNEL, 1L);
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L);
  if (proxy.user.empty()) return;
  curl_easy_setopt(easy, CURLOPT_PROXYAUTH, static_cast<long>(CURLAUTH_BASIC));
  curl_easy_setopt(easy, CURLOPT_PROXYUSERNAME, proxy.user.c_str());
  curl_easy_setopt(easy, CURLOPT_PROXYPASSWORD, proxy.password.c_str());
}

CurlSink::Pool CurlSink::MakePool() {
  // What is left is for connections of ours, which moreover have what these do not use.
  const size_t most = options_.proxy != nullptr
                          ? options_.idle_connections_max
                          : options_.idle_connections_max - options_.idle_connections_max / 4;
  const auto connections = static_cast<long>(most / options_.pools);
  return Pool{std::make_unique<CurlPool>(loop_, CurlPool::Limits{std::max(connections, 1L)}, *this,
                                         metrics_.idle_events),
              next_generation_++};
}

void CurlSink::SetRequestOptions(Transfer& transfer) {
  CURL* const easy = transfer.slot->easy.get();
  const HttpRequest& request = transfer.request;
  const Route& route = *transfer.route;

  curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, transfer.ours ? 1L : 0L);
  if (!transfer.ours) SetRequest(transfer);
  SetAddresses(transfer);
  curl_easy_setopt(easy, CURLOPT_URL, request.url.ToString().c_str());
  if (Proxied()) {
    const std::string proxy = absl::StrCat("http://", route.alias, ":", route.port);
    curl_easy_setopt(easy, CURLOPT_PROXY, proxy.c_str());
  }
  curl_easy_setopt(easy, CURLOPT_CONNECT_TO,
                   Proxied() ? transfer.connect_to.get() : route.connect_to.get());
  curl_easy_setopt(easy, CURLOPT_RESOLVE, transfer.resolve.get());
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(request.connect_timeout));
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, transfer.pool);
  SetTls(*transfer.slot, request.tls.get());
}

// What is sent.
void CurlSink::SetRequest(Transfer& transfer) {
  CURL* const easy = transfer.slot->easy.get();
  const HttpRequest& request = transfer.request;
  for (const auto& [name, value] : request.headers) {
    transfer.headers.Add(value.empty() ? absl::StrCat(name, ";") : absl::StrCat(name, ": ", value));
  }
  // What libcurl would add by itself.
  transfer.headers.Add("Expect:");
  if (!HasHeader(request.headers, "accept")) transfer.headers.Add("Accept:");
  if (!HasHeader(request.headers, "content-type")) transfer.headers.Add("Content-Type:");
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer.headers.get());
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request.body.data());
  curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  StartReader(transfer);
}

void CurlSink::StartReader(Transfer& transfer) {
  const HttpRequest& request = transfer.request;
  transfer.parser.Start({options_.response_header_bytes_max, options_.response_header_lines_max,
                         request.response_body_bytes_max, request.response_header_prefix});
}

void CurlSink::SetAddresses(Transfer& transfer) {
  Route& route = *transfer.route;
  Pool& pool = pools_[route.pool_index];
  // Whose addresses the made-up name stands for.
  const Route& named = Proxied() ? *proxy_ : route;
  if (route.loaded_generation != pool.generation || route.loaded_version != named.version) {
    // Until a transfer is seen to have had the addresses, each one brings them along.
    std::string entry = absl::StrCat(route.alias, ":", route.port, ":");
    for (const IpAddress& address : named.addresses) {
      const bool v6 = address.family() == IpAddress::Family::kV6;
      absl::StrAppend(&entry, &address == named.addresses.data() ? "" : ",", v6 ? "[" : "",
                      address.ToString(), v6 ? "]" : "");
    }
    transfer.resolve.Add(absl::StrCat("-", route.alias, ":", route.port));
    transfer.resolve.Add(entry);
    transfer.carried_version = named.version;
    transfer.carried_generation = pool.generation;
  }
  for (const std::string& removal : std::exchange(pool.pool->removals, {})) {
    transfer.resolve.Add(removal);
  }
}

// `tls` must outlive the transfer: libcurl takes no copy.
void CurlSink::SetTls(Slot& slot, const TlsMaterial* tls) {
  if (tls == nullptr && !slot.has_tls) return;
  CURL* const easy = slot.easy.get();
  const auto set = [easy](CURLoption option, const std::string* pem) {
    if (pem == nullptr || pem->empty()) {
      curl_easy_setopt(easy, option, nullptr);
      return;
    }
    curl_blob blob = {};
    blob.data = const_cast<char*>(pem->data());
    blob.len = pem->size();
    blob.flags = CURL_BLOB_NOCOPY;
    curl_easy_setopt(easy, option, &blob);
  };
  set(CURLOPT_CAINFO_BLOB, tls == nullptr ? nullptr : &tls->ca_pem);
  set(CURLOPT_SSLCERT_BLOB, tls == nullptr ? nullptr : &tls->certificate_pem);
  set(CURLOPT_SSLKEY_BLOB, tls == nullptr ? nullptr : &tls->key_pem);
  slot.has_tls = tls != nullptr;
}

size_t CurlSink::OnHeader(char* data, size_t size, size_t count, void* slot) {
  Transfer& transfer = *static_cast<Slot*>(slot)->transfer;
  const size_t bytes = size * count;
  return transfer.parser.reader().OnHeaderLine(absl::string_view(data, bytes)) ? bytes : 0;
}

size_t CurlSink::OnBody(char* data, size_t size, size_t count, void* slot) {
  Transfer& transfer = *static_cast<Slot*>(slot)->transfer;
  const size_t bytes = size * count;
  return transfer.parser.reader().OnBody(absl::string_view(data, bytes)) ? bytes : 0;
}

// Before the request goes out on a connection, new or kept, the first time and again.
int CurlSink::OnBeforeSend(void* slot, char* peer, char*, int, int) {
  auto* const self = static_cast<Slot*>(slot);
  Transfer& transfer = *self->transfer;
  self->sink->MarkLoaded(transfer);
  if (transfer.ours) return CURL_PREREQFUNC_OK;  // it will go out later
  if (self->sink->RefusedSince(transfer, IpAddress::Parse(peer))) {
    transfer.refused_since = true;
    return CURL_PREREQFUNC_ABORT;
  }
  if (transfer.sends == kRequestSendsMax) return CURL_PREREQFUNC_ABORT;
  if (++transfer.sends > 1) self->sink->metrics_.resends.Increment();
  return CURL_PREREQFUNC_OK;
}

bool CurlSink::MayOpen(const Transfer& transfer, const IpAddress& address) const {
  if (Proxied()) {
    // The receiver's was checked when it was chosen.
    return std::find(proxy_->addresses.begin(), proxy_->addresses.end(), address) !=
           proxy_->addresses.end();
  }
  return rules_->Check(address, transfer.request.url.port) == AddressRules::Verdict::kAllowed;
}

bool CurlSink::RefusedSince(const Transfer& transfer, const absl::optional<IpAddress>& peer) const {
  if (transfer.connecting_generation == plain_.generation()) return false;
  const absl::optional<IpAddress>& target = Proxied() ? transfer.proxy_target : peer;
  const HttpUrl& url = transfer.request.url;
  return rules_->IsOwnHost(url.host) || !target ||
         rules_->Check(*target, url.port) != AddressRules::Verdict::kAllowed;
}

curl_socket_t CurlSink::OnOpenSocket(void* slot, curlsocktype purpose, curl_sockaddr* address) {
  auto* const self = static_cast<Slot*>(slot);
  Transfer& transfer = *self->transfer;
  const absl::optional<IpAddress> target =
      IpAddress::FromSockaddr(&address->addr, address->addrlen);
  if (purpose != CURLSOCKTYPE_IPCXN || !target || !self->sink->MayOpen(transfer, *target)) {
    transfer.address_refused = true;
    return CURL_SOCKET_BAD;
  }
  const int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (fd < 0) {
    transfer.own_limit = true;
    return CURL_SOCKET_BAD;
  }
  transfer.socket = fd;
  transfer.family = address->family;
  transfer.pool->OnOpened(fd, *target, transfer.request.url.port);
  self->sink->MarkLoaded(transfer);
  return fd;
}

// Whether its connect() failed because all local ports are in use. To IPv6 the same error says that
// the machine has no address of that kind.
bool CurlSink::LacksPort(const Transfer& transfer) {
  if (transfer.slot == nullptr || transfer.family != AF_INET) return false;
  long error = 0;
  curl_easy_getinfo(transfer.slot->easy.get(), CURLINFO_OS_ERRNO, &error);
  return error == EADDRNOTAVAIL || error == EAGAIN;
}

// libcurl has looked the made-up name up: so it has the addresses that this transfer brought.
void CurlSink::MarkLoaded(Transfer& transfer) {
  if (transfer.carried_generation != pools_[transfer.route->pool_index].generation) return;
  transfer.route->loaded_generation = transfer.carried_generation;
  transfer.route->loaded_version = transfer.carried_version;
}

HttpResult CurlSink::ResultOf(Transfer& transfer, Cause cause, int code) {
  HttpResult result;
  result.timings = TimingsOf(transfer);
  result.request_sent = transfer.sends > 0;
  result.resends = std::max(transfer.sends - 1, 0);
  result.timed_out = cause == Cause::kDeadline || code == CURLE_OPERATION_TIMEDOUT;
  ResponseReader& reader = transfer.parser.reader();
  if (reader.head_done()) {
    result.status = reader.status();
    result.body_cut = cause != Cause::kFinished || code != CURLE_OK;
    result.retry_after = reader.TakeRetryAfter();
    result.date = reader.TakeDate();
    result.kept_headers = reader.TakeKept();
    result.body_excerpt = reader.TakeBody();
  } else if (cause == Cause::kAborted) {
    result.failure = HttpFailure::kAborted;
  } else if (transfer.refused_since) {
    result.failure = HttpFailure::kAddressRefused;
  } else {
    CurlEnd end;
    end.code = code;
    end.request_sent = result.request_sent;
    // Before libcurl has let go of the socket: it tells no time of connecting while TLS is under
    // way.
    end.tcp_connected = result.request_sent || IsConnected(transfer.socket);
    if (Proxied()) {
      long connect_status = 0;
      curl_easy_getinfo(transfer.slot->easy.get(), CURLINFO_HTTP_CONNECTCODE, &connect_status);
      end.proxied = true;
      end.connect_status = static_cast<int>(connect_status);
      if (transfer.pool->ClosedConnected(transfer.socket)) end.tcp_connected = true;
    }
    end.address_refused = transfer.address_refused && transfer.socket < 0;
    end.headers_too_large = reader.too_large();
    end.own_limit = code == CURLE_COULDNT_CONNECT && (transfer.own_limit || LacksPort(transfer));
    result.failure = FailureOf(end);
    if (code == CURLE_OK) metrics_.unknown_codes.Increment();
  }
  if (result.failure == HttpFailure::kAddressRefused) result.timings = HttpTimings();
  return result;
}

HttpTimings CurlSink::TimingsOf(Transfer& transfer) {
  HttpTimings timings;
  timings.queued = transfer.started - transfer.accepted;
  timings.dns = transfer.named - transfer.accepted;
  timings.total = loop_.clock().Now() - transfer.started;
  if (transfer.slot == nullptr) {
    timings.connect = transfer.connect_time;
    if (transfer.parser.received_any()) timings.first_byte = transfer.first_byte - transfer.started;
    return timings;
  }
  CURL* const easy = transfer.slot->easy.get();
  long connections = 0;
  curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connections);
  if (connections > 0) {
    metrics_.connections.Add(static_cast<double>(connections));
    timings.connect = Microseconds(easy, CURLINFO_CONNECT_TIME_T);
    const Duration tls_done = Microseconds(easy, CURLINFO_APPCONNECT_TIME_T);
    if (tls_done > timings.connect) timings.tls = tls_done - timings.connect;
  }
  if (transfer.parser.reader().received_any()) {
    timings.first_byte = Microseconds(easy, CURLINFO_STARTTRANSFER_TIME_T);
  }
  return timings;
}

}  // namespace postrider::internal
