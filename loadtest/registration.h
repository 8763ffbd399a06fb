#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadtest/plan.h"
#include "loadtest/state.h"

namespace postrider::loadtest {

struct RegisterOptions {
  std::string api;  // "http://127.0.0.1:8080"
  std::string operator_key;
  uint16_t receiver_port = 0;
  int parallel = 16;
};

// Makes everything of the plan through the REST API: event types, customers, their keys and grants,
// a publisher key, endpoints and subscriptions. Shows its progress on standard error.
absl::StatusOr<State> Register(const Plan& plan, const RegisterOptions& options);

// The dead letters of every customer, as ParseMessageList() reads them:
// "<event id> <endpoint id> <reason> <state>", in `path`. Returns their number.
absl::StatusOr<uint64_t> SaveLetters(const State& state, const std::string& api, int parallel,
                                     const std::string& path);

}  // namespace postrider::loadtest
