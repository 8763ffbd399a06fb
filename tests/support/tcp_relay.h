#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace postrider::tests {

// Stands between a client and a server on 127.0.0.1, so that a test can take the server away.
// Threads: its own one moves the bytes; the methods from the test's.
class TcpRelay {
 public:
  enum class Mode {
    kOpen,    // passes everything on
    kClosed,  // resets what is open and refuses what is new
    kSilent,  // takes connections and bytes, and answers nothing
  };

  explicit TcpRelay(uint16_t server_port) : server_port_(server_port) {
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    POSTRIDER_CHECK(wake_ >= 0);
    Listen();
    thread_ = std::thread([this] { Run(); });
  }
  ~TcpRelay() {
    stop_ = true;
    Wake();
    thread_.join();
    close(wake_);
  }
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  uint16_t port() const { return port_; }
  // Returns when it is so.
  void Set(Mode mode) {
    wanted_ = mode;
    Wake();
    while (mode_ != mode) std::this_thread::yield();
  }

 private:
  struct Pair {
    int client;
    int server;
  };

  void Wake() {
    const uint64_t one = 1;
    POSTRIDER_CHECK(write(wake_, &one, sizeof(one)) == sizeof(one));
  }

  void Listen() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    POSTRIDER_CHECK(listener_ >= 0);
    const int yes = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port_);
    POSTRIDER_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    POSTRIDER_CHECK(listen(listener_, 64) == 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }

  static void Reset(int fd) {
    const linger now{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
  }

  void CloseAll() {
    for (const Pair& pair : pairs_) {
      Reset(pair.client);
      if (pair.server >= 0) close(pair.server);
    }
    pairs_.clear();
  }

  void Accept() {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    if (mode_ == Mode::kSilent) {
      pairs_.push_back({client, -1});
      return;
    }
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server_port_);
    if (connect(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      close(server);
      Reset(client);
      return;
    }
    pairs_.push_back({client, server});
  }

  // False: one side is done.
  static bool Move(int from, int to) {
    char bytes[16 * 1024];
    const ssize_t got = read(from, bytes, sizeof(bytes));
    if (got <= 0) return false;
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t put = send(to, bytes + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (put <= 0) return false;
      sent += put;
    }
    return true;
  }

  void Run() {
    while (!stop_) {
      Apply();
      std::vector<pollfd> fds = {{wake_, POLLIN, 0}};
      fds.push_back({listener_, POLLIN, 0});
      if (mode_ != Mode::kSilent) {
        for (const Pair& pair : pairs_) {
          fds.push_back({pair.client, POLLIN, 0});
          fds.push_back({pair.server, POLLIN, 0});
        }
      }
      if (poll(fds.data(), fds.size(), -1) < 0) continue;
      if (fds[0].revents != 0) {
        uint64_t count = 0;
        if (read(wake_, &count, sizeof(count)) < 0) continue;
        continue;
      }
      std::vector<Pair> kept;
      for (size_t i = 2; i + 1 < fds.size(); i += 2) {
        const Pair pair = pairs_[i / 2 - 1];
        const bool alive = (fds[i].revents == 0 || Move(pair.client, pair.server)) &&
                           (fds[i + 1].revents == 0 || Move(pair.server, pair.client));
        if (alive) {
          kept.push_back(pair);
        } else {
          close(pair.client);
          close(pair.server);
        }
      }
      if (mode_ != Mode::kSilent) pairs_ = std::move(kept);
      if (fds[1].revents != 0) Accept();
    }
    CloseAll();
    if (listener_ >= 0) close(listener_);
  }

  void Apply() {
    const Mode wanted = wanted_;
    if (wanted == mode_) return;
    if (wanted == Mode::kClosed) {
      CloseAll();
      close(listener_);
      listener_ = -1;
    } else {
      if (mode_ == Mode::kSilent) CloseAll();
      if (listener_ < 0) Listen();
    }
    mode_ = wanted;
  }

  const uint16_t server_port_;
  uint16_t port_ = 0;
  int wake_ = -1;
  int listener_ = -1;
  std::vector<Pair> pairs_;
  std::atomic<bool> stop_{false};
  std::atomic<Mode> wanted_{Mode::kOpen};
  std::atomic<Mode> mode_{Mode::kOpen};
  std::thread thread_;
};

}  // namespace postrider::tests
