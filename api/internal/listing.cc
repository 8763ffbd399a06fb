#include "api/internal/listing.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/crypto/sealed_box.h"

namespace postrider::api {
namespace {

SealContext ContextOf(const CursorScope& scope) {
  return SealContext{"cursor", scope.list, scope.filter, scope.owner};
}

}  // namespace

std::string SealCursor(const KeyRing& keys, const CursorScope& scope, absl::string_view after) {
  std::string cursor;
  absl::WebSafeBase64Escape(keys.Seal(after, ContextOf(scope)), &cursor);
  return cursor;
}

absl::optional<std::string> OpenCursor(const KeyRing& keys, const CursorScope& scope,
                                       absl::string_view cursor) {
  std::string sealed;
  if (!absl::WebSafeBase64Unescape(cursor, &sealed)) return absl::nullopt;
  absl::StatusOr<std::string> after = keys.Open(sealed, ContextOf(scope));
  if (!after.ok()) return absl::nullopt;
  return *std::move(after);
}

ListQuery::ListQuery(const Call& call, absl::string_view list,
                     std::initializer_list<absl::string_view> filters)
    : request_(call.request), keys_(call.api.keys) {
  scope_.list = std::string(list);
  if (request_.principal.scope == subscriptions::KeyScope::kCustomer) {
    scope_.owner = request_.principal.customer.ToString();
  }
  for (const std::string& param : request_.params) {
    absl::StrAppend(&scope_.filter, param.size(), ":", param);
  }
  for (const absl::string_view filter : filters) {
    const std::string* value = request_.Query(filter);
    absl::StrAppend(&scope_.filter, ";", filter);
    if (value != nullptr) absl::StrAppend(&scope_.filter, "=", value->size(), ":", *value);
  }
  page_.limit = kListLimit;
  for (auto parameter = request_.query.begin(); parameter != request_.query.end(); ++parameter) {
    const auto& [name, value] = *parameter;
    for (auto earlier = request_.query.begin(); earlier != parameter; ++earlier) {
      if (earlier->first == name) Fault(name, "is given twice");
    }
    if (name == "limit") {
      int64_t limit = 0;
      if (!absl::SimpleAtoi(value, &limit) || limit < 1 ||
          limit > static_cast<int64_t>(subscriptions::kPageMax)) {
        Fault(name, absl::StrCat("must be between 1 and ", subscriptions::kPageMax));
      } else {
        page_.limit = static_cast<size_t>(limit);
      }
    } else if (name == "cursor") {
      absl::optional<std::string> after = OpenCursor(keys_, scope_, value);
      if (after) {
        page_.after = *std::move(after);
      } else {
        Fault(name, "is not a cursor of this list with this filter");
      }
    } else {
      bool known = false;
      for (const absl::string_view filter : filters) known = known || filter == name;
      if (!known) Fault(name, "is no parameter of this list");
    }
  }
}

Response ListQuery::Answer(JsonValue rows, absl::string_view next) const {
  return JsonResponse(
      200, JsonValue::MakeObject(
               {{"data", std::move(rows)},
                {"next_cursor",
                 next.empty() ? JsonValue() : JsonValue(SealCursor(keys_, scope_, next))}}));
}

std::vector<QueryParameter> ListParameters(std::vector<QueryParameter> filters) {
  filters.push_back({"limit", "How many to give, 1 to 1000; 100 by default."});
  filters.push_back({"cursor", "`next_cursor` of the page before."});
  return filters;
}

}  // namespace postrider::api
