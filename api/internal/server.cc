#include "api/server.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "api/line_parts.h"
#include "api/problem.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/this_coro.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http.hpp"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/thread_name.h"

namespace postrider::api {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
// What a connection may hold of what the client has sent beyond the body.
constexpr size_t kReadBufferMax = 128 << 10;
// A body that nobody wants is read to its end up to this size, so that the connection lives on.
constexpr size_t kDiscardedBodyMax = 64 << 10;
// How much of a refused body is read away, and for how long, before the connection is closed: a
// reset would otherwise overtake the answer.
constexpr size_t kLingerBytesMax = 8 << 20;
constexpr std::chrono::seconds kLingerTime{2};
constexpr size_t kRefusalsMax = 64;
// So much of a body of lines is read at once.
constexpr size_t kLinePieceBytes = 128 << 10;

absl::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

bool IsJsonType(absl::string_view type) {
  type = absl::StripAsciiWhitespace(type.substr(0, type.find(';')));
  return absl::EqualsIgnoreCase(type, "application/json") ||
         absl::EqualsIgnoreCase(type, "application/merge-patch+json");
}

bool IsLinesType(absl::string_view type) {
  type = absl::StripAsciiWhitespace(type.substr(0, type.find(';')));
  return absl::EqualsIgnoreCase(type, "application/x-ndjson") ||
         absl::EqualsIgnoreCase(type, "application/ndjson");
}

// Where answers find the server, or find that it is gone.
struct Mailbox {
  absl::Mutex mutex;
  asio::io_context* io ABSL_GUARDED_BY(mutex) = nullptr;
};

// What the loop's thread needs of the server; a posted request keeps it.
struct Front {
  Router router;
  Server::Gate gate;
  bool open = true;  // the loop's thread only
};

// A request that is being handled; on the frame of its connection's coroutine.
struct Exchange {
  explicit Exchange(asio::io_context& io) : answered(io) {}
  asio::steady_timer answered;
  absl::optional<Response> response;
};

struct Connection {
  explicit Connection(tcp::socket socket) : stream(std::move(socket)) {}
  void Close() {
    error_code ignored;
    stream.socket().close(ignored);
  }
  beast::tcp_stream stream;
  bool idle = false;
};

using Parser = http::request_parser<http::string_body>;
using LinesParser = http::request_parser<http::buffer_body>;

enum class After { kKeep, kClose, kCloseSlowly };

}  // namespace

struct Server::Impl {
  Impl(EventLoop& event_loop, Router router, ServerOptions server_options, Metrics& all_metrics,
       absl::string_view name, Gate gate)
      : loop(event_loop),
        options(std::move(server_options)),
        metrics(all_metrics, name),
        front(std::make_shared<Front>()),
        mailbox(std::make_shared<Mailbox>()),
        work(asio::make_work_guard(io)),
        acceptor(io),
        stop_timer(io) {
    front->router = std::move(router);
    front->gate = std::move(gate);
    absl::MutexLock lock(&mailbox->mutex);
    mailbox->io = &io;
  }

  absl::Status Listen();
  asio::awaitable<void> Accept();
  asio::awaitable<void> Serve(tcp::socket socket);
  asio::awaitable<void> Refuse(tcp::socket socket);
  // Reads one request and answers it.
  asio::awaitable<After> ServeOne(Connection& connection, beast::flat_buffer& buffer,
                                  const std::string& remote_address);
  asio::awaitable<After> Answer(Connection& connection, const Response& response, bool head,
                                unsigned version, After after);
  // Reads a body of lines and has it handled part by part; `head` is the request without it.
  asio::awaitable<After> ServeLines(Connection& connection, beast::flat_buffer& buffer,
                                    Parser& parser, const Route* route, Request head, After after);
  asio::awaitable<Response> Handle(const Route* route, Request request);
  asio::awaitable<void> ReadAway(Connection& connection);
  void Deliver(uint64_t serial, Response response);
  void CloseAll();
  void FinishStop();
  void Count(int status) {
    (status < 400   ? metrics.answered_2xx
     : status < 500 ? metrics.answered_4xx
                    : metrics.answered_5xx)
        .Increment();
  }

  EventLoop& loop;
  const ServerOptions options;
  ServerMetrics metrics;
  const std::shared_ptr<Front> front;
  const std::shared_ptr<Mailbox> mailbox;

  // The server's own thread only.
  absl::flat_hash_map<uint64_t, Exchange*> exchanges;
  absl::flat_hash_set<Connection*> connections;
  size_t refusals = 0;
  uint64_t next_serial = 1;
  bool stopping = false;
  bool killed = false;
  absl::AnyInvocable<void() &&> stopped;

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work;
  tcp::acceptor acceptor;
  asio::steady_timer stop_timer;
  uint16_t port = 0;
  std::thread thread;
};

namespace {

// The Respond that a handler gets. Knows the request by number, so it may outlive the server.
class Responder {
 public:
  Responder(std::shared_ptr<Mailbox> mailbox,
            std::function<void(uint64_t serial, Response response)> deliver, uint64_t serial)
      : mailbox_(std::move(mailbox)), deliver_(std::move(deliver)), serial_(serial) {}
  Responder(Responder&&) noexcept = default;
  Responder& operator=(Responder&&) = delete;
  ~Responder() {
    if (mailbox_) {
      Send(ProblemRetry(503, "The request was dropped; try again.", std::chrono::seconds(1)));
    }
  }
  void operator()(Response response) && { Send(std::move(response)); }

 private:
  void Send(Response response) {
    const std::shared_ptr<Mailbox> mailbox = std::move(mailbox_);
    mailbox_ = nullptr;
    absl::MutexLock lock(&mailbox->mutex);
    if (mailbox->io == nullptr) return;
    asio::post(*mailbox->io, [deliver = std::move(deliver_), serial = serial_,
                              response = std::move(response)]() mutable {
      deliver(serial, std::move(response));
    });
  }

  std::shared_ptr<Mailbox> mailbox_;
  std::function<void(uint64_t, Response)> deliver_;
  uint64_t serial_;
};

absl::StatusOr<tcp::endpoint> ParseListen(absl::string_view text) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port > 65'535) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not address:port"));
  }
  absl::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  error_code failed;
  const asio::ip::address address = asio::ip::make_address(std::string(host), failed);
  if (failed) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not address:port; write an IP address, not a name"));
  }
  return tcp::endpoint(address, static_cast<uint16_t>(port));
}

bool IsHttpFault(const error_code& failed) {
  return failed.category() == http::make_error_code(http::error::bad_method).category();
}

}  // namespace

ServerMetrics::ServerMetrics(Metrics& metrics, absl::string_view name)
    : answered_2xx(metrics.AddCounter("postrider_api_requests_total", "Requests answered.",
                                      {{"server", name}, {"class", "2xx"}})),
      answered_4xx(metrics.AddCounter("postrider_api_requests_total", "Requests answered.",
                                      {{"server", name}, {"class", "4xx"}})),
      answered_5xx(metrics.AddCounter("postrider_api_requests_total", "Requests answered.",
                                      {{"server", name}, {"class", "5xx"}})),
      connections_refused(metrics.AddCounter("postrider_api_connections_refused_total",
                                             "Connections past the bound.", {{"server", name}})),
      connections(metrics.AddGauge("postrider_api_connections_count", "Open connections.",
                                   {{"server", name}})) {}

absl::Status Server::Impl::Listen() {
  absl::StatusOr<tcp::endpoint> endpoint = ParseListen(options.listen);
  if (!endpoint.ok()) return endpoint.status();
  error_code failed;
  acceptor.open(endpoint->protocol(), failed);
  if (!failed) acceptor.set_option(asio::socket_base::reuse_address(true), failed);
  if (!failed) acceptor.bind(*endpoint, failed);
  if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
  if (failed) {
    return absl::UnavailableError(
        absl::StrCat("api: listen on ", options.listen, ": ", failed.message()));
  }
  port = acceptor.local_endpoint(failed).port();
  return absl::OkStatus();
}

asio::awaitable<void> Server::Impl::Accept() {
  while (acceptor.is_open()) {
    auto [failed, socket] = co_await acceptor.async_accept(kAwait);
    if (failed == asio::error::operation_aborted || stopping) continue;
    if (failed) {
      POSTRIDER_LOG(kWarn, "api cannot accept", {"reason", failed.message()});
      asio::steady_timer pause(io, std::chrono::milliseconds(50));
      co_await pause.async_wait(kAwait);
      continue;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (connections.size() - refusals < options.connections_max) {
      asio::co_spawn(io, Serve(std::move(socket)), [](std::exception_ptr) {});
    } else {
      metrics.connections_refused.Increment();
      if (refusals < kRefusalsMax) {
        asio::co_spawn(io, Refuse(std::move(socket)), [](std::exception_ptr) {});
      }
    }
  }
}

asio::awaitable<void> Server::Impl::Refuse(tcp::socket socket) {
  Connection connection(std::move(socket));
  connections.insert(&connection);
  ++refusals;
  const Response response =
      ProblemRetry(503, "Too many connections; try again.", std::chrono::seconds(1));
  co_await Answer(connection, response, false, 11, After::kClose);
  co_await ReadAway(connection);
  --refusals;
  connections.erase(&connection);
  FinishStop();
}

asio::awaitable<void> Server::Impl::Serve(tcp::socket socket) {
  error_code failed;
  const tcp::endpoint peer = socket.remote_endpoint(failed);
  Connection connection(std::move(socket));
  connections.insert(&connection);
  metrics.connections.Add(1);
  if (!failed) {
    const std::string remote_address = peer.address().to_string();
    beast::flat_buffer buffer(kReadBufferMax);
    After after = After::kKeep;
    while (after == After::kKeep && !killed) {
      after = co_await ServeOne(connection, buffer, remote_address);
    }
    if (after == After::kCloseSlowly) co_await ReadAway(connection);
  }
  connection.stream.socket().shutdown(tcp::socket::shutdown_both, failed);
  connection.Close();
  metrics.connections.Add(-1);
  connections.erase(&connection);
  FinishStop();
}

asio::awaitable<void> Server::Impl::ReadAway(Connection& connection) {
  error_code ignored;
  connection.stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
  connection.stream.expires_after(kLingerTime);
  std::string bytes(16 << 10, '\0');
  for (size_t total = 0; total < kLingerBytesMax;) {
    auto [failed, count] = co_await connection.stream.async_read_some(asio::buffer(bytes), kAwait);
    if (failed) break;
    total += count;
  }
}

asio::awaitable<After> Server::Impl::ServeOne(Connection& connection, beast::flat_buffer& buffer,
                                              const std::string& remote_address) {
  beast::tcp_stream& stream = connection.stream;
  if (buffer.size() == 0) {
    if (stopping) co_return After::kClose;
    connection.idle = true;
    stream.expires_after(options.idle_timeout);
    auto [failed, count] = co_await stream.async_read_some(buffer.prepare(4096), kAwait);
    connection.idle = false;
    if (failed) co_return After::kClose;
    buffer.commit(count);
  }

  Parser parser;
  parser.header_limit(static_cast<uint32_t>(options.header_bytes_max));
  parser.body_limit(boost::none);  // set below, when the route is known
  stream.expires_after(options.header_timeout);
  {
    auto [failed, count] = co_await http::async_read_header(stream, buffer, parser, kAwait);
    // The parser bounds the request line and the fields apart; we bound both together.
    if (failed == http::error::header_limit || failed == http::error::buffer_overflow ||
        (!failed && count > options.header_bytes_max)) {
      co_return co_await Answer(connection,
                                Problem(431, absl::StrCat("The request line and headers may have ",
                                                          options.header_bytes_max, " bytes.")),
                                false, 11, After::kCloseSlowly);
    }
    if (failed == http::error::end_of_stream || (failed && !IsHttpFault(failed))) {
      co_return After::kClose;
    }
    if (failed) {
      co_return co_await Answer(connection, Problem(400, "This is not a valid HTTP/1.1 request."),
                                false, 11, After::kCloseSlowly);
    }
  }

  const http::request<http::string_body>& head = parser.get();
  const unsigned version = head.version() == 10 ? 10 : 11;
  const absl::optional<HttpMethod> method = ParseHttpMethod(View(head.method_string()));
  const bool is_head = method == HttpMethod::kHead;
  absl::optional<Target> target = ParseTarget(View(head.target()));
  Router::Match match;
  absl::optional<Response> refusal;
  size_t body_bytes_max = 0;
  bool is_lines = false;
  const bool chunked = parser.chunked();
  const uint64_t content_length = parser.content_length().value_or(0);
  const bool has_body = chunked || content_length > 0;
  // Where the body ends would be a guess, and what follows it another request to somebody else's
  // eyes: a proxy in front may guess otherwise.
  if (const size_t codings = head.count(http::field::transfer_encoding);
      codings > 1 ||
      (codings == 1 &&
       (version == 10 ||
        !absl::EqualsIgnoreCase(View(head[http::field::transfer_encoding]), "chunked")))) {
    co_return co_await Answer(
        connection, Problem(400, "The only transfer-encoding here is chunked, in HTTP/1.1."),
        is_head, version, After::kCloseSlowly);
  }
  if (head.version() < 10 || head.version() > 11) {
    refusal = Problem(400, "Only HTTP/1.0 and HTTP/1.1 are spoken here.");
  } else if (!target) {
    refusal = Problem(400, "The request's target is not a path.");
  } else if (version == 11 && head.count(http::field::host) != 1) {
    refusal = Problem(400, "There must be exactly one host header.");
  } else {
    match = front->router.Find(method, target->segments);
    if (match.route == nullptr && match.allow.empty()) {
      refusal = Problem(404, "There is nothing at this path.");
    } else if (match.route == nullptr) {
      refusal = Problem(405, "This path does not have this method.");
      refusal->headers.emplace_back("allow", match.allow);
    } else {
      is_lines = match.route->takes_lines && has_body &&
                 IsLinesType(View(head[http::field::content_type]));
      body_bytes_max = is_lines ? kLinesBytesMax : match.route->body_bytes_max;
      if (content_length > body_bytes_max) {
        refusal =
            Problem(413, absl::StrCat("The body may have at most ", body_bytes_max, " bytes."));
      } else if (has_body && ((!is_lines && !IsJsonType(View(head[http::field::content_type]))) ||
                              head.count(http::field::content_encoding) != 0)) {
        refusal = Problem(415, "The body must be application/json, without an encoding.");
      } else if (head.count(http::field::expect) != 0 &&
                 !absl::EqualsIgnoreCase(View(head[http::field::expect]), "100-continue")) {
        refusal = Problem(417, "Nothing but 100-continue can be expected.");
      }
    }
  }

  const bool expects = version == 11 && head.count(http::field::expect) != 0;
  After after = parser.keep_alive() ? After::kKeep : After::kClose;
  if (refusal) {
    body_bytes_max = kDiscardedBodyMax;
    if (has_body && (chunked || expects || content_length > kDiscardedBodyMax)) {
      co_return co_await Answer(connection, *refusal, is_head, version, After::kCloseSlowly);
    }
  } else if (expects && has_body && buffer.size() == 0) {
    static constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
    stream.expires_after(options.write_timeout);
    auto [failed, count] =
        co_await asio::async_write(stream, asio::buffer(kContinue, sizeof(kContinue) - 1), kAwait);
    if (failed) co_return After::kClose;
  }
  Request request;
  if (!refusal) {
    request.method = *method;
    request.path = std::move(target->path);
    request.query = std::move(target->query);
    request.params = std::move(match.params);
    request.remote_address = remote_address;
    for (const auto& field : head) {
      request.headers.emplace_back(absl::AsciiStrToLower(View(field.name_string())),
                                   std::string(View(field.value())));
    }
  }
  if (is_lines && !refusal) {
    co_return co_await ServeLines(connection, buffer, parser, match.route, std::move(request),
                                  after);
  }
  if (!parser.is_done()) {
    parser.body_limit(body_bytes_max);
    stream.expires_after(options.body_timeout);
    auto [failed, count] = co_await http::async_read(stream, buffer, parser, kAwait);
    if (failed == http::error::body_limit) {
      co_return co_await Answer(
          connection,
          Problem(413, absl::StrCat("The body may have at most ", body_bytes_max, " bytes.")),
          is_head, version, After::kCloseSlowly);
    }
    if (failed && IsHttpFault(failed) && failed != http::error::end_of_stream &&
        failed != http::error::partial_message) {
      co_return co_await Answer(connection, Problem(400, "The body's framing is broken."), is_head,
                                version, After::kCloseSlowly);
    }
    if (failed) co_return After::kClose;
  }
  stream.expires_never();
  if (refusal) co_return co_await Answer(connection, *refusal, is_head, version, after);

  request.body = std::move(parser.get().body());
  const Response response = co_await Handle(match.route, std::move(request));
  co_return co_await Answer(connection, response, is_head, version, after);
}

asio::awaitable<After> Server::Impl::ServeLines(Connection& connection, beast::flat_buffer& buffer,
                                                Parser& parser, const Route* route, Request head,
                                                After after) {
  beast::tcp_stream& stream = connection.stream;
  const unsigned version = parser.get().version() == 10 ? 10 : 11;
  LinesParser body(std::move(parser));
  body.body_limit(kLinesBytesMax);
  // As the parts that were handled have left it. Each part has one of its own: who is too late with
  // its answer may still be at work on it.
  LineStream lines;
  LineParts parts;
  std::string piece(kLinePieceBytes, '\0');
  const auto cut = [&lines](int status, std::string detail) {
    lines.end = LineStream::End::kCut;
    lines.cut = {status, std::move(detail)};
  };
  auto deadline = std::chrono::steady_clock::now() + options.body_timeout;
  // The first part is empty, so that nothing is read for one who may not send it.
  absl::optional<std::string> part = std::string();
  while (true) {
    if (part && stopping) {
      cut(503, "The service is stopping; publish what is not settled again.");
    } else if (!part && parts.line_too_long()) {
      cut(413, absl::StrCat("Line ", parts.next_line(), " is longer than ", kLineBytesMax,
                            " bytes, and what follows it was not read."));
    } else if (!part && body.is_done()) {
      lines.end = LineStream::End::kWhole;
    }
    if (!part && lines.end == LineStream::End::kNotYet) {
      body.get().body().data = piece.data();
      body.get().body().size = piece.size();
      body.get().body().more = true;
      // A whole line has to come within the time.
      stream.expires_at(deadline);
      auto [failed, count] = co_await http::async_read_some(stream, buffer, body, kAwait);
      parts.Add({piece.data(), piece.size() - body.get().body().size});
      if (body.is_done()) parts.End();
      if (!failed || failed == http::error::need_buffer) {
        part = parts.Next();
        continue;
      }
      if (failed == http::error::body_limit) {
        cut(413, absl::StrCat("The body may have at most ", kLinesBytesMax, " bytes."));
      } else if (IsHttpFault(failed) && failed != http::error::end_of_stream &&
                 failed != http::error::partial_message) {
        cut(400, "The body's framing is broken.");
      } else {
        co_return After::kClose;
      }
    }
    stream.expires_never();
    Request request = head;
    const auto mine = std::make_shared<LineStream>(lines);
    request.lines = mine;
    if (part && lines.end == LineStream::End::kNotYet) request.body = *std::move(part);
    const bool last = lines.end == LineStream::End::kWhole;
    Response response = co_await Handle(route, std::move(request));
    if (response.status != kLinesGoOn) {
      if (response.status >= 400) TellLinesIn(lines, lines.first_line - 1, &response);
      co_return co_await Answer(connection, response, false, version,
                                last ? after : After::kCloseSlowly);
    }
    lines = std::move(*mine);
    lines.first_line = parts.next_line();
    part = parts.Next();
    deadline = std::chrono::steady_clock::now() + options.body_timeout;
  }
}

asio::awaitable<Response> Server::Impl::Handle(const Route* route, Request request) {
  Exchange exchange(io);
  const uint64_t serial = next_serial++;
  exchanges.emplace(serial, &exchange);
  EventLoop::Callback call =
      [front = front, route, request = std::move(request),
       respond = Respond(Responder(
           mailbox,
           [this](uint64_t number, Response response) { Deliver(number, std::move(response)); },
           serial))]() mutable {
        if (!front->open) return;
        if (front->gate) {
          front->gate(*route, std::move(request), std::move(respond));
        } else {
          route->handler(std::move(request), std::move(respond));
        }
      };
  // When there is no room, the call is destroyed here and its Responder answers 503.
  if (!loop.Post(std::move(call))) call = nullptr;
  exchange.answered.expires_after(options.handler_timeout);
  if (!exchange.response && !killed) co_await exchange.answered.async_wait(kAwait);
  exchanges.erase(serial);
  if (exchange.response) co_return *std::move(exchange.response);
  POSTRIDER_LOG(kWarn, "api request was not answered in time", {"route", route->operation_id});
  co_return ProblemRetry(503, "The answer took too long; try again.", std::chrono::seconds(1));
}

void Server::Impl::Deliver(uint64_t serial, Response response) {
  const auto found = exchanges.find(serial);
  if (found == exchanges.end()) return;
  found->second->response = std::move(response);
  found->second->answered.cancel();
}

asio::awaitable<After> Server::Impl::Answer(Connection& connection, const Response& response,
                                            bool head, unsigned version, After after) {
  Count(response.status);
  if (stopping && after == After::kKeep) after = After::kClose;
  const bool bodiless = response.status == 204 || response.status == 304;
  http::response<http::string_body> message;
  message.version(version);
  message.result(static_cast<unsigned>(response.status));
  message.reason(std::string(StatusTitle(response.status)) == "Error"
                     ? std::string(View(http::obsolete_reason(message.result())))
                     : std::string(StatusTitle(response.status)));
  message.set(http::field::cache_control, "no-store");
  for (const auto& [name, value] : response.headers) message.set(name, value);
  if (!bodiless) {
    message.set(http::field::content_type, response.content_type);
    message.content_length(response.body.size());
  }
  message.keep_alive(after == After::kKeep);
  connection.stream.expires_after(options.write_timeout);
  error_code failed;
  if (head || bodiless) {
    http::response<http::empty_body> bare(std::move(message.base()));
    auto [write_failed, count] = co_await http::async_write(connection.stream, bare, kAwait);
    failed = write_failed;
  } else {
    message.body() = response.body;
    auto [write_failed, count] = co_await http::async_write(connection.stream, message, kAwait);
    failed = write_failed;
  }
  co_return failed ? After::kClose : after;
}

void Server::Impl::CloseAll() {
  killed = true;
  for (Connection* connection : connections) connection->Close();
  for (auto& [serial, exchange] : exchanges) exchange->answered.cancel();
}

void Server::Impl::FinishStop() {
  if (!stopping || !connections.empty() || !stopped) return;
  stop_timer.cancel();
  if (loop.Post(std::move(stopped))) {
    stopped = nullptr;
    return;
  }
  stop_timer.expires_after(std::chrono::milliseconds(10));
  stop_timer.async_wait([this](error_code failed) {
    if (!failed) FinishStop();
  });
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(EventLoop& loop, Router router,
                                                      ServerOptions options, Metrics& metrics,
                                                      absl::string_view name, Gate gate) {
  auto impl = std::make_unique<Impl>(loop, std::move(router), std::move(options), metrics, name,
                                     std::move(gate));
  if (absl::Status listening = impl->Listen(); !listening.ok()) return listening;
  asio::co_spawn(impl->io, impl->Accept(), [](std::exception_ptr) {});
  impl->thread = std::thread([raw = impl.get(), thread_name = absl::StrCat(name, "-server")] {
    NameThread(thread_name);
    for (;;) {
      try {
        raw->io.run();
        return;
      } catch (const std::exception& fault) {
        POSTRIDER_LOG(kError, "api server thread caught an exception", {"reason", fault.what()});
      }
    }
  });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  impl_->front->open = false;
  {
    absl::MutexLock lock(&impl_->mailbox->mutex);
    impl_->mailbox->io = nullptr;
  }
  asio::post(impl_->io, [impl = impl_.get()] {
    impl->stopping = true;
    impl->stopped = nullptr;
    impl->stop_timer.cancel();
    error_code ignored;
    impl->acceptor.close(ignored);
    impl->CloseAll();
  });
  impl_->work.reset();
  impl_->thread.join();
}

uint16_t Server::port() const { return impl_->port; }
const Router& Server::router() const { return impl_->front->router; }

void Server::Stop(absl::AnyInvocable<void() &&> done) {
  asio::post(impl_->io, [impl = impl_.get(), done = std::move(done)]() mutable {
    POSTRIDER_CHECK(!impl->stopping);
    impl->stopping = true;
    impl->stopped = std::move(done);
    error_code ignored;
    impl->acceptor.close(ignored);
    for (Connection* connection : impl->connections) {
      if (connection->idle) connection->Close();
    }
    impl->stop_timer.expires_after(impl->options.stop_wait_max);
    impl->stop_timer.async_wait([impl](error_code failed) {
      if (!failed) impl->CloseAll();
    });
    impl->FinishStop();
  });
}

}  // namespace postrider::api
