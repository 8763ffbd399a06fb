// What an endpoint needs beside its own right to send: room for its host in the sink's line, and
// the token of its provider.

#include <string>

#include "absl/status/status.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"

namespace postrider::delivery {

// Whether the endpoint stands in another line now: its host has all the requests that it may have
// waiting, or its token is being fetched.
bool EndpointFunction::AwaitsWayOut(EndpointState& state) {
  if (!program_.SnapshotUsable() || program_.snapshot()->FindEndpoint(state.id) == nullptr) {
    return false;
  }
  absl::Status why;
  const PreparedEndpoint* const prepared = Prepared(state, &why);
  if (prepared == nullptr) return false;
  if (program_.sink().RoomFor(prepared->authority) == 0) {
    program_.EnqueueForHost(prepared->authority, this, state);
    return true;
  }
  if (prepared->auth.token == nullptr) return false;
  // Without one, and none on its way, what is sent ends as the endpoint's failure.
  if (program_.tokens().Get(prepared->auth.token).state != TokenCache::State::kFetching) {
    return false;
  }
  program_.EnqueueForToken(prepared->auth.token->key, this, state);
  return true;
}

Outcome EndpointFunction::NoTokenOutcome(const PreparedEndpoint& prepared) {
  Outcome outcome;
  outcome.kind = OutcomeKind::kNoToken;
  outcome.verdict = Verdict::kRetry;
  outcome.charge = Charge::kCharged;
  outcome.breaker = BreakerEffect::kFailure;
  // Else the attempts would be used up while the provider is left alone.
  outcome.hold = program_.tokens().Get(prepared.auth.token).retry_in;
  return outcome;
}

void EndpointFunction::NoteRefusedToken(const EndpointState& state, uint64_t token,
                                        const HttpResult& result) {
  constexpr int kUnauthorized = 401;
  if (token == 0 || result.status != kUnauthorized) return;
  if (state.prepared == nullptr || state.prepared->auth.token == nullptr) return;
  program_.tokens().Reject(*state.prepared->auth.token, token);
}

}  // namespace postrider::delivery
