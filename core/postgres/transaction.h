#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/postgres/pool.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"

namespace postrider {

struct TransactionOptions {
  enum class Isolation { kReadCommitted, kRepeatableRead };
  enum class Access { kReadWrite, kReadOnly };

  Isolation isolation = Isolation::kReadCommitted;
  Access access = Access::kReadWrite;
  // set_config(name, value, true): gone at its end. Row-level security reads them.
  std::vector<std::pair<std::string, std::string>> settings;
};

// A transaction on a pooled connection. Destroyed without Commit() it rolls back, and the
// connection goes back to its pool when that is done. Move-only.
//
//   Transaction::Begin(pool, {.settings = {{"postrider.customer_id", id}}},
//                      [](absl::StatusOr<Transaction> tx) { ... });
//
// A failed statement fails the transaction: the later ones and Commit() fail too.
// Threads: the pool's loop.
class Transaction {
 public:
  using Begun = absl::AnyInvocable<void(absl::StatusOr<Transaction>) &&>;
  using Committed = absl::AnyInvocable<void(absl::Status) &&>;
  using AllDone = absl::AnyInvocable<void(absl::StatusOr<std::vector<QueryResult>>) &&>;

  static void Begin(Pool& pool, TransactionOptions options, Begun done);
  // The whole of it: begins, runs `statements` until one fails, commits. Results in order.
  static void Run(Pool& pool, TransactionOptions options, std::vector<Statement> statements,
                  AllDone done);

  Transaction(Transaction&&) noexcept = default;
  Transaction& operator=(Transaction&& other) noexcept;
  ~Transaction();

  // Statements run in the order of the calls.
  void Query(Statement statement, QueryDone done);
  void CopyIn(std::string sql, std::string rows, QueryDone done);
  // Ends it; only destruction may follow. kAborted: it had failed and was rolled back.
  // kUnavailable: the connection broke, and whether it took effect is unknown.
  void Commit(Committed done);
  // Ends it without effect; only destruction may follow. `done` when it is over, for one whose next
  // step must find its locks gone; the connection may also have broken, which comes to the same.
  void RollBack(absl::AnyInvocable<void() &&> done);

 private:
  explicit Transaction(PooledConnection connection)
      : connection_(std::move(connection)), epoch_(connection_->epoch()) {}
  void RollBack();

  PooledConnection connection_;
  uint64_t epoch_ = 0;
};

}  // namespace postrider
