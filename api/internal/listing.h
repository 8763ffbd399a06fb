#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "api/internal/call.h"
#include "api/router.h"
#include "core/crypto/key_ring.h"
#include "core/json/json.h"
#include "subscriptions/registry/field_fault.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {

inline constexpr size_t kListLimit = 100;

// What a list's cursor belongs to: it is good for the same list with the same filter and for the
// same owner only. Sealed with the master key, so any process of ours reads it and nobody else can
// make one.
struct CursorScope {
  std::string list;    // the operation
  std::string filter;  // the filter's values
  std::string owner;   // the customer's id, "" for an operator
};
std::string SealCursor(const KeyRing& keys, const CursorScope& scope, absl::string_view after);
// No value: it is damaged, or of another list, filter or owner.
absl::optional<std::string> OpenCursor(const KeyRing& keys, const CursorScope& scope,
                                       absl::string_view cursor);

// A list request's query: limit, cursor and the named filters; everything else is a fault.
class ListQuery {
 public:
  ListQuery(const Call& call, absl::string_view list,
            std::initializer_list<absl::string_view> filters);

  // The value of a filter; null when it was not given.
  const std::string* Filter(absl::string_view name) const { return request_.Query(name); }
  void Fault(absl::string_view parameter, absl::string_view detail) {
    faults_.push_back({std::string(parameter), std::string(detail)});
  }
  const subscriptions::FieldFaults& faults() const { return faults_; }
  subscriptions::Page page() const { return page_; }
  // {"data":[...],"next_cursor":...}; `next` as PageOf::next.
  Response Answer(JsonValue rows, absl::string_view next) const;

 private:
  const Request& request_;
  const KeyRing& keys_;
  CursorScope scope_;
  subscriptions::Page page_;
  subscriptions::FieldFaults faults_;
};

// The parameters of every list, for the document.
std::vector<QueryParameter> ListParameters(std::vector<QueryParameter> filters = {});

}  // namespace postrider::api
