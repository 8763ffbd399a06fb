#include "core/postgres/blocking.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/postgres/internal/pq.h"
#include "core/postgres/url.h"

namespace postrider {

struct BlockingSession::Impl {
  internal::PqConnection connection;
};

BlockingSession::BlockingSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockingSession::~BlockingSession() = default;

absl::StatusOr<std::unique_ptr<BlockingSession>> BlockingSession::Open(
    const std::string& url, std::chrono::seconds timeout) {
  ASSIGN_OR_RETURN(DatabaseUrl parsed, DatabaseUrl::Parse(url));
  internal::PqKeywords keywords(url);
  // libpq takes 1 for 2.
  keywords.Set("connect_timeout", absl::StrCat(timeout.count()));
  keywords.Set("client_encoding", "UTF8");
  keywords.Set("fallback_application_name", "postrider");
  auto impl = std::make_unique<Impl>();
  impl->connection.reset(PQconnectdbParams(keywords.names(), keywords.values(), 1));
  if (PQstatus(impl->connection.get()) != CONNECTION_OK) {
    return internal::CannotConnectStatus(impl->connection.get());
  }
  PQsetNoticeProcessor(
      impl->connection.get(), [](void*, const char*) {}, nullptr);
  return std::unique_ptr<BlockingSession>(new BlockingSession(std::move(impl)));
}

absl::StatusOr<QueryResult> BlockingSession::Query(const Statement& statement) {
  ASSIGN_OR_RETURN(internal::PqParams params, internal::PqParams::Of(statement));
  QueryResult::Handle handle(PQexecParams(impl_->connection.get(), statement.sql.c_str(),
                                          params.count(), nullptr, params.values(),
                                          params.lengths(), params.formats(), 0));
  RETURN_IF_ERROR(internal::StatusOf(handle.get()));
  return QueryResult(std::move(handle));
}

absl::Status BlockingSession::Script(const std::string& sql) {
  const QueryResult::Handle handle(PQexec(impl_->connection.get(), sql.c_str()));
  return internal::StatusOf(handle.get());
}

absl::StatusOr<QueryResult> RunBlocking(const std::string& url, const Statement& statement) {
  ASSIGN_OR_RETURN(std::unique_ptr<BlockingSession> session, BlockingSession::Open(url));
  return session->Query(statement);
}

}  // namespace postrider
