#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/base/event_loop.h"
#include "tests/fakes/tls_stub.h"

namespace postrider::tests {

// TLS before a raw server of 127.0.0.1, driven by the test's loop: it shakes hands on an ephemeral
// port and passes on what comes, either way. The end of one direction is passed on as that, with a
// goodbye of TLS, and a reset as a reset; who reads slowly is sent to slowly.
class TlsFront {
 public:
  TlsFront(EventLoop& loop, const Certificate& certificate, uint16_t server_port);
  ~TlsFront();
  TlsFront(const TlsFront&) = delete;
  TlsFront& operator=(const TlsFront&) = delete;

  uint16_t port() const { return port_; }
  int connections() const { return connections_; }
  int handshakes() const { return handshakes_; }

 private:
  enum class End : uint8_t { kNone, kEnd, kReset };
  struct SslDeleter {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  struct Link {
    int client = -1;
    int server = -1;
    std::unique_ptr<SSL, SslDeleter> ssl;
    bool shaken = false;
    std::string to_server;
    std::string to_client;
    End client_end = End::kNone;  // how its sending ended
    End server_end = End::kNone;
    bool server_told = false;  // of the other's end
    bool client_told = false;
    bool client_blocked = false;  // it takes nothing more now
    bool server_blocked = false;
  };
  using LinkPtr = std::shared_ptr<Link>;

  void Accept();
  // Does what can be done, and waits for the rest.
  void Step(const LinkPtr& link, bool hung_up);
  bool ShakeHands(Link& link);
  void ReadClient(Link& link);
  void ReadServer(Link& link, bool all);
  // False: nobody is there any more.
  bool WriteClient(Link& link);
  bool WriteServer(Link& link);
  void TellEnds(Link& link);
  void Wait(const Link& link);
  void Drop(LinkPtr link, bool reset);

  EventLoop& loop_;
  std::unique_ptr<SSL_CTX, OpensslDeleter> context_;
  const uint16_t server_port_;
  int listen_fd_ = -1;
  uint16_t port_ = 0;
  int connections_ = 0;
  int handshakes_ = 0;
  std::map<int, LinkPtr> links_;  // by the client's socket
};

}  // namespace postrider::tests
