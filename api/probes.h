#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "api/router.h"
#include "core/base/metrics.h"

namespace postrider::api {

// One thing that must be well before this process is sent work: a role, the database.
struct Readiness {
  std::string name;
  absl::Status status;
};

// Asked on the loop's thread; quick.
using ReadinessCheck = std::function<std::vector<Readiness>()>;

// What every process shows on its own port (`probes.listen`), GET only and without a key; serve it
// with a Server of its own.
//   /healthz  200 "ok" while the loop turns
//   /readyz   200 {"ready":true,"parts":{...}}, else 503 with the parts that are not and why
//   /metrics  the Prometheus text of `metrics`, which outlives the router
Router MakeProbes(const Metrics& metrics, ReadinessCheck ready);

}  // namespace postrider::api
