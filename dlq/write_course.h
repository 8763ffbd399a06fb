#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/postgres/pool.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"
#include "core/postgres/transaction.h"

namespace postrider::dlq {

// The course of one transaction by which an indexer writes a batch: its statements go out one
// behind the other, and the first failure, which is the cause of the later ones, is its result. It
// is made shared and kept alive by its callbacks: whose batch it is may be gone before it ends.
//
// Threads: the pool's loop.
class WriteCourse : public std::enable_shared_from_this<WriteCourse> {
 public:
  virtual ~WriteCourse() = default;

  // Once. `pool` outlives the course.
  void Begin(Pool& pool);

 protected:
  // Calls Query() and CopyIn() for its statements, and Finish() for the last one.
  virtual void Run() = 0;
  // Once. When the commit failed with kUnavailable, whether it took effect is unknown.
  virtual void OnEnd(const absl::Status& result) = 0;

  // `then` is called if it succeeds.
  using Then = absl::AnyInvocable<void(const QueryResult&) &&>;
  void Query(Statement statement, Then then = nullptr);
  void CopyIn(std::string sql, std::string rows);
  // Commits if nothing has failed and `check`, called then, has nothing against it.
  using Check = absl::AnyInvocable<absl::Status(const QueryResult&) &&>;
  void Finish(Statement last, Check check = nullptr);

 private:
  void Note(const absl::StatusOr<QueryResult>& result);
  void End(const absl::Status& result);

  absl::Status status_;
  std::unique_ptr<Transaction> tx_;
};

// The batch will never be stored as it is, however often it is tried.
bool IsPoison(const absl::Status& status);

// The nearest time that Postgres' `timestamptz` has, and that is read back as it is.
WallTime Storable(WallTime time);

}  // namespace postrider::dlq
