#include "tests/fakes/raw_socket_stub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "core/base/check.h"

namespace postrider::tests {

std::string StubRequest::Header(const std::string& name) const {
  std::string lower;
  for (const char c : head) lower.push_back(static_cast<char>(std::tolower(c)));
  const size_t at = lower.find("\r\n" + name + ":");
  if (at == std::string::npos) return "";
  size_t begin = at + name.size() + 3;
  const size_t end = head.find("\r\n", begin);
  while (begin < end && head[begin] == ' ') ++begin;
  return head.substr(begin, end - begin);
}

RawSocketStub::RawSocketStub(EventLoop& loop, const std::string& address, uint16_t port)
    : loop_(loop) {
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  const bool is_v6 = address.find(':') != std::string::npos;
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  void* const binary = is_v6 ? static_cast<void*>(&v6.sin6_addr) : &v4.sin_addr;
  POSTRIDER_CHECK(inet_pton(is_v6 ? AF_INET6 : AF_INET, address.c_str(), binary) == 1);
  auto* const place = is_v6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
  socklen_t size = is_v6 ? sizeof(v6) : sizeof(v4);
  listen_fd_ = socket(place->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  POSTRIDER_CHECK(listen_fd_ >= 0);
  POSTRIDER_CHECK(bind(listen_fd_, place, size) == 0);
  POSTRIDER_CHECK(listen(listen_fd_, 1'024) == 0);
  POSTRIDER_CHECK(getsockname(listen_fd_, place, &size) == 0);
  port_ = ntohs(is_v6 ? v6.sin6_port : v4.sin_port);
  POSTRIDER_CHECK(loop_.Watch(listen_fd_, kFdReadable, [this](uint32_t) { Accept(); }).ok());
}

RawSocketStub::~RawSocketStub() {
  while (!open_.empty()) Close(open_.begin()->second, false);
  loop_.Unwatch(listen_fd_);
  close(listen_fd_);
}

void RawSocketStub::SetConnectScript(StubScript script, bool read) {
  connect_script_ = std::move(script);
  read_ = read;
}

std::string RawSocketStub::url(const std::string& target) const {
  return "http://127.0.0.1:" + std::to_string(port_) + target;
}

void RawSocketStub::OnConnection(int number, const StubScript& script) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  const ConnectionPtr connection = found->second;
  connection->steps.insert(connection->steps.end(), script.begin(), script.end());
  Run(connection);
}

void RawSocketStub::OnAll(const StubScript& script) {
  const std::map<int, ConnectionPtr> all = open_;
  for (const auto& [number, connection] : all) OnConnection(number, script);
}

void RawSocketStub::Accept() {
  while (true) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    auto connection = std::make_shared<Connection>();
    connection->fd = fd;
    connection->number = ++connections_;
    connection->read_closed = !read_;
    connection->steps.assign(connect_script_.begin(), connect_script_.end());
    open_[connection->number] = connection;
    POSTRIDER_CHECK(
        loop_
            .Watch(fd, read_ ? kFdReadable : kFdNone,
                   [this, connection](uint32_t events) { OnEvents(connection, events); })
            .ok());
    Run(connection);
  }
}

void RawSocketStub::OnEvents(const ConnectionPtr& connection, uint32_t events) {
  if (!open_.contains(connection->number)) return;
  if (events & kFdError) {
    Close(connection, false);
    return;
  }
  if ((events & kFdReadable) && !Read(connection)) return;
  if (events & kFdWritable) Run(connection);
}

bool RawSocketStub::Read(const ConnectionPtr& connection) {
  char buffer[65'536];
  while (true) {
    const ssize_t got = recv(connection->fd, buffer, sizeof(buffer), 0);
    if (got > 0) {
      bytes_received_ += got;
      connection->in.append(buffer, static_cast<size_t>(got));
      continue;
    }
    if (got < 0 && errno == EAGAIN) break;
    if (got < 0 || connection->steps.empty()) {
      Close(connection, false);
      return false;
    }
    connection->read_closed = true;  // the script may still have to say something
    Interest(connection, false);
    break;
  }
  TakeRequests(connection);
  return open_.contains(connection->number);
}

void RawSocketStub::TakeRequests(const ConnectionPtr& connection) {
  while (true) {
    const size_t end = connection->in.find("\r\n\r\n");
    if (end == std::string::npos) break;
    StubRequest request;
    request.head = connection->in.substr(0, end + 4);
    const size_t length = static_cast<size_t>(std::atoll(request.Header("content-length").c_str()));
    if (connection->in.size() < end + 4 + length) break;
    request.body = connection->in.substr(end + 4, length);
    connection->in.erase(0, end + 4 + length);
    request.connection = connection->number;
    request.number = static_cast<int>(requests_.size()) + 1;
    requests_.push_back(request);
    const StubScript script =
        on_request_ ? on_request_(request) : StubScript{SendBytes(StubAnswer(200))};
    connection->steps.insert(connection->steps.end(), script.begin(), script.end());
  }
  Run(connection);
}

void RawSocketStub::Run(const ConnectionPtr& connection) {
  while (!connection->waiting && !connection->steps.empty()) {
    StubStep& step = connection->steps.front();
    switch (step.kind) {
      case StubStep::Kind::kSend: {
        if (step.repeats == 0 || step.bytes.empty()) break;
        const ssize_t sent = send(connection->fd, step.bytes.data() + connection->sent,
                                  step.bytes.size() - connection->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
          Interest(connection, true);
          return;
        }
        if (sent < 0) {
          Close(connection, false);
          return;
        }
        bytes_sent_ += sent;
        connection->sent += static_cast<size_t>(sent);
        if (connection->sent < step.bytes.size()) continue;
        connection->sent = 0;
        if (--step.repeats > 0) continue;
        break;
      }
      case StubStep::Kind::kWait:
        connection->waiting = true;
        connection->timer = loop_.CallAfter(step.wait, [this, connection] {
          connection->waiting = false;
          connection->timer = 0;
          if (open_.contains(connection->number)) Run(connection);
        });
        break;
      case StubStep::Kind::kReset:
        Close(connection, true);
        return;
      case StubStep::Kind::kHalfClose:
        shutdown(connection->fd, SHUT_WR);
        break;
      case StubStep::Kind::kClose:
        Close(connection, false);
        return;
    }
    connection->steps.pop_front();
  }
  Interest(connection, false);
}

void RawSocketStub::Interest(const ConnectionPtr& connection, bool write) {
  loop_.SetEvents(connection->fd, (connection->read_closed ? kFdNone : kFdReadable) |
                                      (write ? kFdWritable : kFdNone));
}

void RawSocketStub::Close(const ConnectionPtr connection, bool reset) {
  if (open_.erase(connection->number) == 0) return;
  loop_.CancelTimer(connection->timer);
  loop_.Unwatch(connection->fd);
  if (reset) {
    const linger now = {1, 0};
    setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  close(connection->fd);
}

std::string StubAnswer(int status, const std::string& body, const std::string& fields) {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\n" + fields +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace postrider::tests
