#include "tests/fakes/tls_front.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "core/base/check.h"

namespace postrider::tests {
namespace {

// Of one direction, held here.
constexpr size_t kHeldMost = 64 * 1024;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void CloseSocket(int fd, bool reset) {
  if (reset) {
    const linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  close(fd);
}

bool IsTransient(int error) { return error == EAGAIN || error == EINTR; }

}  // namespace

TlsFront::TlsFront(EventLoop& loop, const Certificate& certificate, uint16_t server_port)
    : loop_(loop), context_(SSL_CTX_new(TLS_server_method())), server_port_(server_port) {
  SSL_CTX_use_certificate(context_.get(), certificate.certificate.get());
  SSL_CTX_use_PrivateKey(context_.get(), certificate.key.get());
  SSL_CTX_set_mode(context_.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  POSTRIDER_CHECK(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  POSTRIDER_CHECK(listen(listen_fd_, 128) == 0);
  POSTRIDER_CHECK(getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  POSTRIDER_CHECK(loop_.Watch(listen_fd_, kFdReadable, [this](uint32_t) { Accept(); }).ok());
}

TlsFront::~TlsFront() {
  while (!links_.empty()) Drop(links_.begin()->second, false);
  loop_.Unwatch(listen_fd_);
  close(listen_fd_);
}

void TlsFront::Accept() {
  while (true) {
    const int client = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0) return;
    ++connections_;
    auto link = std::make_shared<Link>();
    link->client = client;
    link->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(server_port_);
    // The kernel answers for a server that listens.
    if (connect(link->server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close(link->server);
      CloseSocket(client, true);
      continue;
    }
    // What the server sends at once must not wait for the client to acknowledge the session
    // tickets.
    const int on = 1;
    for (const int fd : {client, link->server}) {
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    link->ssl.reset(SSL_new(context_.get()));
    SSL_set_fd(link->ssl.get(), client);
    links_[client] = link;
    for (const int fd : {client, link->server}) {
      POSTRIDER_CHECK(loop_
                          .Watch(fd, kFdReadable,
                                 [this, link](uint32_t events) {
                                   // The other socket's event may have ended it in this turn.
                                   if (link->client >= 0) Step(link, (events & kFdError) != 0);
                                 })
                          .ok());
    }
  }
}

void TlsFront::Step(const LinkPtr& link, bool hung_up) {
  if (!link->shaken && !ShakeHands(*link)) return Drop(link, false);
  if (link->shaken) {
    ReadClient(*link);
    ReadServer(*link, hung_up);
    if (!WriteServer(*link) || !WriteClient(*link)) return Drop(link, true);
    if (link->client_end == End::kReset || link->server_end == End::kReset) {
      return Drop(link, true);
    }
    TellEnds(*link);
    if (link->client_told && link->server_told) return Drop(link, false);
    // What ended before this and hangs up now takes nothing more.
    if (hung_up && (link->client_end != End::kNone || link->server_end != End::kNone)) {
      return Drop(link, true);
    }
  }
  Wait(*link);
}

bool TlsFront::ShakeHands(Link& link) {
  ERR_clear_error();
  const int done = SSL_accept(link.ssl.get());
  if (done == 1) {
    link.shaken = true;
    ++handshakes_;
    return true;
  }
  const int error = SSL_get_error(link.ssl.get(), done);
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

void TlsFront::ReadClient(Link& link) {
  char bytes[16'384];
  while (link.client_end == End::kNone && link.to_server.size() < kHeldMost) {
    ERR_clear_error();
    errno = 0;
    const int got = SSL_read(link.ssl.get(), bytes, sizeof(bytes));
    if (got > 0) {
      link.to_server.append(bytes, static_cast<size_t>(got));
      continue;
    }
    const int error = SSL_get_error(link.ssl.get(), got);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return;
    link.client_end = error == SSL_ERROR_SYSCALL && errno != 0 ? End::kReset : End::kEnd;
  }
}

// `all`: also past what is held at most, for the server hangs up.
void TlsFront::ReadServer(Link& link, bool all) {
  char bytes[16'384];
  while (link.server_end == End::kNone && (all || link.to_client.size() < kHeldMost)) {
    const ssize_t got = recv(link.server, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
      link.to_client.append(bytes, static_cast<size_t>(got));
      continue;
    }
    if (got < 0 && IsTransient(errno)) return;
    link.server_end = got < 0 ? End::kReset : End::kEnd;
  }
}

bool TlsFront::WriteClient(Link& link) {
  link.client_blocked = false;
  while (!link.to_client.empty()) {
    ERR_clear_error();
    const int sent = SSL_write(link.ssl.get(), link.to_client.data(),
                               static_cast<int>(std::min(link.to_client.size(), kHeldMost)));
    if (sent <= 0) {
      const int error = SSL_get_error(link.ssl.get(), sent);
      link.client_blocked = true;
      return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    }
    link.to_client.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

bool TlsFront::WriteServer(Link& link) {
  link.server_blocked = false;
  while (!link.to_server.empty()) {
    const ssize_t sent = send(link.server, link.to_server.data(), link.to_server.size(),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      link.server_blocked = true;
      // What it said before it went is passed on first.
      if (!IsTransient(errno)) link.to_server.clear();
      return true;
    }
    link.to_server.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

void TlsFront::TellEnds(Link& link) {
  if (link.server_end == End::kEnd && link.to_client.empty() && !link.client_told) {
    link.client_told = true;
    ERR_clear_error();
    SSL_shutdown(link.ssl.get());
    shutdown(link.client, SHUT_WR);
  }
  if (link.client_end == End::kEnd && link.to_server.empty() && !link.server_told) {
    link.server_told = true;
    shutdown(link.server, SHUT_WR);
  }
}

void TlsFront::Wait(const Link& link) {
  const auto wanted = [](bool read, bool write) {
    return (read ? kFdReadable : kFdNone) | (write ? kFdWritable : kFdNone);
  };
  const bool reads_client = link.client_end == End::kNone && link.to_server.size() < kHeldMost;
  const bool reads_server =
      link.shaken && link.server_end == End::kNone && link.to_client.size() < kHeldMost;
  loop_.SetEvents(link.client, wanted(reads_client, link.client_blocked));
  loop_.SetEvents(link.server, wanted(reads_server, !link.to_server.empty()));
}

void TlsFront::Drop(const LinkPtr link, bool reset) {
  links_.erase(link->client);
  for (const int fd : {link->client, link->server}) {
    loop_.Unwatch(fd);
    CloseSocket(fd, reset);
  }
  link->client = -1;
}

}  // namespace postrider::tests
