#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"

namespace postrider {

// A connection whose calls wait for the answer: for commands and tests, never for a loop's thread.
// Errors as Connection's. Threads: owned by one.
class BlockingSession {
 public:
  // kUnavailable when there is no answer within `timeout`.
  static absl::StatusOr<std::unique_ptr<BlockingSession>> Open(
      const std::string& url, std::chrono::seconds timeout = std::chrono::seconds(5));
  ~BlockingSession();
  BlockingSession(const BlockingSession&) = delete;
  BlockingSession& operator=(const BlockingSession&) = delete;

  absl::StatusOr<QueryResult> Query(const Statement& statement);
  absl::StatusOr<QueryResult> Query(absl::string_view sql) {
    return Query(Statement{std::string(sql), {}});
  }
  // Any number of statements without parameters; the first fault ends it.
  absl::Status Script(const std::string& sql);

 private:
  struct Impl;
  explicit BlockingSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Opens a session as `url`, runs one statement, closes it.
absl::StatusOr<QueryResult> RunBlocking(const std::string& url, const Statement& statement);

}  // namespace postrider
