#include "core/postgres/transaction.h"

#include "absl/strings/str_cat.h"

namespace postrider {
namespace {

std::string BeginScript(const TransactionOptions& options) {
  std::string sql = "BEGIN ISOLATION LEVEL ";
  absl::StrAppend(&sql, options.isolation == TransactionOptions::Isolation::kRepeatableRead
                            ? "REPEATABLE READ"
                            : "READ COMMITTED");
  if (options.access == TransactionOptions::Access::kReadOnly) absl::StrAppend(&sql, " READ ONLY");
  for (const auto& [name, value] : options.settings) {
    absl::StrAppend(&sql, "; SELECT set_config(", QuoteLiteral(name), ", ", QuoteLiteral(value),
                    ", true)");
  }
  return sql;
}

// Runs a list of statements one after the other.
struct Sequence {
  Transaction transaction;
  std::vector<Statement> statements;
  std::vector<QueryResult> results;
  Transaction::AllDone done;
};

void RunNext(std::unique_ptr<Sequence> sequence) {
  Sequence& borrowed = *sequence;
  const size_t next = borrowed.results.size();
  if (next == borrowed.statements.size()) {
    borrowed.transaction.Commit([sequence = std::move(sequence)](absl::Status status) mutable {
      if (!status.ok()) {
        std::move(sequence->done)(std::move(status));
      } else {
        std::move(sequence->done)(std::move(sequence->results));
      }
    });
    return;
  }
  Statement statement = std::move(borrowed.statements[next]);
  borrowed.transaction.Query(std::move(statement), [sequence = std::move(sequence)](
                                                       absl::StatusOr<QueryResult> result) mutable {
    if (!result.ok()) {
      Transaction::AllDone done = std::move(sequence->done);
      sequence.reset();
      std::move(done)(std::move(result).status());
      return;
    }
    sequence->results.push_back(*std::move(result));
    RunNext(std::move(sequence));
  });
}

}  // namespace

void Transaction::Begin(Pool& pool, TransactionOptions options, Begun done) {
  pool.Acquire([script = BeginScript(options),
                done = std::move(done)](absl::StatusOr<PooledConnection> acquired) mutable {
    if (!acquired.ok()) {
      std::move(done)(std::move(acquired).status());
      return;
    }
    Connection* connection = &**acquired;
    connection->Script(std::move(script), [held = *std::move(acquired), done = std::move(done)](
                                              absl::StatusOr<QueryResult> result) mutable {
      if (!result.ok()) {
        held.Release();
        std::move(done)(std::move(result).status());
        return;
      }
      std::move(done)(Transaction(std::move(held)));
    });
  });
}

void Transaction::Run(Pool& pool, TransactionOptions options, std::vector<Statement> statements,
                      AllDone done) {
  Begin(pool, std::move(options),
        [statements = std::move(statements),
         done = std::move(done)](absl::StatusOr<Transaction> begun) mutable {
          if (!begun.ok()) {
            std::move(done)(std::move(begun).status());
            return;
          }
          RunNext(std::unique_ptr<Sequence>(
              new Sequence{*std::move(begun), std::move(statements), {}, std::move(done)}));
        });
}

Transaction& Transaction::operator=(Transaction&& other) noexcept {
  if (this != &other) {
    RollBack();
    connection_ = std::move(other.connection_);
    epoch_ = other.epoch_;
  }
  return *this;
}

Transaction::~Transaction() { RollBack(); }

void Transaction::Query(Statement statement, QueryDone done) {
  connection_->QueryIn(epoch_, std::move(statement), std::move(done));
}

void Transaction::CopyIn(std::string sql, std::string rows, QueryDone done) {
  connection_->CopyInto(epoch_, std::move(sql), std::move(rows), std::move(done));
}

void Transaction::Commit(Committed done) {
  Connection* connection = &*connection_;
  connection->QueryIn(epoch_, Statement{"COMMIT", {}},
                      [held = std::move(connection_),
                       done = std::move(done)](absl::StatusOr<QueryResult> result) mutable {
                        held.Release();
                        if (!result.ok()) {
                          std::move(done)(std::move(result).status());
                        } else if (result->command() != "COMMIT") {
                          std::move(done)(absl::AbortedError(
                              "postgres: the transaction had failed and was rolled back"));
                        } else {
                          std::move(done)(absl::OkStatus());
                        }
                      });
}

void Transaction::RollBack(absl::AnyInvocable<void() &&> done) {
  Connection* connection = &*connection_;
  connection->QueryIn(
      epoch_, Statement{"ROLLBACK", {}},
      [held = std::move(connection_), done = std::move(done)](absl::StatusOr<QueryResult>) mutable {
        held.Release();
        std::move(done)();
      });
}

void Transaction::RollBack() {
  if (!connection_) return;
  Connection* connection = &*connection_;
  if (connection->ready() && connection->epoch() == epoch_) {
    RollBack([] {});
  } else {
    connection_.Release();
  }
}

}  // namespace postrider
