#include "tests/fakes/dns_stub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <utility>

#include "absl/types/optional.h"
#include "core/base/check.h"

namespace postrider::tests {
namespace {

constexpr size_t kHeaderBytes = 12;
constexpr int kTypeA = 1;
constexpr int kTypeAaaa = 28;

void PutU16(std::string& out, int value) {
  out.push_back(static_cast<char>(value >> 8));
  out.push_back(static_cast<char>(value));
}

}  // namespace

struct DnsStub::Reply {
  std::string name;
  std::string bytes;
  sockaddr_in peer = {};
};

DnsStub::DnsStub(Script script) : script_(std::move(script)) {
  fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  POSTRIDER_CHECK(bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  POSTRIDER_CHECK(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

DnsStub::~DnsStub() {
  // Ends the wait of an unconnected socket too.
  shutdown(fd_, SHUT_RDWR);
  thread_.join();
  close(fd_);
}

int DnsStub::questions(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  const auto found = questions_.find(name);
  return found == questions_.end() ? 0 : found->second;
}

MonotonicTime DnsStub::answered_at(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  const auto found = answered_.find(name);
  return found == answered_.end() ? MonotonicTime() : found->second;
}

void DnsStub::Send(const Reply& reply) {
  {
    absl::MutexLock lock(&mutex_);
    answered_[reply.name] = clock_.Now();
  }
  static_cast<void>(sendto(fd_, reply.bytes.data(), reply.bytes.size(), 0,
                           reinterpret_cast<const sockaddr*>(&reply.peer), sizeof(reply.peer)));
}

void DnsStub::Serve() {
  std::map<std::pair<std::string, int>, int> numbers;
  std::multimap<MonotonicTime, Reply> late;
  while (true) {
    int wait = -1;
    while (!late.empty()) {
      const Duration left = late.begin()->first - clock_.Now();
      if (left > Duration::zero()) {
        wait = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
        break;
      }
      Send(late.begin()->second);
      late.erase(late.begin());
    }
    pollfd readable = {fd_, POLLIN, 0};
    if (poll(&readable, 1, wait) == 0) continue;
    char buffer[1'024];
    sockaddr_in peer = {};
    socklen_t peer_size = sizeof(peer);
    const ssize_t got =
        recvfrom(fd_, buffer, sizeof(buffer), 0, reinterpret_cast<sockaddr*>(&peer), &peer_size);
    if (got <= static_cast<ssize_t>(kHeaderBytes)) return;
    const std::string query(buffer, static_cast<size_t>(got));
    Question question;
    size_t at = kHeaderBytes;
    while (at < query.size() && query[at] != 0) {
      if (!question.name.empty()) question.name.push_back('.');
      const size_t length = static_cast<unsigned char>(query[at]);
      for (size_t i = 1; i <= length && at + i < query.size(); ++i) {
        question.name.push_back(static_cast<char>(std::tolower(query[at + i])));
      }
      at += length + 1;
    }
    if (at + 5 > query.size()) continue;
    const int type =
        static_cast<unsigned char>(query[at + 1]) << 8 | static_cast<unsigned char>(query[at + 2]);
    const size_t end = at + 5;
    if (type != kTypeA && type != kTypeAaaa) continue;
    question.family = type == kTypeA ? IpAddress::Family::kV4 : IpAddress::Family::kV6;
    question.number = ++numbers[{question.name, type}];
    {
      absl::MutexLock lock(&mutex_);
      ++questions_[question.name];
    }
    const DnsAnswer answer = script_(question);
    if (answer.silent) continue;
    std::string records;
    int count = 0;
    for (const std::string& text : answer.addresses) {
      const absl::optional<IpAddress> address = IpAddress::Parse(text);
      POSTRIDER_CHECK(address && address->family() == question.family);
      const size_t size = type == kTypeA ? 4 : 16;
      PutU16(records, 0xc00c);  // the name of the question
      PutU16(records, type);
      PutU16(records, 1);
      records.append(4, '\0');  // a time to live of 0
      PutU16(records, static_cast<int>(size));
      records.append(reinterpret_cast<const char*>(address->bytes().data()), size);
      ++count;
    }
    std::string reply = query.substr(0, 2);
    PutU16(reply, 0x8180 | static_cast<int>(answer.code));
    PutU16(reply, 1);
    PutU16(reply, count);
    PutU16(reply, 0);
    PutU16(reply, 0);
    reply += query.substr(kHeaderBytes, end - kHeaderBytes) + records;
    Reply sent = {question.name, std::move(reply), peer};
    if (answer.delay > Duration::zero()) {
      late.emplace(clock_.Now() + answer.delay, std::move(sent));
    } else {
      Send(sent);
    }
  }
}

}  // namespace postrider::tests
