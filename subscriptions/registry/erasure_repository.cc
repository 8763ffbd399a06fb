#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "subscriptions/registry/internal/queries.h"
#include "subscriptions/registry/internal/rows.h"
#include "subscriptions/registry/repository.h"

namespace postrider::subscriptions {
namespace {

using internal::AfterId;
using internal::LimitParam;
using internal::Many;
using internal::One;
using internal::RefusePage;

std::string PlaceOfErasure(const Erasure& erasure) { return erasure.id.ToUuid(); }

}  // namespace

void InsertErasure(Transaction& tx, Erasure erasure, DoneWith<Erasure> done) {
  One<Erasure>(
      tx,
      Statement{
          absl::StrCat("INSERT INTO postrider.erasures (id, customer_id, tenant, event_id) "
                       "SELECT $1::uuid, $2::uuid, $3::text, $4::bytea WHERE $2::uuid IS NULL "
                       "OR EXISTS (SELECT 1 FROM postrider.customers WHERE id = $2::uuid) "
                       "RETURNING ",
                       internal::kErasureColumns),
          {SqlParam::Uuid(erasure.id.bytes()),
           erasure.customer ? SqlParam::Uuid(erasure.customer->bytes()) : SqlParam::Null(),
           SqlParam::OptionalText(erasure.tenant),
           erasure.event_id ? SqlParam::Bytes(*erasure.event_id) : SqlParam::Null()}},
      internal::ReadErasure, std::move(done),
      absl::FailedPreconditionError("registry: there is no such customer"));
}

void CountErasures(Transaction& tx, DoneWith<int64_t> done) {
  One<int64_t>(
      tx,
      Statement{"SELECT count(*) AS count FROM postrider.erasures WHERE deleted_at IS NULL", {}},
      internal::ReadCount, std::move(done));
}

void GetErasure(Transaction& tx, ErasureId id, DoneWith<Erasure> done) {
  One<Erasure>(tx,
               Statement{absl::StrCat("SELECT ", internal::kErasureColumns,
                                      " FROM postrider.erasures WHERE id = $1::uuid"),
                         {SqlParam::Uuid(id.bytes())}},
               internal::ReadErasure, std::move(done));
}

void ListErasures(Transaction& tx, Page page, DoneWith<PageOf<Erasure>> done) {
  absl::optional<SqlParam> after = AfterId(page);
  if (!after) return RefusePage(tx, std::move(done));
  Many<Erasure>(tx,
                Statement{absl::StrCat("SELECT ", internal::kErasureColumns,
                                       " FROM postrider.erasures WHERE ($1::uuid IS NULL OR id < "
                                       "$1::uuid) ORDER BY id DESC LIMIT $2::integer"),
                          {*std::move(after), LimitParam(page)}},
                page, internal::ReadErasure, PlaceOfErasure, std::move(done));
}

}  // namespace postrider::subscriptions
