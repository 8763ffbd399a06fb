#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/id.h"
#include "core/base/status_macros.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"
#include "core/postgres/transaction.h"
#include "subscriptions/registry/repository.h"

// How the repository asks for one row, for a page, or for none. Threads: the transaction's loop.
namespace postrider::subscriptions::internal {

inline int64_t ReadCount(RowReader& row) { return row.Int("count"); }

inline absl::Status NotFound() { return absl::NotFoundError("registry: there is no such row"); }

template <typename T>
absl::StatusOr<std::vector<T>> ReadAll(absl::StatusOr<QueryResult> result, T (*read)(RowReader&)) {
  if (!result.ok()) return std::move(result).status();
  std::vector<T> rows;
  rows.reserve(result->rows());
  for (size_t i = 0; i < result->rows(); ++i) {
    RowReader row(*result, i);
    rows.push_back(read(row));
    RETURN_IF_ERROR(row.status());
  }
  return rows;
}

// The one row that the statement gives, or `none`.
template <typename T>
void One(Transaction& tx, Statement statement, T (*read)(RowReader&), DoneWith<T> done,
         absl::Status none = NotFound()) {
  tx.Query(std::move(statement), [read, done = std::move(done), none = std::move(none)](
                                     absl::StatusOr<QueryResult> result) mutable {
    absl::StatusOr<std::vector<T>> rows = ReadAll(std::move(result), read);
    if (!rows.ok()) {
      std::move(done)(std::move(rows).status());
    } else if (rows->empty()) {
      std::move(done)(std::move(none));
    } else {
      std::move(done)(std::move(rows->front()));
    }
  });
}

// kNotFound when the statement gives no row, or a first one that says 0.
inline void AtLeastOne(Transaction& tx, Statement statement, DonePlain done) {
  One<int64_t>(
      tx, std::move(statement), ReadCount,
      [done = std::move(done)](absl::StatusOr<int64_t> count) mutable {
        std::move(done)(!count.ok() ? count.status() : *count == 0 ? NotFound() : absl::OkStatus());
      });
}

inline size_t RowsOf(const Page& page) { return std::clamp<size_t>(page.limit, 1, kPageMax); }

// A page of a statement that asks for RowsOf(page) + 1 rows.
template <typename T>
void Many(Transaction& tx, Statement statement, const Page& page, T (*read)(RowReader&),
          std::string (*place_of)(const T&), DoneWith<PageOf<T>> done) {
  tx.Query(std::move(statement), [read, place_of, limit = RowsOf(page), done = std::move(done)](
                                     absl::StatusOr<QueryResult> result) mutable {
    absl::StatusOr<std::vector<T>> rows = ReadAll(std::move(result), read);
    if (!rows.ok()) {
      std::move(done)(std::move(rows).status());
      return;
    }
    PageOf<T> part;
    part.rows = *std::move(rows);
    if (part.rows.size() > limit) {
      part.rows.resize(limit);
      part.next = place_of(part.rows.back());
    }
    std::move(done)(std::move(part));
  });
}

inline SqlParam LimitParam(const Page& page) {
  return SqlParam::Int(static_cast<int64_t>(RowsOf(page)) + 1);
}

// Page::after as a uuid; Null for the first page, no value when it is not ours.
inline absl::optional<SqlParam> AfterId(const Page& page) {
  if (page.after.empty()) return SqlParam::Null();
  const absl::optional<IdBytes> id = ParseUuid(page.after);
  if (!id) return absl::nullopt;
  return SqlParam::Uuid(*id);
}

template <typename Done>
void RefusePage(Transaction& tx, Done done) {
  // Answered from the loop, as everything is.
  tx.Query(
      Statement{"SELECT 1", {}}, [done = std::move(done)](absl::StatusOr<QueryResult>) mutable {
        std::move(done)(absl::InvalidArgumentError("registry: a list's cursor cannot be read"));
      });
}

inline absl::string_view LockClause(RowLock lock) {
  return lock == RowLock::kForUpdate ? " FOR UPDATE" : "";
}

}  // namespace postrider::subscriptions::internal
