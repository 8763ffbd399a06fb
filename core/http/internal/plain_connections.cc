#include "core/http/internal/plain_connections.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/http/internal/socket_quiet.h"

namespace postrider::internal {
namespace {

bool IsTransient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// At once of a large request, for others wait.
constexpr size_t kWriteMost = 256 * 1024;

}  // namespace

PlainConnections::PlainConnections(EventLoop& loop, const Limits& limits, const size_t& others_idle,
                                   ExchangeOwner& owner, Counter& idle_events)
    : loop_(loop),
      limits_(limits),
      others_idle_(others_idle),
      owner_(owner),
      idle_events_(idle_events) {}

PlainConnections::~PlainConnections() {
  POSTRIDER_CHECK(busy_.empty());
  while (!idle_.empty()) CloseIdle(idle_.begin());
}

PlainConnection* PlainConnections::Take(Shelf& shelf) {
  const MonotonicTime now = loop_.clock().Now();
  while (!shelf.idle.empty()) {
    const List::iterator last = shelf.idle.back();
    // Asked each time: an end, or bytes that answer nothing, may be there that the loop has not
    // told yet.
    if (IsAged(*last, now) || !IsQuiet(last->fd_)) {
      CloseIdle(last);
      continue;
    }
    shelf.idle.pop_back();
    busy_.splice(busy_.end(), idle_, last);
    return &*last;
  }
  return nullptr;
}

PlainConnection* PlainConnections::Adopt(int fd, Shelf& shelf, uint64_t generation) {
  const List::iterator made = busy_.emplace(busy_.end(), fd, shelf);
  made->self_ = made;
  made->generation_ = generation;
  made->opened_ = loop_.clock().Now();
  PlainConnection* const connection = &*made;
  const absl::Status status = loop_.Watch(
      fd, kFdReadable, [this, connection](uint32_t events) { OnEvents(*connection, events); });
  if (!status.ok()) {
    POSTRIDER_LOG(kError, "http: cannot watch a connection", {"error", status.message()});
    close(fd);
    busy_.erase(made);
    return nullptr;
  }
  connection->watched_ = kFdReadable;
  return connection;
}

void PlainConnections::Start(PlainConnection& connection, Exchange& exchange) {
  connection.exchange_ = &exchange;
  exchange.connection = &connection;
  exchange.sent = 0;
  if (!Write(connection)) Read(connection, Sending::kBroken);
}

void PlainConnections::Abandon(Exchange& exchange) {
  POSTRIDER_CHECK(exchange.connection != nullptr);
  Close(*std::exchange(exchange.connection, nullptr));
}

bool PlainConnections::Write(PlainConnection& connection) {
  Exchange& exchange = *connection.exchange_;
  iovec parts[2];
  size_t count = 0;
  size_t skip = exchange.sent;
  size_t room = kWriteMost;
  for (const absl::string_view part : {absl::string_view(exchange.head), exchange.body}) {
    const size_t skipped = std::min(skip, part.size());
    const size_t size = std::min(part.size() - skipped, room);
    skip -= skipped;
    room -= size;
    if (size == 0) continue;
    parts[count].iov_base = const_cast<char*>(part.data() + skipped);
    parts[count].iov_len = size;
    ++count;
  }
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t sent =
      count == 0 ? 0 : sendmsg(connection.fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && !IsTransient(errno)) {
    WatchFor(connection, kFdReadable);
    return false;
  }
  if (sent > 0) exchange.sent += static_cast<size_t>(sent);
  // An answer may come before the request is out, from one that does not want it.
  const bool all = exchange.sent == exchange.head.size() + exchange.body.size();
  WatchFor(connection, all ? kFdReadable : kFdReadable | kFdWritable);
  return true;
}

void PlainConnections::WatchFor(PlainConnection& connection, uint32_t events) {
  if (connection.watched_ == events) return;
  loop_.SetEvents(connection.fd_, events);
  connection.watched_ = events;
}

void PlainConnections::OnEvents(PlainConnection& connection, uint32_t events) {
  if (connection.exchange_ == nullptr) {
    idle_events_.Increment();
    CloseIdle(connection.self_);
    return;
  }
  // What has come still counts when nothing can be sent any more.
  const bool broken = (events & kFdWritable) != 0 && !Write(connection);
  if (broken || (events & (kFdReadable | kFdError)) != 0) {
    Read(connection, broken ? Sending::kBroken : Sending::kFine);
  }
}

void PlainConnections::Read(PlainConnection& connection, Sending sending) {
  Exchange& exchange = *connection.exchange_;
  const ssize_t got = recv(connection.fd_, bytes_.data(), bytes_.size(), MSG_DONTWAIT);
  if (got < 0 && IsTransient(errno) && sending == Sending::kFine) return;
  ResponseParser& parser = exchange.parser;
  if (got > 0) {
    if (!parser.received_any()) exchange.first_byte = loop_.clock().Now();
    parser.OnBytes(absl::string_view(bytes_.data(), static_cast<size_t>(got)));
    if (!parser.done()) return;
  } else if (got == 0) {
    parser.OnEnd();
  } else {
    // A reset is not the end of a body that has no other.
    parser.OnBreak();
  }
  Finish(connection, connection.served_ && !parser.received_any() ? Exchange::End::kDead
                                                                  : Exchange::End::kEnded);
}

void PlainConnections::Finish(PlainConnection& connection, Exchange::End end) {
  Exchange& exchange = *std::exchange(connection.exchange_, nullptr);
  exchange.connection = nullptr;
  const bool all_sent = exchange.sent == exchange.head.size() + exchange.body.size();
  if (exchange.parser.reusable() && all_sent && connection.generation_ == generation_) {
    Shelve(connection);
  } else {
    Close(connection);
  }
  owner_.OnExchangeEnd(exchange, end);
}

bool PlainConnections::IsAged(const PlainConnection& connection, MonotonicTime now) const {
  return now - connection.opened_ > limits_.age_max ||
         now - connection.idle_since_ > limits_.idle_age_max;
}

void PlainConnections::Shelve(PlainConnection& connection) {
  connection.served_ = true;
  connection.idle_since_ = loop_.clock().Now();
  idle_.splice(idle_.end(), busy_, connection.self_);
  connection.shelf_.idle.push_back(connection.self_);
  Trim();
}

void PlainConnections::Trim() {
  while (!idle_.empty() && idle_.size() + others_idle_ > limits_.idle_max) {
    CloseIdle(idle_.begin());
  }
}

void PlainConnections::CloseIdle(List::iterator connection) {
  std::vector<List::iterator>& shelf = connection->shelf_.idle;
  const auto place = std::find(shelf.begin(), shelf.end(), connection);
  POSTRIDER_CHECK(place != shelf.end());
  shelf.erase(place);
  busy_.splice(busy_.end(), idle_, connection);
  Close(*connection);
}

void PlainConnections::CloseIdle(Shelf& shelf) {
  while (!shelf.idle.empty()) CloseIdle(shelf.idle.back());
}

void PlainConnections::CloseAged() {
  const MonotonicTime now = loop_.clock().Now();
  // In the order of idleness.
  while (!idle_.empty() && now - idle_.front().idle_since_ > limits_.idle_age_max) {
    CloseIdle(idle_.begin());
  }
  Trim();
}

void PlainConnections::CloseThose(absl::FunctionRef<bool(int fd)> are_to_go) {
  const uint64_t before = generation_++;
  const auto stays = [&](PlainConnection& connection) {
    if (connection.generation_ != before || are_to_go(connection.fd_)) return false;
    connection.generation_ = generation_;
    return true;
  };
  for (PlainConnection& connection : busy_) static_cast<void>(stays(connection));
  for (auto connection = idle_.begin(); connection != idle_.end();) {
    const auto next = std::next(connection);
    if (!stays(*connection)) CloseIdle(connection);
    connection = next;
  }
}

// One of busy_.
void PlainConnections::Close(PlainConnection& connection) {
  loop_.Unwatch(connection.fd_);
  close(connection.fd_);
  busy_.erase(connection.self_);
}

}  // namespace postrider::internal
