#include "loadtest/receiver.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <queue>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "loadtest/behaviour.h"
#include "loadtest/envelope.h"
#include "loadtest/event_source.h"
#include "loadtest/http_request.h"
#include "loadtest/latency.h"
#include "loadtest/ledger.h"
#include "loadtest/signature.h"
#include "loadtest/state.h"

namespace postrider::loadtest {
namespace {

constexpr size_t kReadSize = 64 << 10;
constexpr int64_t kTimestampToleranceS = 300;

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}
int64_t SteadyMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Connection {
  Fd fd;
  uint32_t serial = 0;  // tells it from an earlier one with the same fd
  uint32_t local_address = 0;
  HttpRequestReader reader;
  std::string out;       // answers not written yet
  bool waiting = false;  // a slow or hanging answer: nothing more is read from the buffer
  bool close_after_write = false;
  bool wants_write = false;
};

struct Delayed {
  int64_t due_ms;
  int fd;
  uint32_t serial;
  std::string answer;
  bool keep_alive;
};
struct Later {
  bool operator()(const Delayed& a, const Delayed& b) const { return a.due_ms > b.due_ms; }
};

std::string Answer(int status, int retry_after_s, bool keep_alive) {
  std::string answer =
      absl::StrCat("HTTP/1.1 ", status, status < 300 ? " OK" : " No", "\r\nContent-Length: 0\r\n");
  if (status == 204) answer = "HTTP/1.1 204 No Content\r\n";
  if (retry_after_s >= 0) absl::StrAppend(&answer, "Retry-After: ", retry_after_s, "\r\n");
  if (!keep_alive) answer += "Connection: close\r\n";
  answer += "\r\n";
  return answer;
}

struct FileVersion {
  int64_t seconds = 0;
  int64_t nanoseconds = 0;
  int64_t size = -1;
  friend bool operator==(const FileVersion&, const FileVersion&) = default;
};
FileVersion VersionOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_size};
}

}  // namespace

class Receiver::Server {
 public:
  Server(const Plan& plan, const ReceiverOptions& options)
      : plan_(plan), options_(options), random_(options.seed) {}

  absl::Status Open();
  absl::Status Run();
  void Stop() {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
  }
  uint16_t port() const { return port_; }
  const Counts& counts() const { return counts_; }
  std::string Summary() const;

 private:
  void Accept();
  void Handle(Connection* connection, uint32_t events);
  // False: the connection is gone.
  bool ReadRequests(Connection* connection);
  bool Serve(Connection* connection);
  bool Write(Connection* connection);
  bool Send(Connection* connection, absl::string_view answer);
  void Close(int fd, bool reset);
  void Take(const Connection& connection, const HttpRequest& request, bool accepted);
  void FireDelayed();
  absl::Status EverySecond();
  absl::Status ReadState();
  absl::Status ReadRules();

  const Plan& plan_;
  const ReceiverOptions options_;
  Random random_;
  Fd epoll_;
  Fd listener_;
  Fd stop_;
  uint16_t port_ = 0;
  uint32_t next_serial_ = 1;
  std::vector<std::unique_ptr<Connection>> connections_;  // by fd
  std::priority_queue<Delayed, std::vector<Delayed>, Later> delayed_;

  std::vector<std::string> secrets_;  // by endpoint; empty: not registered
  FileVersion state_version_;
  Behaviours behaviours_;
  RequestRates rates_;
  FileVersion rules_version_;
  EnvelopeReader envelopes_;
  std::unique_ptr<LedgerWriter<ReceivedRecord>> ledger_;
  LatencyHistogram latency_;
  absl::flat_hash_set<uint32_t> addresses_;
  std::vector<bool> endpoints_seen_;
  std::vector<ReceivedRecord> records_;  // of the request in hand
  Counts counts_;
};

absl::Status Receiver::Server::Open() {
  RETURN_IF_ERROR(ReadState());
  RETURN_IF_ERROR(ReadRules());
  if (!options_.ledger_file.empty()) {
    ASSIGN_OR_RETURN(ledger_, LedgerWriter<ReceivedRecord>::Create(options_.ledger_file, 0));
  }
  endpoints_seen_.assign(plan_.endpoints().size(), false);
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  stop_ = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  listener_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(options_.port);
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener_.get(), 4096) != 0) {
    return absl::UnavailableError(
        absl::StrCat("loadtest: cannot listen on port ", options_.port, ": ", strerror(errno)));
  }
  socklen_t size = sizeof(address);
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  for (const Fd* fd : {&listener_, &stop_}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd->get();
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd->get(), &event);
  }
  return absl::OkStatus();
}

absl::Status Receiver::Server::ReadState() {
  if (options_.state_file.empty()) return absl::OkStatus();
  const FileVersion version = VersionOf(options_.state_file);
  if (version == state_version_) return absl::OkStatus();
  ASSIGN_OR_RETURN(State state, State::Load(options_.state_file));
  if (state.fingerprint != plan_.fingerprint()) {
    return absl::FailedPreconditionError("loadtest: the state file is of another plan");
  }
  std::vector<std::string> secrets(plan_.endpoints().size());
  for (size_t i = 0; i < state.endpoints.size() && i < secrets.size(); ++i) {
    if (state.endpoints[i].secret.empty()) continue;
    ASSIGN_OR_RETURN(secrets[i], DecodeSecret(state.endpoints[i].secret));
  }
  secrets_ = std::move(secrets);
  state_version_ = version;
  return absl::OkStatus();
}

absl::Status Receiver::Server::ReadRules() {
  if (options_.rules_file.empty()) return absl::OkStatus();
  const FileVersion version = VersionOf(options_.rules_file);
  if (version == rules_version_) return absl::OkStatus();
  std::ifstream in(options_.rules_file);
  std::stringstream text;
  text << in.rdbuf();
  ASSIGN_OR_RETURN(behaviours_, Behaviours::Parse(text.str()));
  rules_version_ = version;
  return absl::OkStatus();
}

absl::Status Receiver::Server::Run() {
  std::vector<epoll_event> events(1024);
  int64_t next_second = SteadyMs() + 1000;
  bool stopping = false;
  while (!stopping) {
    int64_t until = next_second;
    if (!delayed_.empty()) until = std::min(until, delayed_.top().due_ms);
    const auto wait = static_cast<int>(std::max<int64_t>(0, until - SteadyMs()));
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      const int fd = event.data.fd;
      if (fd == listener_.get()) {
        Accept();
      } else if (fd == stop_.get()) {
        stopping = true;
      } else if (connections_[static_cast<size_t>(fd)] != nullptr) {
        Handle(connections_[static_cast<size_t>(fd)].get(), event.events);
      }
    }
    FireDelayed();
    if (SteadyMs() >= next_second) {
      RETURN_IF_ERROR(EverySecond());
      next_second = SteadyMs() + 1000;
    }
  }
  return EverySecond();
}

absl::Status Receiver::Server::EverySecond() {
  if (ledger_ != nullptr) RETURN_IF_ERROR(ledger_->Flush());
  // A file in the middle of a change is read at the next turn.
  const absl::Status state = ReadState();
  const absl::Status rules = ReadRules();
  for (const absl::Status& status : {state, rules}) {
    if (!status.ok()) fprintf(stderr, "receive: %s\n", std::string(status.message()).c_str());
  }
  if (!options_.metrics_file.empty()) {
    const std::string next = absl::StrCat(options_.metrics_file, ".next");
    std::ofstream out(next, std::ios::trunc);
    out << Summary() << "\n";
    out.close();
    if (!out || rename(next.c_str(), options_.metrics_file.c_str()) != 0) {
      return absl::UnavailableError("loadtest: the metrics file cannot be written");
    }
  }
  return absl::OkStatus();
}

void Receiver::Server::Accept() {
  for (;;) {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    Fd fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                  SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() < 0) return;
    if (ntohl(peer.sin_addr.s_addr) >> 24 != 127) continue;
    sockaddr_in local{};
    size = sizeof(local);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size);
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const auto at = static_cast<size_t>(fd.get());
    if (connections_.size() <= at) connections_.resize(at + 1);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd.get();
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event);
    auto connection = std::make_unique<Connection>();
    connection->fd = std::move(fd);
    connection->serial = next_serial_++;
    connection->local_address = ntohl(local.sin_addr.s_addr);
    connections_[at] = std::move(connection);
    ++counts_.connections;
    ++counts_.connections_open;
  }
}

void Receiver::Server::Close(int fd, bool reset) {
  if (reset) {
    const linger hard{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  }
  connections_[static_cast<size_t>(fd)].reset();
  --counts_.connections_open;
}

void Receiver::Server::Handle(Connection* connection, uint32_t events) {
  if ((events & EPOLLOUT) != 0 && !Write(connection)) return;
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) ReadRequests(connection);
}

bool Receiver::Server::ReadRequests(Connection* connection) {
  for (;;) {
    char* space = connection->reader.Space(kReadSize);
    const ssize_t got = read(connection->fd.get(), space, kReadSize);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      Close(connection->fd.get(), false);
      return false;
    }
    if (got < 0) break;
    connection->reader.Commit(static_cast<size_t>(got));
    if (static_cast<size_t>(got) < kReadSize) break;
    if (connection->reader.buffered() > (17U << 20)) break;
  }
  return Serve(connection);
}

bool Receiver::Server::Serve(Connection* connection) {
  HttpRequest request;
  while (!connection->waiting) {
    const HttpRequestReader::Result result = connection->reader.Next(&request);
    if (connection->reader.TakeContinue()) {
      if (!Send(connection, "HTTP/1.1 100 Continue\r\n\r\n")) return false;
    }
    if (result == HttpRequestReader::Result::kNeedMore) break;
    if (result == HttpRequestReader::Result::kMalformed) {
      ++counts_.malformed;
      Close(connection->fd.get(), false);
      return false;
    }
    Behaviour behaviour = behaviours_.For(request.target);
    if (behaviour.failing_percent > 0 &&
        random_.Below(100) < static_cast<uint64_t>(behaviour.failing_percent)) {
      behaviour.status = 500;
    }
    if (behaviour.requests_per_second > 0) {
      behaviour.status =
          rates_.Answer(std::string(request.target), behaviour.requests_per_second, SteadyMs());
      counts_.breakdowns = rates_.breakdowns();
    }
    const bool answers = behaviour.kind == Behaviour::Kind::kAnswer;
    Take(*connection, request, answers && behaviour.status / 100 == 2);
    const bool keep_alive = request.keep_alive;
    connection->reader.Consume();
    if (behaviour.kind == Behaviour::Kind::kReset) {
      Close(connection->fd.get(), true);
      return false;
    }
    if (!answers) {
      connection->waiting = true;
      break;
    }
    std::string answer = Answer(behaviour.status, behaviour.retry_after_s, keep_alive);
    if (behaviour.delay.count() > 0) {
      connection->waiting = true;
      delayed_.push({SteadyMs() + behaviour.delay.count(), connection->fd.get(), connection->serial,
                     std::move(answer), keep_alive});
      break;
    }
    if (!keep_alive) connection->close_after_write = true;
    if (!Send(connection, answer)) return false;
  }
  connection->reader.Shrink();
  return true;
}

void Receiver::Server::FireDelayed() {
  while (!delayed_.empty() && delayed_.top().due_ms <= SteadyMs()) {
    const Delayed delayed = delayed_.top();
    delayed_.pop();
    Connection* connection = connections_[static_cast<size_t>(delayed.fd)].get();
    if (connection == nullptr || connection->serial != delayed.serial) continue;
    connection->waiting = false;
    if (!delayed.keep_alive) connection->close_after_write = true;
    if (Send(connection, delayed.answer)) Serve(connection);
  }
}

bool Receiver::Server::Send(Connection* connection, absl::string_view answer) {
  connection->out.append(answer.data(), answer.size());
  return Write(connection);
}

bool Receiver::Server::Write(Connection* connection) {
  const int fd = connection->fd.get();
  while (!connection->out.empty()) {
    const ssize_t sent = send(fd, connection->out.data(), connection->out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) {
      Close(fd, false);
      return false;
    }
    connection->out.erase(0, static_cast<size_t>(sent));
  }
  if (connection->out.empty() && connection->close_after_write) {
    Close(fd, false);
    return false;
  }
  if (connection->wants_write != !connection->out.empty()) {
    connection->wants_write = !connection->out.empty();
    epoll_event event{};
    event.events = EPOLLIN | (connection->wants_write ? EPOLLOUT : 0U);
    event.data.fd = fd;
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  }
  return true;
}

void Receiver::Server::Take(const Connection& connection, const HttpRequest& request,
                            bool accepted) {
  const int64_t now_us = NowUs();
  ++counts_.requests;
  if (accepted) ++counts_.accepted_requests;
  if (addresses_.insert(connection.local_address).second) ++counts_.addresses;
  const absl::optional<uint32_t> endpoint = EndpointOfPath(request.target);
  if (!endpoint || *endpoint >= plan_.endpoints().size()) {
    ++counts_.foreign;
    return;
  }
  const absl::string_view id = request.Header("webhook-id");
  const absl::string_view timestamp = request.Header("webhook-timestamp");
  int64_t sent_s = 0;
  uint8_t flags = accepted ? ReceivedRecord::kAccepted : 0;
  const bool known = *endpoint < secrets_.size() && !secrets_[*endpoint].empty();
  if (!known || !absl::SimpleAtoi(timestamp, &sent_s) ||
      std::abs(sent_s - now_us / 1000000) > kTimestampToleranceS ||
      !VerifySignature(secrets_[*endpoint], id, timestamp, request.body,
                       request.Header("webhook-signature"))) {
    flags |= ReceivedRecord::kBadSignature;
    ++counts_.signatures_bad;
  }
  uint32_t attempt = 0;
  if (!absl::SimpleAtoi(request.Header("webhook-attempt"), &attempt)) attempt = 0;
  if (attempt > 1) ++counts_.retries;

  records_.clear();
  uint64_t messages = 0;
  const EnvelopeReader::Shape shape =
      envelopes_.Read(request.body, [&](const EnvelopeMessage& message) {
        ++messages;
        ReceivedRecord record;
        if (!ParseEventId(message.event_id, &record.run, &record.number)) {
          ++counts_.foreign;
          return;
        }
        record.arrived_us = now_us;
        record.endpoint = *endpoint;
        record.message = XXH32(message.id.data(), message.id.size(), 0);
        record.attempt = static_cast<uint8_t>(std::min(attempt, 255U));
        record.flags = flags;
        PayloadFields fields;
        if (!ParsePayload(message.data, &fields)) {
          record.flags |= ReceivedRecord::kBadContent;
          ++counts_.contents_bad;
        } else if (fields.number != record.number || fields.type != message.type ||
                   fields.tenant != message.tenant || fields.department != message.department ||
                   message.timestamp.empty()) {
          record.flags |= ReceivedRecord::kBadEnvelope;
          ++counts_.envelopes_bad;
        } else if (accepted && attempt <= 1) {
          latency_.Add(now_us - fields.sent_us);
        }
        records_.push_back(record);
      });
  counts_.messages += messages;
  counts_.batch_max = std::max(counts_.batch_max, messages);
  uint64_t said = 0;
  const bool batch = shape == EnvelopeReader::Shape::kBatch;
  const absl::string_view prefix = batch ? "bat_" : "msg_";
  if (shape == EnvelopeReader::Shape::kMalformed || id.substr(0, 4) != prefix || attempt == 0 ||
      request.Header("content-type") != "application/json" ||
      (batch &&
       (!absl::SimpleAtoi(request.Header("webhook-batch-size"), &said) || said != messages))) {
    ++counts_.envelopes_bad;
  }
  for (ReceivedRecord& record : records_) {
    if (batch) record.flags |= ReceivedRecord::kBatch;
    record.batch_size = static_cast<uint16_t>(std::min<uint64_t>(messages, 65535));
    if (accepted) ++counts_.accepted;
    if (ledger_ != nullptr) ledger_->Add(record);
  }
  if (accepted && !records_.empty() && !endpoints_seen_[*endpoint]) {
    endpoints_seen_[*endpoint] = true;
    ++counts_.endpoints;
  }
}

std::string Receiver::Server::Summary() const {
  const Counts& c = counts_;
  return absl::StrCat(
      R"({"requests":)", c.requests, R"(,"accepted_requests":)", c.accepted_requests,
      R"(,"messages":)", c.messages, R"(,"accepted":)", c.accepted, R"(,"signatures_bad":)",
      c.signatures_bad, R"(,"contents_bad":)", c.contents_bad, R"(,"envelopes_bad":)",
      c.envelopes_bad, R"(,"foreign":)", c.foreign, R"(,"malformed":)", c.malformed,
      R"(,"retries":)", c.retries, R"(,"connections":)", c.connections, R"(,"connections_open":)",
      c.connections_open, R"(,"addresses":)", c.addresses, R"(,"endpoints":)", c.endpoints,
      R"(,"breakdowns":)", c.breakdowns, R"(,"batch_max":)", c.batch_max, R"(,"p50_ms":)",
      latency_.QuantileMs(0.5), R"(,"p90_ms":)", latency_.QuantileMs(0.9), R"(,"p99_ms":)",
      latency_.QuantileMs(0.99), R"(,"max_ms":)", latency_.QuantileMs(1), "}");
}

absl::StatusOr<std::unique_ptr<Receiver>> Receiver::Create(const Plan& plan,
                                                           const ReceiverOptions& options) {
  auto server = std::make_unique<Server>(plan, options);
  RETURN_IF_ERROR(server->Open());
  return std::unique_ptr<Receiver>(new Receiver(std::move(server)));
}

Receiver::Receiver(std::unique_ptr<Server> server) : server_(std::move(server)) {}
Receiver::~Receiver() = default;
uint16_t Receiver::port() const { return server_->port(); }
absl::Status Receiver::Run() { return server_->Run(); }
void Receiver::Stop() { server_->Stop(); }
const Receiver::Counts& Receiver::counts() const { return server_->counts(); }
std::string Receiver::Summary() const { return server_->Summary(); }

}  // namespace postrider::loadtest
