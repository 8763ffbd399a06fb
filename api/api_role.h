#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/endpoint_tester.h"
#include "api/publisher.h"
#include "api/router.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/crypto/key_ring.h"
#include "core/http/address_guard.h"
#include "core/postgres/connection.h"
#include "core/stream/log.h"

namespace postrider::api {

struct ApiOptions {
  std::string listen = "127.0.0.1:8080";
  int64_t connections_max = 1'024;
  int64_t database_connections = 8;
  bool create_topics = true;
  int64_t source_partitions = 1;

  // api.listen, api.connections_max, api.database_connections, api.create_topics,
  // source.partitions
  void Register(Options& options);
};

// What the API stands on; all of it outlives the role.
struct ApiRoleParts {
  Log& log;
  const Clock& clock;
  Metrics& metrics;
  const KeyRing& keys;
  // Makes what tests endpoints, on the role's thread and for its loop. Null, or an error, which is
  // logged: they cannot be tested.
  std::function<absl::StatusOr<std::unique_ptr<EndpointTester>>(EventLoop&)> make_tester = nullptr;
};

// The API: REST over Postgres and the log. It starts and answers (with 503) while either is away.
//
// Threads: one of its own runs a loop with the database's connections, the producer and every
// handler; the Server and the Publisher have one more each. Start and Stop from any one thread.
class ApiRole {
 public:
  // `database`: as the API's role, with check_sql (migrations' ApiRoleCheckSql()). `publish` tells
  // topic_prefix, own_prefix, replication and event_bytes_max; the rest comes from `options`.
  // `rules`: the address guard's, for URLs with literal addresses. Returns when it listens.
  static absl::StatusOr<std::unique_ptr<ApiRole>> Start(const ApiRoleParts& parts,
                                                        const ApiOptions& options,
                                                        ConnectionOptions database,
                                                        PublishOptions publish,
                                                        std::shared_ptr<const AddressRules> rules);
  // Drops what is under way.
  ~ApiRole();
  ApiRole(const ApiRole&) = delete;
  ApiRole& operator=(const ApiRole&) = delete;

  uint16_t port() const;
  // The table of routes, as it is served.
  const Router& router() const;
  // OK, or why the database does not answer. As of the last second; any thread.
  absl::Status health() const;
  // As the one of Start(), from now on. Any thread.
  void SetAddressRules(std::shared_ptr<const AddressRules> rules);
  // Until then nobody tests an endpoint (503): the rules are not complete yet. Any thread.
  void AllowTests();
  // Accepts no more and lets requests end, for at most ten seconds; `done` runs on the role's
  // thread. At most once.
  void Stop(std::function<void()> done);

 private:
  struct Impl;
  explicit ApiRole(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider::api
