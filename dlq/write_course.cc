#include "dlq/write_course.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace postrider::dlq {

void WriteCourse::Begin(Pool& pool) {
  Transaction::Begin(pool, {}, [self = shared_from_this()](absl::StatusOr<Transaction> tx) {
    if (!tx.ok()) return self->End(tx.status());
    self->tx_ = std::make_unique<Transaction>(*std::move(tx));
    self->Run();
  });
}

void WriteCourse::Query(Statement statement, Then then) {
  tx_->Query(std::move(statement), [self = shared_from_this(), then = std::move(then)](
                                       absl::StatusOr<QueryResult> result) mutable {
    self->Note(result);
    if (result.ok() && then != nullptr) std::move(then)(*result);
  });
}

void WriteCourse::CopyIn(std::string sql, std::string rows) {
  tx_->CopyIn(
      std::move(sql), std::move(rows),
      [self = shared_from_this()](absl::StatusOr<QueryResult> result) { self->Note(result); });
}

void WriteCourse::Finish(Statement last, Check check) {
  tx_->Query(std::move(last), [self = shared_from_this(), check = std::move(check)](
                                  absl::StatusOr<QueryResult> result) mutable {
    self->Note(result);
    if (self->status_.ok() && check != nullptr) self->status_ = std::move(check)(*result);
    if (!self->status_.ok()) return self->End(self->status_);
    self->tx_->Commit([self](absl::Status committed) { self->End(committed); });
  });
}

void WriteCourse::Note(const absl::StatusOr<QueryResult>& result) {
  if (status_.ok() && !result.ok()) status_ = result.status();
}

void WriteCourse::End(const absl::Status& result) {
  tx_.reset();
  OnEnd(result);
}

bool IsPoison(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return true;
    default:
      return false;
  }
}

WallTime Storable(WallTime time) {
  constexpr std::chrono::sys_days kFirst = std::chrono::year(1) / 1 / 1;
  constexpr std::chrono::sys_days kEnd = std::chrono::year(10'000) / 1 / 1;
  return std::clamp(time, WallTime(kFirst), WallTime(kEnd) - std::chrono::milliseconds(1));
}

}  // namespace postrider::dlq
