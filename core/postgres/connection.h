#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"

namespace postrider {

using QueryDone = absl::AnyInvocable<void(absl::StatusOr<QueryResult>) &&>;

struct ConnectionOptions {
  std::string url;
  // Shown by pg_stat_activity.
  std::string application_name = "postrider";
  std::chrono::milliseconds connect_timeout{3000};
  // A statement that takes longer is cancelled by the server; one that has no answer a second
  // later costs the connection. Both are kDeadlineExceeded.
  std::chrono::milliseconds statement_timeout{10'000};
  // How long a statement waits for a connection that is not up; then kUnavailable.
  std::chrono::milliseconds unavailable_after{1000};
  // Delay before connecting again: doubles from the first to the last, with full jitter.
  std::chrono::milliseconds reconnect_first{50};
  std::chrono::milliseconds reconnect_last{2000};
  // Statements that wait; the next one is kResourceExhausted.
  size_t queued_max = 256;
  // Run on each new connection before it is used. It must give one row with one text: empty when
  // all is well, else what is wrong, and then the connection is closed (kFailedPrecondition).
  std::string check_sql;
  // Said beside a check_sql that failed instead of answering: what to do about it.
  std::string check_hint;
  // Runs on each new connection, after the check; may be empty.
  std::string setup_sql;
};

// One connection to Postgres that keeps itself connected: a state machine over libpq's
// non-blocking calls, driven by the loop.
//
//   waiting --timer--> connecting --ok--> preparing --ok--> ready <-> busy
//      ^------------------ any fault -------------------------'
//
// Statements run one after another, in the order of the calls. A fault of the connection fails the
// statement that was sent and those behind it (kUnavailable; whether the one that was sent took
// effect is unknown). One that is called while there is no connection waits for it, at most
// unavailable_after. Errors carry SQLSTATE (SqlState()) and never a
// parameter's value: 40001 and 40P01 are kAborted; class 08, 53, 57P, 58 and 25006 kUnavailable;
// 57014 kDeadlineExceeded; 23505 kAlreadyExists; 23503 and other class 23 kFailedPrecondition;
// 23514 and class 22 kInvalidArgument; 42501 kPermissionDenied; the rest kInternal.
//
// A host name is resolved by libpq inside the call that connects, which blocks for as long as the
// resolver takes; give addresses where the loop must not wait.
//
// Threads: the loop's.
// Bounds:  queued_max statements wait. A result is held whole in memory: bound it in the SQL.
class Connection {
 public:
  // Starts to connect at once. `seed` is for jitter.
  Connection(EventLoop& loop, ConnectionOptions options, uint64_t seed);
  // What waits is answered kCancelled in the loop's next turn.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Query(Statement statement, QueryDone done);
  void Query(std::string sql, QueryDone done) {
    Query(Statement{std::move(sql), {}}, std::move(done));
  }
  // Several statements in one text, without parameters, in one round trip; gives the last result.
  // Without BEGIN in it they are one implicit transaction.
  void Script(std::string sql, QueryDone done);
  // COPY ... FROM STDIN in text form; `rows` as CopyRows (copy.h) makes them.
  void CopyIn(std::string sql, std::string rows, QueryDone done);

  bool ready() const;
  // Counts the connections that have been ready: session state is gone when it differs.
  uint64_t epoch() const;
  // Query(), but only on the connection of this epoch(): kUnavailable when that is gone.
  void QueryIn(uint64_t epoch, Statement statement, QueryDone done);
  void CopyInto(uint64_t epoch, std::string sql, std::string rows, QueryDone done);
  // Nothing is running or queued.
  bool idle() const;
  // In a transaction, failed or not.
  bool in_transaction() const;
  // Why it is not connected; OK while it is or before the first attempt ended.
  const absl::Status& last_error() const;
  // Closes it and connects anew; what runs and waits fails with `why`.
  void Reset(absl::Status why);

  // Called at each change of ready(), from the loop.
  void SetOnReady(absl::AnyInvocable<void(bool ready)> callback);
  // Called when connecting failed, from the loop.
  void SetOnFailure(absl::AnyInvocable<void(const absl::Status&)> callback);
  // Called for each NOTIFY that this session LISTENs to.
  void SetOnNotify(
      absl::AnyInvocable<void(absl::string_view channel, absl::string_view payload)> callback);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// A literal for Script(), quoted and escaped for standard_conforming_strings, which every session
// of ours has.
std::string QuoteLiteral(absl::string_view text);
std::string QuoteIdentifier(absl::string_view name);

}  // namespace postrider
