#include "core/http/internal/curl_pool.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/http/internal/socket_quiet.h"

namespace postrider::internal {
namespace {

// libcurl takes an idle connection with bytes waiting, or with a reset pending, for alive, and
// would read those bytes as the answer to its next request. After this it finds the end of the
// stream.
void EndIdle(int fd) {
  constexpr int kReadsMax = 16;
  char discarded[4'096];
  for (int i = 0; i < kReadsMax && recv(fd, discarded, sizeof(discarded), MSG_DONTWAIT) > 0; ++i) {
  }
  shutdown(fd, SHUT_RDWR);
}

}  // namespace

absl::optional<std::pair<IpAddress, uint16_t>> PeerOf(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return absl::nullopt;
  const absl::optional<IpAddress> address = IpAddress::FromSockaddr(&peer, size);
  if (!address) return absl::nullopt;
  const in_port_t port = peer.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_port
                             : reinterpret_cast<const sockaddr_in*>(&peer)->sin_port;
  return std::make_pair(*address, ntohs(port));
}

bool IsConnected(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  return fd >= 0 && getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

CurlPool::CurlPool(EventLoop& loop, const Limits& limits, CurlPoolOwner& owner,
                   Counter& idle_events)
    : loop_(loop), owner_(owner), idle_events_(idle_events), multi_(curl_multi_init()) {
  POSTRIDER_CHECK(multi_ != nullptr);
  curl_multi_setopt(multi_.get(), CURLMOPT_SOCKETFUNCTION, &CurlPool::OnSocket);
  curl_multi_setopt(multi_.get(), CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi_.get(), CURLMOPT_TIMERFUNCTION, &CurlPool::OnTimer);
  curl_multi_setopt(multi_.get(), CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi_.get(), CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
  // Never left to its default, which follows the transfers in flight and then closes a connection
  // after each request.
  curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, limits.connections_max);
}

CurlPool::~CurlPool() {
  POSTRIDER_CHECK(transfers_ == 0);
  multi_.reset();  // closes the idle connections, through CloseSocket()
  loop_.CancelTimer(timer_);
  for (const auto& [fd, socket] : sockets_) {
    if (socket.watched != 0) loop_.Unwatch(fd);
  }
  owner_.OnIdleChanged(-static_cast<ptrdiff_t>(idle_));
}

CURLMcode CurlPool::Add(CURL* easy) {
  const CURLMcode code = curl_multi_add_handle(multi_.get(), easy);
  if (code == CURLM_OK) ++transfers_;
  return code;
}

void CurlPool::Remove(CURL* easy) {
  POSTRIDER_CHECK(curl_multi_remove_handle(multi_.get(), easy) == CURLM_OK);
  --transfers_;
  gave_up_.erase(easy);
}

void CurlPool::Drive() {
  int running = 0;
  if (!gave_up_.empty()) {
    gave_up_.clear();
    // Nothing else runs a transfer that has neither a socket nor a timer that is due.
    CURL_IGNORE_DEPRECATION(curl_multi_socket_all(multi_.get(), &running);)
  } else {
    curl_multi_socket_action(multi_.get(), CURL_SOCKET_TIMEOUT, 0, &running);
  }
  CollectDone();
}

int CurlPool::OnSocket(CURL* easy, curl_socket_t fd, int what, void* pool, void*) {
  auto* const self = static_cast<CurlPool*>(pool);
  if (what == CURL_POLL_REMOVE) {
    const auto socket = self->sockets_.find(fd);
    if (socket == self->sockets_.end()) return 0;
    // One that was still being connected is closed already; or it is connected, and that was all
    // that its transfer was for, which then ends in this turn.
    if (socket->second.watched & kFdWritable) {
      self->Forget(fd);
      self->gave_up_.insert(easy);
      self->owner_.OnPoolDue(*self);
    } else {
      self->SetUsed(socket->second, false);
    }
    return 0;
  }
  uint32_t events = 0;
  if (what & CURL_POLL_IN) events |= kFdReadable;
  if (what & CURL_POLL_OUT) events |= kFdWritable;
  if (events != 0) self->Want(fd, events);
  return 0;
}

int CurlPool::OnTimer(CURLM*, long timeout_ms, void* pool) {
  auto* const self = static_cast<CurlPool*>(pool);
  self->loop_.CancelTimer(self->timer_);
  self->timer_ = 0;
  if (timeout_ms == 0) {
    self->owner_.OnPoolDue(*self);
  } else if (timeout_ms > 0) {
    // It rounds down, and would not ask again if it were called too early.
    self->timer_ = self->loop_.CallAfter(std::chrono::milliseconds(timeout_ms + 1), [self] {
      self->timer_ = 0;
      self->owner_.OnPoolDue(*self);
    });
  }
  return 0;
}

void CurlPool::Want(int fd, uint32_t events) {
  Socket& socket = sockets_[fd];
  SetUsed(socket, true);
  if (socket.watched == events) return;
  if (socket.watched != 0) {
    loop_.SetEvents(fd, events);
  } else if (const absl::Status status =
                 loop_.Watch(fd, events, [this, fd](uint32_t happened) { OnEvents(fd, happened); });
             !status.ok()) {
    // The request then ends at its deadline.
    POSTRIDER_LOG(kError, "http: cannot watch a socket", {"error", status.message()});
    return;
  }
  socket.watched = events;
}

void CurlPool::OnOpened(int fd, const IpAddress& address, uint16_t port) {
  peers_.insert_or_assign(fd, std::make_pair(address, port));
  const auto stale = sockets_.find(fd);
  if (stale == sockets_.end()) return;
  const uint32_t events = stale->second.watched;
  Forget(fd);
  if (events != 0) Want(fd, events);
}

void CurlPool::Forget(int fd) {
  const auto socket = sockets_.find(fd);
  if (socket == sockets_.end()) return;
  if (socket->second.watched != 0) loop_.Unwatch(fd);
  SetUsed(socket->second, true);
  sockets_.erase(socket);
}

void CurlPool::SetUsed(Socket& socket, bool used) {
  if (socket.used == used) return;
  socket.used = used;
  idle_ += used ? size_t{0} - 1 : 1;
  owner_.OnIdleChanged(used ? -1 : 1);
}

void CurlPool::OnEvents(int fd, uint32_t events) {
  const auto found = sockets_.find(fd);
  if (found == sockets_.end()) return;
  Socket& socket = found->second;
  if (!socket.used) {
    // Of before: libcurl has read what the event was about when it looked at another socket.
    if (IsQuiet(fd)) return;
    socket.watched = 0;
    loop_.Unwatch(fd);
    EndIdle(fd);
    idle_events_.Increment();
    return;
  }
  // An error is left to libcurl to find by reading or writing: what came before it still counts.
  int mask = 0;
  if (events & (kFdReadable | kFdError)) mask |= CURL_CSELECT_IN;
  if (events & kFdWritable) mask |= CURL_CSELECT_OUT;
  if ((events & kFdError) && (socket.watched & kFdWritable)) mask |= CURL_CSELECT_OUT;
  int running = 0;
  curl_multi_socket_action(multi_.get(), fd, mask, &running);
  CollectDone();
}

void CurlPool::CollectDone() {
  int left = 0;
  // Those whose sockets were closed are among them.
  while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg == CURLMSG_DONE) {
      owner_.OnTransferDone(message->easy_handle, message->data.result);
    }
  }
  closed_connected_.clear();
}

bool CurlPool::IsConnectedToAny(
    absl::FunctionRef<bool(const IpAddress& address, uint16_t port)> is_such) const {
  return std::any_of(peers_.begin(), peers_.end(), [&is_such](const auto& peer) {
    return is_such(peer.second.first, peer.second.second);
  });
}

int CurlPool::CloseSocket(void* pool, curl_socket_t fd) {
  auto* const self = static_cast<CurlPool*>(pool);
  self->peers_.erase(fd);
  if (IsConnected(fd)) self->closed_connected_.insert(fd);
  self->Forget(fd);
  return close(fd);
}

}  // namespace postrider::internal
