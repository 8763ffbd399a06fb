#include "subscriptions/registry/reseal.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/status_macros.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/ids.h"

namespace postrider::subscriptions {
namespace {

constexpr int64_t kRowsAtOnce = 200;
// A row that is written meanwhile is looked at again; what is written then is sealed by a process
// that has the new key.
constexpr int kPassesMax = 20;
constexpr size_t kUnreadableShown = 10;

struct Row {
  EndpointId id;
  CustomerId customer;
  EndpointSealed sealed;
};

absl::StatusOr<std::vector<Row>> ReadRows(BlockingSession& session,
                                          const absl::optional<EndpointId>& after) {
  ASSIGN_OR_RETURN(
      const QueryResult result,
      session.Query(Statement{
          "SELECT id, customer_id, secrets_sealed, auth_sealed, tls_key_sealed FROM "
          "postrider.endpoints WHERE deleted_at IS NULL AND ($1::uuid IS NULL OR id > $1::uuid) "
          "ORDER BY id LIMIT $2::integer",
          {after ? SqlParam::Uuid(after->bytes()) : SqlParam::Null(),
           SqlParam::Int(kRowsAtOnce)}}));
  std::vector<Row> rows;
  for (size_t i = 0; i < result.rows(); ++i) {
    RowReader reader(result, i);
    Row row;
    row.id = EndpointId(reader.Uuid("id"));
    row.customer = CustomerId(reader.Uuid("customer_id"));
    row.sealed = {reader.Bytes("secrets_sealed"), reader.Bytes("auth_sealed"),
                  reader.Bytes("tls_key_sealed")};
    RETURN_IF_ERROR(reader.status());
    rows.push_back(std::move(row));
  }
  return rows;
}

// False: it was changed or deleted since it was read.
absl::StatusOr<bool> WriteRow(BlockingSession& session, const Row& row,
                              const EndpointSealed& fresh) {
  ASSIGN_OR_RETURN(
      const QueryResult result,
      session.Query(Statement{
          "UPDATE postrider.endpoints SET secrets_sealed = $2::bytea, auth_sealed = $3::bytea, "
          "tls_key_sealed = $4::bytea WHERE id = $1::uuid AND deleted_at IS NULL AND "
          "secrets_sealed = $5::bytea AND auth_sealed = $6::bytea AND tls_key_sealed = $7::bytea",
          {SqlParam::Uuid(row.id.bytes()), SqlParam::Bytes(fresh.secrets),
           SqlParam::Bytes(fresh.auth), SqlParam::Bytes(fresh.tls_key),
           SqlParam::Bytes(row.sealed.secrets), SqlParam::Bytes(row.sealed.auth),
           SqlParam::Bytes(row.sealed.tls_key)}}));
  return result.affected() == 1;
}

// Rows are locked by a transaction of their own each: nobody waits for long.
absl::StatusOr<bool> InTransaction(BlockingSession& session, const Row& row,
                                   const EndpointSealed& fresh) {
  RETURN_IF_ERROR(
      session.Script("BEGIN; SELECT set_config('postrider.operator', 'on', true), "
                     "set_config('postrider.resealing', 'on', true)"));
  absl::StatusOr<bool> written = WriteRow(session, row, fresh);
  if (!written.ok()) {
    session.Script("ROLLBACK").IgnoreError();
    return written;
  }
  RETURN_IF_ERROR(session.Script("COMMIT"));
  return written;
}

absl::StatusOr<std::vector<Row>> ReadInTransaction(BlockingSession& session,
                                                   const absl::optional<EndpointId>& after) {
  RETURN_IF_ERROR(
      session.Script("BEGIN READ ONLY; SELECT set_config('postrider.operator', 'on', true)"));
  absl::StatusOr<std::vector<Row>> rows = ReadRows(session, after);
  session.Script("ROLLBACK").IgnoreError();
  return rows;
}

// Whether all that could be read is sealed anew now.
absl::StatusOr<bool> Pass(BlockingSession& session, const KeyRing& keys, ResealReport* report) {
  report->endpoints = report->unreadable = 0;
  report->unreadable_first.clear();
  bool all = true;
  absl::optional<EndpointId> after;
  for (;;) {
    ASSIGN_OR_RETURN(const std::vector<Row> rows, ReadInTransaction(session, after));
    if (rows.empty()) return all;
    after = rows.back().id;
    report->endpoints += static_cast<int64_t>(rows.size());
    for (const Row& row : rows) {
      const absl::StatusOr<EndpointSealed> fresh = Reseal(keys, row.customer, row.id, row.sealed);
      if (!fresh.ok()) {
        ++report->unreadable;
        if (report->unreadable_first.size() < kUnreadableShown) {
          report->unreadable_first.push_back(
              absl::StrCat(row.id.ToString(), ": ", fresh.status().message()));
        }
        continue;
      }
      if (*fresh == row.sealed) continue;
      ASSIGN_OR_RETURN(const bool written, InTransaction(session, row, *fresh));
      if (written) ++report->resealed;
      all = all && written;
    }
  }
}

}  // namespace

absl::StatusOr<ResealReport> ResealEndpoints(BlockingSession& session, const KeyRing& keys) {
  ResealReport report;
  for (int i = 0; i < kPassesMax; ++i) {
    ASSIGN_OR_RETURN(const bool all, Pass(session, keys, &report));
    if (all) return report;
  }
  return absl::AbortedError("registry: endpoints are changed faster than they are sealed anew");
}

}  // namespace postrider::subscriptions
