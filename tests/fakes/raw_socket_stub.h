#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"

namespace postrider::tests {

// One thing that the stub does on a connection, in order.
struct StubStep {
  enum class Kind { kSend, kWait, kReset, kHalfClose, kClose };
  Kind kind = Kind::kSend;
  std::string bytes;    // kSend
  int64_t repeats = 1;  // kSend: so often
  std::chrono::milliseconds wait{0};
};
using StubScript = std::vector<StubStep>;

inline StubStep SendBytes(std::string bytes, int64_t repeats = 1) {
  return {StubStep::Kind::kSend, std::move(bytes), repeats, {}};
}
inline StubStep WaitFor(std::chrono::milliseconds wait) {
  return {StubStep::Kind::kWait, "", 1, wait};
}
inline StubStep ResetConnection() { return {StubStep::Kind::kReset, "", 1, {}}; }
inline StubStep HalfClose() { return {StubStep::Kind::kHalfClose, "", 1, {}}; }
inline StubStep CloseConnection() { return {StubStep::Kind::kClose, "", 1, {}}; }

struct StubRequest {
  std::string head;  // up to and with the empty line
  std::string body;
  int connection = 0;  // 1 for the first one accepted
  int number = 0;      // of all requests, from 1
  // The value of a header, "" when it is not there; the name in lower case.
  std::string Header(const std::string& name) const;
};

// A raw HTTP/1.x server on an ephemeral port of a loopback address, driven by the test's loop: it
// answers each complete request by a script of bytes, waits and breaks, and knows no HTTP beyond
// finding the request's end by its Content-Length.
class RawSocketStub {
 public:
  using OnRequest = std::function<StubScript(const StubRequest&)>;

  explicit RawSocketStub(EventLoop& loop) : RawSocketStub(loop, "127.0.0.1") {}
  // `address`: IPv4 or IPv6; `port` 0: any.
  RawSocketStub(EventLoop& loop, const std::string& address, uint16_t port = 0);
  ~RawSocketStub();

  void SetScript(OnRequest script) { on_request_ = std::move(script); }
  // What happens at once on a new connection; with `read` false nothing is ever read from it.
  void SetConnectScript(StubScript script, bool read = true);

  uint16_t port() const { return port_; }
  std::string url(const std::string& target = "/hook") const;

  int connections() const { return connections_; }
  int open_connections() const { return static_cast<int>(open_.size()); }
  const std::vector<StubRequest>& requests() const { return requests_; }
  void ForgetRequests() { requests_ = {}; }
  // All bytes received, over all connections.
  int64_t bytes_received() const { return bytes_received_; }
  int64_t bytes_sent() const { return bytes_sent_; }
  // Does something to a connection, if it is open.
  void OnConnection(int number, const StubScript& script);
  // Does something to every open connection.
  void OnAll(const StubScript& script);

 private:
  struct Connection {
    int fd = -1;
    int number = 0;
    std::string in;
    std::deque<StubStep> steps;
    size_t sent = 0;  // of the first step
    bool waiting = false;
    bool read_closed = false;
    TimerId timer = 0;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  void Accept();
  void OnEvents(const ConnectionPtr& connection, uint32_t events);
  bool Read(const ConnectionPtr& connection);
  void TakeRequests(const ConnectionPtr& connection);
  void Run(const ConnectionPtr& connection);
  void Close(ConnectionPtr connection, bool reset);
  void Interest(const ConnectionPtr& connection, bool write);

  EventLoop& loop_;
  int listen_fd_ = -1;
  uint16_t port_ = 0;
  OnRequest on_request_;
  StubScript connect_script_;
  bool read_ = true;
  int connections_ = 0;
  int64_t bytes_received_ = 0;
  int64_t bytes_sent_ = 0;
  std::map<int, ConnectionPtr> open_;  // by number
  std::vector<StubRequest> requests_;
};

// "HTTP/1.1 <status> X", a length, and the body.
std::string StubAnswer(int status, const std::string& body = "", const std::string& fields = "");

}  // namespace postrider::tests
