#include "core/postgres/connection.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/postgres/internal/pq.h"
#include "core/postgres/url.h"

namespace postrider {
namespace {

enum class Kind { kQuery, kScript, kCopy };

struct Request {
  Kind kind = Kind::kQuery;
  Statement statement;
  std::string rows;
  QueryDone done;
  // When it was called, or the connection was lost: how long it has waited for one.
  MonotonicTime waiting_since;
};

// How long after the server's own limit a statement is given up.
constexpr std::chrono::milliseconds kAnswerGrace{1000};
constexpr size_t kCopyPieceBytes = 64 * 1024;

}  // namespace

struct Connection::Impl : std::enable_shared_from_this<Connection::Impl> {
  enum class State { kWaiting, kConnecting, kPreparing, kReady, kClosed };

  EventLoop& loop;
  const ConnectionOptions options;
  Random random;

  State state = State::kWaiting;
  internal::PqConnection pq;
  int fd = -1;
  uint64_t epoch = 0;
  absl::Status last_error;
  int failures = 0;

  TimerId reconnect_timer = 0;
  TimerId connect_timer = 0;
  TimerId statement_timer = 0;
  TimerId waiting_timer = 0;

  std::deque<Request> queue;
  bool busy = false;
  Request current;
  absl::Status current_status;
  QueryResult current_result;
  bool copying = false;
  size_t copied = 0;
  int prepare_step = 0;

  absl::AnyInvocable<void(bool)> on_ready;
  absl::AnyInvocable<void(const absl::Status&)> on_failure;
  absl::AnyInvocable<void(absl::string_view, absl::string_view)> on_notify;

  Impl(EventLoop& event_loop, ConnectionOptions connection_options, uint64_t seed)
      : loop(event_loop), options(std::move(connection_options)), random(seed) {}

  MonotonicTime Now() const { return loop.clock().Now(); }

  void Cancel(TimerId* timer) {
    if (*timer != 0) loop.CancelTimer(*timer);
    *timer = 0;
  }

  // Answers from the loop, never from inside the caller's call.
  void AnswerLater(QueryDone done, absl::Status status) {
    loop.CallAfter(Duration::zero(),
                   [done = std::move(done), status = std::move(status)]() mutable {
                     std::move(done)(std::move(status));
                   });
  }

  void Enqueue(Request request) {
    if (state == State::kClosed) {
      AnswerLater(std::move(request.done), absl::CancelledError("postgres: closed"));
      return;
    }
    if (queue.size() >= options.queued_max) {
      AnswerLater(std::move(request.done),
                  absl::ResourceExhaustedError("postgres: too many statements wait"));
      return;
    }
    request.waiting_since = Now();
    queue.push_back(std::move(request));
    if (state == State::kReady) {
      Pump();
    } else {
      WatchWaiting();
    }
  }

  // While there is no connection: a timer for the statement that has waited longest.
  void WatchWaiting() {
    if (waiting_timer != 0 || queue.empty() || state == State::kReady) return;
    waiting_timer = loop.CallAt(queue.front().waiting_since + options.unavailable_after, [this] {
      waiting_timer = 0;
      const auto self = shared_from_this();
      const MonotonicTime now = Now();
      std::vector<Request> late;
      while (!queue.empty() && queue.front().waiting_since + options.unavailable_after <= now) {
        late.push_back(std::move(queue.front()));
        queue.pop_front();
      }
      WatchWaiting();
      for (Request& request : late) std::move(request.done)(WhyUnavailable());
    });
  }

  absl::Status WhyUnavailable() const {
    if (!last_error.ok()) return last_error;
    return absl::UnavailableError("postgres: there is no connection yet");
  }

  // --- connecting ---------------------------------------------------------------------------

  void Unwatch() {
    if (fd >= 0) loop.Unwatch(fd);
    fd = -1;
  }

  // False: the socket cannot be watched.
  bool Watch(uint32_t events) {
    Unwatch();
    const int socket = PQsocket(pq.get());
    if (socket < 0) return false;
    if (!loop.Watch(socket, events, [this](uint32_t) { OnSocket(); }).ok()) return false;
    fd = socket;
    return true;
  }

  void Connect() {
    state = State::kConnecting;
    internal::PqKeywords keywords(options.url);
    keywords.Set("client_encoding", "UTF8");
    keywords.Set("fallback_application_name", options.application_name);
    keywords.Set("keepalives_idle", "10");
    keywords.Set("keepalives_interval", "5");
    keywords.Set("keepalives_count", "3");
    pq.reset(PQconnectStartParams(keywords.names(), keywords.values(), 1));
    POSTRIDER_CHECK(pq != nullptr);
    if (PQstatus(pq.get()) == CONNECTION_BAD) {
      Lose(internal::CannotConnectStatus(pq.get()));
      return;
    }
    PQsetNoticeProcessor(
        pq.get(), [](void*, const char*) {}, nullptr);
    connect_timer = loop.CallAfter(options.connect_timeout, [this] {
      connect_timer = 0;
      Lose(absl::UnavailableError("postgres: cannot connect: no answer in time"));
    });
    if (!Watch(kFdWritable)) Lose(absl::UnavailableError("postgres: cannot connect: no socket"));
  }

  void PollConnect() {
    // It may close its socket and open another one with the same number.
    Unwatch();
    const PostgresPollingStatusType polled = PQconnectPoll(pq.get());
    bool watched = false;
    switch (polled) {
      case PGRES_POLLING_READING:
        watched = Watch(kFdReadable);
        break;
      case PGRES_POLLING_WRITING:
        watched = Watch(kFdWritable);
        break;
      case PGRES_POLLING_OK:
        watched = Watch(kFdReadable) && PQsetnonblocking(pq.get(), 1) == 0;
        if (watched) {
          state = State::kPreparing;
          prepare_step = 0;
          Prepare();
          return;
        }
        break;
      case PGRES_POLLING_FAILED:
      default:
        Lose(internal::CannotConnectStatus(pq.get()));
        return;
    }
    if (!watched) Lose(absl::UnavailableError("postgres: cannot connect: no socket"));
  }

  // Session settings, the check, the caller's set-up; then ready.
  void Prepare() {
    const int step = prepare_step++;
    if (step == 0) {
      Internal(absl::StrCat("SET statement_timeout = ", options.statement_timeout.count(),
                            "; SET idle_in_transaction_session_timeout = 60000"
                            "; SET standard_conforming_strings = on; SET bytea_output = hex"));
    } else if (step == 1 && !options.check_sql.empty()) {
      Internal(options.check_sql);
    } else if (step == 2 && !options.setup_sql.empty()) {
      Internal(options.setup_sql);
    } else if (step < 3) {
      Prepare();
    } else {
      BecomeReady();
    }
  }

  void Internal(std::string sql) {
    Request request;
    request.kind = Kind::kScript;
    request.statement.sql = std::move(sql);
    Start(std::move(request));
  }

  void PreparedOne() {
    if (!current_status.ok()) {
      if (prepare_step == 2 && !absl::IsUnavailable(current_status) &&
          !absl::IsDeadlineExceeded(current_status)) {
        std::string text = absl::StrCat("postgres: the check failed: ", current_status.message());
        if (!options.check_hint.empty()) absl::StrAppend(&text, "; ", options.check_hint);
        Lose(absl::FailedPreconditionError(text));
      } else {
        Lose(current_status);
      }
      return;
    }
    if (prepare_step == 2) {
      if (current_result.rows() != 1 || current_result.columns() != 1) {
        Lose(absl::InternalError("postgres: the check gave no answer"));
        return;
      }
      if (!current_result.text(0, 0).empty()) {
        Lose(absl::FailedPreconditionError(absl::StrCat("postgres: ", current_result.text(0, 0))));
        return;
      }
    }
    Prepare();
  }

  void BecomeReady() {
    Cancel(&connect_timer);
    Cancel(&waiting_timer);
    state = State::kReady;
    ++epoch;
    failures = 0;
    last_error = absl::OkStatus();
    const auto self = shared_from_this();
    if (on_ready) on_ready(true);
    if (state == State::kReady) Pump();
  }

  // Ends the connection, whatever its state, and plans the next one. What was sent, and what
  // waited behind it, fails with `why`.
  void Lose(absl::Status why) {
    const auto self = shared_from_this();
    const bool was_ready = state == State::kReady;
    Unwatch();
    Cancel(&connect_timer);
    Cancel(&statement_timer);
    pq.reset();
    state = State::kWaiting;
    last_error = why;
    copying = false;
    current_result = QueryResult();

    std::vector<QueryDone> failed;
    if (busy) {
      busy = false;
      if (current.done) failed.push_back(std::move(current.done));
      current = Request();
    }
    if (was_ready) {
      for (Request& request : queue) failed.push_back(std::move(request.done));
      queue.clear();
    }
    PlanReconnect();
    WatchWaiting();
    for (QueryDone& done : failed) std::move(done)(why);
    if (was_ready) {
      if (on_ready) on_ready(false);
    } else if (on_failure) {
      on_failure(why);
    }
  }

  void PlanReconnect() {
    if (reconnect_timer != 0 || state == State::kClosed) return;
    const int doublings = std::min(failures++, 16);
    const int64_t most = std::min<int64_t>(options.reconnect_last.count(),
                                           options.reconnect_first.count() << doublings);
    // Full jitter, but never at once: a server that refuses everybody is not hammered.
    const int64_t delay_us =
        1000 + static_cast<int64_t>(random.Fraction() * static_cast<double>(most) * 1000);
    reconnect_timer = loop.CallAfter(std::chrono::microseconds(delay_us), [this] {
      reconnect_timer = 0;
      Connect();
    });
  }

  // --- statements ---------------------------------------------------------------------------

  void Pump() {
    if (state != State::kReady || busy || queue.empty()) return;
    Request next = std::move(queue.front());
    queue.pop_front();
    Start(std::move(next));
  }

  void Start(Request request) {
    busy = true;
    current = std::move(request);
    current_status = absl::OkStatus();
    current_result = QueryResult();
    copied = 0;
    copying = false;
    statement_timer = loop.CallAfter(options.statement_timeout + kAnswerGrace, [this] {
      statement_timer = 0;
      Lose(absl::DeadlineExceededError("postgres: a statement had no answer in time"));
    });
    absl::Status sent = Send();
    if (!sent.ok()) {
      // The caller's call is still on the stack.
      Cancel(&statement_timer);
      statement_timer = loop.CallAfter(Duration::zero(), [this, sent = std::move(sent)] {
        statement_timer = 0;
        if (absl::IsInvalidArgument(sent)) {
          current_status = sent;
          Complete();
        } else {
          Lose(sent);
        }
      });
      return;
    }
    Flush();
  }

  absl::Status Send() {
    const Statement& statement = current.statement;
    if (statement.sql.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError("postgres: the statement has a NUL in it");
    }
    int sent = 0;
    if (current.kind == Kind::kScript) {
      sent = PQsendQuery(pq.get(), statement.sql.c_str());
    } else {
      absl::StatusOr<internal::PqParams> params = internal::PqParams::Of(statement);
      if (!params.ok()) return std::move(params).status();
      sent = PQsendQueryParams(pq.get(), statement.sql.c_str(), params->count(), nullptr,
                               params->values(), params->lengths(), params->formats(), 0);
    }
    return sent == 1 ? absl::OkStatus() : internal::BrokenStatus(pq.get());
  }

  // Sends what libpq holds; asks to be told when there is room again. A fault shows at the next
  // read.
  void Flush() {
    const int left = PQflush(pq.get());
    if (fd >= 0) loop.SetEvents(fd, left == 0 ? kFdReadable : kFdReadable | kFdWritable);
  }

  void OnSocket() {
    const auto self = shared_from_this();
    if (state == State::kConnecting) {
      PollConnect();
      return;
    }
    if (pq == nullptr) return;
    if (PQconsumeInput(pq.get()) == 0) {
      // What came before the end may be the reason: a fatal error of the server.
      Drain();
      if (pq != nullptr) Lose(internal::BrokenStatus(pq.get()));
      return;
    }
    Notify();
    if (pq == nullptr) return;
    if (copying) SendCopy();
    Flush();
    Drain();
  }

  void Notify() {
    while (pq != nullptr) {
      PGnotify* raw = PQnotifies(pq.get());
      if (raw == nullptr) return;
      const std::string channel = raw->relname;
      const std::string payload = raw->extra;
      PQfreemem(raw);
      if (on_notify) on_notify(channel, payload);
    }
  }

  // Takes the results that are there.
  void Drain() {
    while (pq != nullptr && busy && !copying && PQisBusy(pq.get()) == 0) {
      QueryResult::Handle result(PQgetResult(pq.get()));
      if (result == nullptr) {
        if (PQstatus(pq.get()) == CONNECTION_BAD) return Lose(LostStatus());
        Complete();
        continue;
      }
      const ExecStatusType kind = PQresultStatus(result.get());
      if (kind == PGRES_COPY_IN) {
        if (current.kind == Kind::kCopy) {
          copying = true;
          SendCopy();
          Flush();
          return;
        }
        if (PQputCopyEnd(pq.get(), "COPY is asked for elsewhere") < 0) return Lose(LostStatus());
        continue;
      }
      if (kind == PGRES_COPY_OUT || kind == PGRES_COPY_BOTH) {
        return Lose(internal::StatusOf(result.get()));
      }
      absl::Status status = internal::StatusOf(result.get());
      if (!status.ok()) {
        if (current_status.ok()) current_status = std::move(status);
      } else {
        current_result = QueryResult(std::move(result));
      }
    }
  }

  absl::Status LostStatus() const {
    // The server's word (as 57P01) says more than the broken socket.
    return current_status.ok() ? internal::BrokenStatus(pq.get()) : current_status;
  }

  void SendCopy() {
    const std::string& rows = current.rows;
    while (copied < rows.size()) {
      const size_t piece = std::min(kCopyPieceBytes, rows.size() - copied);
      const int put = PQputCopyData(pq.get(), rows.data() + copied, static_cast<int>(piece));
      if (put == 0) return;  // full: goes on when the socket can be written
      if (put < 0) {
        // Refused or broken: the result tells.
        copying = false;
        return;
      }
      copied += piece;
    }
    const int ended = PQputCopyEnd(pq.get(), nullptr);
    if (ended != 0) copying = false;
  }

  void Complete() {
    const auto self = shared_from_this();
    Cancel(&statement_timer);
    if (state == State::kPreparing) {
      busy = false;
      current = Request();
      PreparedOne();
      return;
    }
    busy = false;
    QueryDone done = std::move(current.done);
    current = Request();
    if (current_status.ok()) {
      std::move(done)(std::move(current_result));
    } else {
      std::move(done)(std::move(current_status));
    }
    Pump();
  }

  void Close() {
    Unwatch();
    Cancel(&reconnect_timer);
    Cancel(&connect_timer);
    Cancel(&statement_timer);
    Cancel(&waiting_timer);
    pq.reset();
    state = State::kClosed;
    const absl::Status why = absl::CancelledError("postgres: closed");
    if (busy && current.done) AnswerLater(std::move(current.done), why);
    busy = false;
    for (Request& request : queue) AnswerLater(std::move(request.done), why);
    queue.clear();
    on_ready = nullptr;
    on_failure = nullptr;
    on_notify = nullptr;
  }
};

Connection::Connection(EventLoop& loop, ConnectionOptions options, uint64_t seed)
    : impl_(std::make_shared<Impl>(loop, std::move(options), seed)) {
  impl_->reconnect_timer = loop.CallAfter(Duration::zero(), [impl = impl_.get()] {
    impl->reconnect_timer = 0;
    impl->Connect();
  });
}

Connection::~Connection() { impl_->Close(); }

void Connection::Query(Statement statement, QueryDone done) {
  Request request;
  request.statement = std::move(statement);
  request.done = std::move(done);
  impl_->Enqueue(std::move(request));
}

void Connection::QueryIn(uint64_t epoch, Statement statement, QueryDone done) {
  if (!ready() || epoch != impl_->epoch) {
    impl_->AnswerLater(std::move(done), impl_->WhyUnavailable());
    return;
  }
  Query(std::move(statement), std::move(done));
}

void Connection::Script(std::string sql, QueryDone done) {
  Request request;
  request.kind = Kind::kScript;
  request.statement.sql = std::move(sql);
  request.done = std::move(done);
  impl_->Enqueue(std::move(request));
}

void Connection::CopyIn(std::string sql, std::string rows, QueryDone done) {
  Request request;
  request.kind = Kind::kCopy;
  request.statement.sql = std::move(sql);
  request.rows = std::move(rows);
  request.done = std::move(done);
  impl_->Enqueue(std::move(request));
}

void Connection::CopyInto(uint64_t epoch, std::string sql, std::string rows, QueryDone done) {
  if (!ready() || epoch != impl_->epoch) {
    impl_->AnswerLater(std::move(done), impl_->WhyUnavailable());
    return;
  }
  CopyIn(std::move(sql), std::move(rows), std::move(done));
}

bool Connection::ready() const { return impl_->state == Impl::State::kReady; }
uint64_t Connection::epoch() const { return impl_->epoch; }
bool Connection::idle() const { return !impl_->busy && impl_->queue.empty(); }
bool Connection::in_transaction() const {
  return impl_->pq != nullptr && PQtransactionStatus(impl_->pq.get()) != PQTRANS_IDLE;
}
const absl::Status& Connection::last_error() const { return impl_->last_error; }

void Connection::Reset(absl::Status why) {
  if (impl_->state == Impl::State::kWaiting || impl_->state == Impl::State::kClosed) return;
  impl_->failures = 0;
  // Answers come from the loop, for this may be called from anywhere.
  auto& queue = impl_->queue;
  if (impl_->busy && impl_->current.done) impl_->AnswerLater(std::move(impl_->current.done), why);
  impl_->current.done = nullptr;
  for (Request& request : queue) impl_->AnswerLater(std::move(request.done), why);
  queue.clear();
  impl_->Lose(std::move(why));
}

void Connection::SetOnReady(absl::AnyInvocable<void(bool)> callback) {
  impl_->on_ready = std::move(callback);
}
void Connection::SetOnFailure(absl::AnyInvocable<void(const absl::Status&)> callback) {
  impl_->on_failure = std::move(callback);
}
void Connection::SetOnNotify(
    absl::AnyInvocable<void(absl::string_view, absl::string_view)> callback) {
  impl_->on_notify = std::move(callback);
}

std::string QuoteLiteral(absl::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out.push_back('\'');
    out.push_back(c);
  }
  out.push_back('\'');
  return out;
}

std::string QuoteIdentifier(absl::string_view name) {
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"') out.push_back('"');
    out.push_back(c);
  }
  out.push_back('"');
  return out;
}

}  // namespace postrider
