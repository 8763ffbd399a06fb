#pragma once

#include <libpq-fe.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"

// What the asynchronous and the blocking session share of libpq.
namespace postrider::internal {

struct PqFinisher {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};
using PqConnection = std::unique_ptr<PGconn, PqFinisher>;

absl::Status StatusOf(const PGresult* result);
absl::Status BrokenStatus(const PGconn* connection);
absl::Status CannotConnectStatus(const PGconn* connection);

// A statement's parameters in libpq's form; borrows the statement.
class PqParams {
 public:
  // InvalidArgument: a text parameter has a NUL in it.
  static absl::StatusOr<PqParams> Of(const Statement& statement);

  int count() const { return static_cast<int>(values_.size()); }
  const char* const* values() const { return values_.data(); }
  const int* lengths() const { return lengths_.data(); }
  const int* formats() const { return formats_.data(); }

 private:
  std::vector<const char*> values_;
  std::vector<int> lengths_;
  std::vector<int> formats_;
};

// The keywords of a connection string: `url` itself, then ours, which rule over it.
class PqKeywords {
 public:
  explicit PqKeywords(const std::string& url);
  void Set(const char* name, std::string value);
  // Valid until this changes.
  const char* const* names();
  const char* const* values();

 private:
  std::vector<std::string> texts_;
  std::vector<const char*> names_;
  std::vector<const char*> value_pointers_;
};

}  // namespace postrider::internal
