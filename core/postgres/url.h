#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider {

// The parts of postgresql://user:password@host:port/database?parameter=value that we read or
// change. Values are percent-decoded. Faults are InvalidArgument and never repeat the URL, which
// may hold a password. Threads: any.
struct DatabaseUrl {
  std::string user;
  std::string password;
  std::string hosts;  // as written: host:port[,host:port]
  std::string database;
  std::string parameters;  // as written, without '?'

  static absl::StatusOr<DatabaseUrl> Parse(absl::string_view text);
  std::string ToString() const;
  // "host:port/database" for logs and errors: no user, no password, no parameters.
  std::string ForLog() const;
};

// `url` with another user and the same password.
absl::StatusOr<std::string> WithUser(absl::string_view url, absl::string_view user);
// `url` with another database.
absl::StatusOr<std::string> WithDatabase(absl::string_view url, absl::string_view database);

}  // namespace postrider
