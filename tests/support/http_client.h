#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"

namespace postrider::tests {

struct HttpReply {
  int status = 0;                                            // 0: no answer came
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;

  std::string Header(absl::string_view name) const {
    for (const auto& [header, value] : headers) {
      if (header == name) return value;
    }
    return "";
  }
};

// One connection to a server on 127.0.0.1, that waits for each answer. What it sends is what the
// test says, byte for byte, so it can be wrong.
class HttpClient {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  // `source`: the address that it comes from, any of 127.0.0.0/8.
  explicit HttpClient(uint16_t port, std::string source = "127.0.0.1")
      : port_(port), source_(std::move(source)) {}
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    buffer_.clear();
  }
  bool connected() const { return fd_ >= 0; }

  // A whole request with its length; connects anew when the last answer closed the connection.
  HttpReply Send(absl::string_view method, absl::string_view target, const Headers& headers = {},
                 absl::string_view body = "") {
    std::string text = absl::StrCat(method, " ", target, " HTTP/1.1\r\nhost: 127.0.0.1\r\n");
    for (const auto& [name, value] : headers) absl::StrAppend(&text, name, ": ", value, "\r\n");
    if (!body.empty()) absl::StrAppend(&text, "content-length: ", body.size(), "\r\n");
    absl::StrAppend(&text, "\r\n", body);
    return SendRaw(text, method == "HEAD");
  }

  HttpReply SendRaw(absl::string_view text, bool head = false) {
    Write(text);
    return Read(head);
  }

  void Write(absl::string_view text) {
    if (fd_ < 0) Connect();
    while (!text.empty()) {
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the answer may be there already
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }

  // One answer; status 0 when the connection ends before, or after 30 s without a byte.
  HttpReply Read(bool head = false) {
    size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill()) return HttpReply();
    }
    HttpReply reply;
    size_t length = 0;
    bool closes = false;
    const std::vector<std::string> lines = absl::StrSplit(buffer_.substr(0, end), "\r\n");
    POSTRIDER_CHECK(lines[0].size() > 12);
    POSTRIDER_CHECK(absl::SimpleAtoi(lines[0].substr(9, 3), &reply.status));
    for (size_t i = 1; i < lines.size(); ++i) {
      const std::pair<std::string, std::string> field =
          absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
      reply.headers.emplace_back(absl::AsciiStrToLower(field.first),
                                 std::string(absl::StripAsciiWhitespace(field.second)));
      const auto& [name, value] = reply.headers.back();
      if (name == "content-length") POSTRIDER_CHECK(absl::SimpleAtoi(value, &length));
      if (name == "connection" && absl::EqualsIgnoreCase(value, "close")) closes = true;
    }
    if (head) length = 0;
    while (buffer_.size() < end + 4 + length) {
      if (!Fill()) return HttpReply();
    }
    reply.body = buffer_.substr(end + 4, length);
    buffer_.erase(0, end + 4 + length);
    if (closes) Close();
    return reply;
  }

 private:
  void Connect() {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    POSTRIDER_CHECK(fd_ >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    POSTRIDER_CHECK(inet_pton(AF_INET, source_.c_str(), &address.sin_addr) == 1);
    POSTRIDER_CHECK(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port_);
    POSTRIDER_CHECK(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    const int yes = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  }
  bool Fill() {
    if (fd_ < 0) return false;
    pollfd waiting{fd_, POLLIN, 0};
    char bytes[16 * 1024];
    ssize_t got = 0;
    if (poll(&waiting, 1, 30'000) > 0) got = recv(fd_, bytes, sizeof(bytes), 0);
    if (got <= 0) {
      Close();
      return false;
    }
    buffer_.append(bytes, static_cast<size_t>(got));
    return true;
  }

  const uint16_t port_;
  const std::string source_;
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace postrider::tests
