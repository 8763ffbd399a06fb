#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "api/api_role.h"
#include "core/base/options.h"
#include "core/crypto/key_ring.h"
#include "core/http/address_guard.h"
#include "core/http/egress_proxy.h"
#include "core/kafka/kafka_log.h"
#include "delivery/worker_role.h"
#include "dlq/indexer_role.h"
#include "migrations/database_options.h"
#include "subscriptions/matching/matcher_role.h"
#include "subscriptions/registry/snapshot_loader.h"

namespace postrider {

// Which log the process stands on.
struct LogOptions {
  std::string kind = "kafka";
  std::string directory;
  int64_t memory_bytes = 96 << 20;
  std::chrono::milliseconds sync_interval{1};
  std::chrono::milliseconds retention{std::chrono::hours(7 * 24)};
  int64_t retention_bytes = 0;
  int64_t reserve_bytes = 256 << 20;

  bool embedded() const { return kind == "embedded"; }
  void Register(Options& options);
};

// Every option of the program, of whatever role.
struct ProgramOptions {
  std::vector<std::string> roles = {"api", "matcher", "worker", "indexer"};
  std::string data_dir = "./postrider-data";
  std::string key_file;
  std::string log_level = "info";
  std::chrono::milliseconds startup_timeout{0};
  std::chrono::milliseconds stop_grace{15'000};

  DatabaseOptions database;
  LogOptions log;
  KafkaOptions kafka;
  AddressRulesOptions network;
  EgressProxyOptions egress_proxy;
  subscriptions::SnapshotLoaderOptions snapshot;
  subscriptions::MatcherOptions matcher;
  delivery::WorkerOptions worker;
  dlq::IndexerOptions indexer;
  api::ApiOptions api;
  std::string probes_listen = "127.0.0.1:9090";

  void Register(Options& options);

  bool Has(absl::string_view role) const {
    for (const std::string& mine : roles) {
      if (mine == role) return true;
    }
    return false;
  }

  std::string EmbeddedLogDirectory() const {
    return log.directory.empty() ? absl::StrCat(data_dir, "/log") : log.directory;
  }

  // kInvalidArgument, with the option's name: what no range of a single option says.
  absl::Status Check() const;
};

// The master keys. kInvalidArgument: the option is not given, or the file cannot be used.
absl::StatusOr<KeyRing> LoadKeys(const ProgramOptions& options);

// Where a listener of ours is, whose option ProgramOptions::Check() has looked at. `port`: the real
// one; 0: that of the option.
HostAndPort ListenerAt(absl::string_view listen, uint32_t port);

// Our listeners as options name them, the brokers, the database and the egress proxy: never
// receivers.
std::vector<HostAndPort> ServersOf(const ProgramOptions& options);

}  // namespace postrider
