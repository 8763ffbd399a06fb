#pragma once

#include <utility>

#include "absl/types/optional.h"
#include "api/internal/call.h"
#include "api/internal/fields.h"
#include "api/problem.h"
#include "core/postgres/transaction.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {

// A body, if there is one, has no fields. False: it was answered.
inline bool HasNoFields(const CallPtr& call) {
  const ParsedBody body = ParseBody(call->request, BodyNeed::kOptional);
  if (body.refusal) {
    call->Answer(*body.refusal);
    return false;
  }
  subscriptions::FieldFaults faults;
  FieldReader(&body.object, "", faults).Finish();
  if (!faults.empty()) call->Fail(faults);
  return faults.empty();
}

// Begins a transaction, finds the endpoint and runs `next(endpoint)`; with a lock also looks at
// If-Match. No ids: the path's are none of ours.
template <typename Next>
void FindEndpoint(CallPtr call, TransactionOptions as,
                  absl::optional<subscriptions::CustomerId> customer,
                  absl::optional<subscriptions::EndpointId> id, subscriptions::RowLock lock,
                  Next next) {
  if (!customer || !id) return call->Answer(ProblemNotFound());
  call->InTransaction(std::move(as), [call, customer, id, lock, next = std::move(next)]() mutable {
    subscriptions::GetEndpoint(
        call->tx(), *customer, *id, lock,
        call->Then<subscriptions::Endpoint>(
            [call, lock, next = std::move(next)](subscriptions::Endpoint endpoint) mutable {
              if (lock == subscriptions::RowLock::kForUpdate &&
                  !IfMatches(call->request, endpoint.generation)) {
                return call->Answer(PreconditionFailed());
              }
              next(std::move(endpoint));
            }));
  });
}

// The customer's own: /v1/endpoints/{endpoint}...
template <typename Next>
void WithEndpoint(CallPtr call, subscriptions::RowLock lock, Next next) {
  const auto customer = call->request.principal.customer;
  FindEndpoint(call, subscriptions::AsCustomer(customer), customer,
               subscriptions::EndpointId::Parse(call->request.params[0]), lock, std::move(next));
}

// An operator's: /v1/customers/{customer}/endpoints/{endpoint}...
template <typename Next>
void WithCustomersEndpoint(CallPtr call, subscriptions::RowLock lock, Next next) {
  FindEndpoint(call, subscriptions::AsOperator(),
               subscriptions::CustomerId::Parse(call->request.params[0]),
               subscriptions::EndpointId::Parse(call->request.params[1]), lock, std::move(next));
}

}  // namespace postrider::api
