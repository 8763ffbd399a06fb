#include "api/reseal_answers.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "api/internal/kept_answer.h"
#include "core/base/status_macros.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"

namespace postrider::api {
namespace {

// One answer may have some megabytes.
constexpr int64_t kRowsAtOnce = 20;

// The answers after `place`, in the order of their names, in the session's transaction; false:
// there are no more. What is kept stays as it is for its day, so none is met twice or missed; one
// that comes meanwhile is sealed by a process that has the new key.
absl::StatusOr<bool> ResealSome(BlockingSession& session, const KeyRing& keys, KeptPlace* place,
                                ResealAnswersReport* report) {
  ASSIGN_OR_RETURN(
      const QueryResult result,
      session.Query(Statement{
          absl::StrCat("SELECT owner, route, key_sha256, answer_sealed FROM "
                       "postrider.idempotency_keys WHERE answer_sealed IS NOT NULL AND created_at "
                       "> now() - interval '",
                       kAnswersKept.count(),
                       " hours' AND (owner, route, key_sha256) > ($1, $2, $3::bytea) ORDER BY "
                       "owner, route, key_sha256 LIMIT $4::integer"),
          {place->owner, place->route, SqlParam::Bytes(place->key_sha256),
           SqlParam::Int(kRowsAtOnce)}}));
  for (size_t i = 0; i < result.rows(); ++i) {
    RowReader row(result, i);
    *place = {row.Text("owner"), row.Text("route"), row.Bytes("key_sha256")};
    const std::string sealed = row.Bytes("answer_sealed");
    RETURN_IF_ERROR(row.status());
    ++report->answers;
    if (keys.IsCurrent(sealed)) continue;
    absl::StatusOr<std::string> fresh = SealAnew(*place, keys, sealed);
    if (!fresh.ok()) {
      ++report->unreadable;
      continue;
    }
    ASSIGN_OR_RETURN(
        const QueryResult written,
        session.Query(Statement{
            "UPDATE postrider.idempotency_keys SET answer_sealed = $5::bytea WHERE owner = $1 AND "
            "route = $2 AND key_sha256 = $3::bytea AND answer_sealed = $4::bytea",
            {place->owner, place->route, SqlParam::Bytes(place->key_sha256),
             SqlParam::Bytes(sealed), SqlParam::Bytes(*fresh)}}));
    report->resealed += written.affected();
  }
  return result.rows() > 0;
}

}  // namespace

absl::StatusOr<ResealAnswersReport> ResealAnswers(BlockingSession& session, const KeyRing& keys) {
  ResealAnswersReport report;
  KeptPlace place;
  for (bool more = true; more;) {
    RETURN_IF_ERROR(session.Script("BEGIN; SELECT set_config('postrider.operator', 'on', true)"));
    absl::StatusOr<bool> some = ResealSome(session, keys, &place, &report);
    if (!some.ok()) {
      session.Script("ROLLBACK").IgnoreError();
      return some.status();
    }
    RETURN_IF_ERROR(session.Script("COMMIT"));
    more = *some;
  }
  return report;
}

}  // namespace postrider::api
