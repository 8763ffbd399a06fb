#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "loadtest/plan.h"

namespace postrider::loadtest {

// What registration got back: ids, keys and secrets, by the plan's indices. A text file of one
// thing a line, as "endpoint 17 ep_... whsec_..."; an empty id: not registered.
struct State {
  struct Customer {
    std::string id;
    std::string key;
  };
  struct Endpoint {
    std::string id;
    std::string secret;
  };
  uint64_t fingerprint = 0;  // of the plan
  uint16_t receiver_port = 0;
  std::string api;
  std::string publisher_key;
  std::vector<Customer> customers;
  std::vector<Endpoint> endpoints;
  uint64_t subscriptions = 0;  // how many were made

  // By id; for letters.
  absl::flat_hash_map<std::string, uint32_t> EndpointsById() const;

  absl::Status Save(const std::string& path) const;
  static absl::StatusOr<State> Load(const std::string& path);
};

}  // namespace postrider::loadtest
