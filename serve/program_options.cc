#include "serve/program_options.h"

#include <regex.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/http/ip_address.h"
#include "core/postgres/url.h"
#include "core/stream/control_record.h"
#include "core/stream/pool_plan.h"

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

absl::Status CheckListen(absl::string_view name, const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port > 65'535 || !IpAddress::Parse(host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "option ", name, ": \"", text, "\" is no IP address and port such as 127.0.0.1:8080"));
  }
  return absl::OkStatus();
}

}  // namespace

void LogOptions::Register(Options& options) {
  options.AddChoice(
      "log.kind", &kind, {"kafka", "embedded"},
      "What events and messages lie in: Apache Kafka; or a log in this process on the local "
      "disk, for one process that has all roles.");
  options.Add("log.directory", &directory,
              "Where the embedded log lies, a directory of its own on a disk that keeps what was "
              "synced; empty: the directory log in data_dir.");
  options.AddBytes("log.memory", &memory_bytes, int64_t{8} << 20, int64_t{64} << 30,
                   "What the embedded log keeps of its latest records and of its files in "
                   "memory.");
  options.AddDuration("log.sync_interval", &sync_interval, milliseconds(0), milliseconds(1'000),
                      "The embedded log: from one sync of the disk to the next while little is "
                      "appended; what comes alone is synced at once.");
  options.AddDuration("log.retention", &retention, milliseconds(60'000), hours(10 * 365 * 24),
                      "The embedded log: how long source topics keep events. Those that were "
                      "dispatched need it no more.");
  options.AddBytes("log.retention_bytes", &retention_bytes, 0, int64_t{1} << 50,
                   "The same by size, of each source partition; 0: no bound. What is over it is "
                   "deleted, matched or not.");
  options.AddBytes("log.reserve", &reserve_bytes, 0, int64_t{1} << 40,
                   "The embedded log: with less free on its disk, or less than an eighth of it, "
                   "events are refused with 503.");
}

void ProgramOptions::Register(Options& options) {
  options.AddList("roles", &roles, "What this process does: any of api, matcher, worker, indexer.");
  options.Add("data_dir", &data_dir,
              "Where a process keeps its last snapshot and, while it runs, the backlog; its own, "
              "made when it is missing.");
  options.Add("secrets.key_file", &key_file,
              "The master keys that secrets are sealed with: lines `keyid:base64 of 32 bytes`, "
              "the first one seals; readable by its owner only. It is read again when it changes.");
  options.AddChoice("log.level", &log_level, {"debug", "info", "warn", "error"},
                    "The least level of log lines.");
  options.AddDuration(
      "startup_timeout", &startup_timeout, milliseconds(0), std::chrono::hours(24),
      "How long a start waits for the log, Kafka above all, before the process gives up; 0 for as "
      "long as it takes, alive and not ready.");
  options.AddDuration("stop_grace", &stop_grace, milliseconds(1'000), std::chrono::hours(1),
                      "How much longer than worker.stop_wait_max a stop may take before the "
                      "process ends as it is, with exit status 3.");
  database.Register(options);
  log.Register(options);
  kafka.Register(options);
  network.Register(options);
  egress_proxy.Register(options);
  snapshot.Register(options);
  matcher.Register(options);
  worker.Register(options);
  indexer.Register(options);
  api.Register(options);
  options.Add("probes.listen", &probes_listen,
              "Where /healthz, /readyz and /metrics are served, as address:port; port 0 takes a "
              "free one.");
}

absl::Status ProgramOptions::Check() const {
  if (roles.empty()) return absl::InvalidArgumentError("option roles: name at least one role");
  for (const std::string& role : roles) {
    if (role != "api" && role != "matcher" && role != "worker" && role != "indexer") {
      return absl::InvalidArgumentError(
          absl::StrCat("option roles: \"", role, "\" is none of api, matcher, worker, indexer"));
    }
  }
  if (log.embedded()) {
    for (const char* role : {"api", "matcher", "worker", "indexer"}) {
      if (Has(role)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "option log.kind: the embedded log serves one process that has all roles, and roles "
          "lacks \"",
          role, "\"; for roles in processes of their own use Apache Kafka (log.kind: kafka)"));
    }
  }
  if (!IsPoolName(worker.pool)) {
    return absl::InvalidArgumentError(
        absl::StrCat("option worker.pool: \"", worker.pool,
                     "\": a name without '/' that does not end like \".g2\""));
  }
  // A topic whose name begins with it is ours, never a source.
  if (kafka.prefix.empty()) {
    return absl::InvalidArgumentError("option kafka.prefix: must not be empty");
  }
  const std::string& source = matcher.decoder.topic_prefix;
  if (source.compare(0, kafka.prefix.size(), kafka.prefix) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("option source.topic_prefix: \"", source,
                                                   "\" lies within kafka.prefix = \"", kafka.prefix,
                                                   "\", whose topics are never sources"));
  }
  RETURN_IF_ERROR(CheckListen("api.listen", api.listen));
  RETURN_IF_ERROR(CheckListen("probes.listen", probes_listen));
  regex_t compiled;
  const int fault = ::regcomp(&compiled, matcher.topics.c_str(), REG_EXTENDED | REG_NOSUB);
  if (fault == 0) ::regfree(&compiled);
  if (fault != 0 || matcher.topics.substr(0, 1) != "^") {
    return absl::InvalidArgumentError(
        absl::StrCat("option source.topics: \"", matcher.topics,
                     "\" is no POSIX extended regular expression that begins with '^'"));
  }
  if (Has("worker")) RETURN_IF_ERROR(worker.Memory().status());
  if (const auto rules = AddressRules::Create(network); !rules.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("option ", rules.status().message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<KeyRing> LoadKeys(const ProgramOptions& options) {
  if (options.key_file.empty()) {
    return absl::InvalidArgumentError(
        "option secrets.key_file: name a file with a line `keyid:base64 of 32 random bytes`, "
        "readable by its owner only; secrets are sealed with it");
  }
  absl::StatusOr<KeyRing> keys = KeyRing::Load(options.key_file);
  if (keys.ok()) return keys;
  return absl::InvalidArgumentError(absl::StrCat("option ", keys.status().message()));
}

HostAndPort ListenerAt(absl::string_view listen, uint32_t port) {
  const size_t colon = listen.rfind(':');
  absl::string_view host = listen.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (port == 0 && !absl::SimpleAtoi(listen.substr(colon + 1), &port)) port = 0;
  return {std::string(host), static_cast<uint16_t>(port)};
}

std::vector<HostAndPort> ServersOf(const ProgramOptions& options) {
  std::vector<HostAndPort> servers;
  const auto add = [&servers](absl::string_view hosts, uint16_t port_default) {
    for (HostAndPort& server : HostsIn(hosts, port_default)) servers.push_back(std::move(server));
  };
  servers.push_back(ListenerAt(options.probes_listen, 0));
  servers.push_back(ListenerAt(options.api.listen, 0));
  if (!options.log.embedded()) add(options.kafka.brokers, 9092);
  add(options.egress_proxy.url, 80);
  for (const std::string* url :
       {&options.database.api_url, &options.database.indexer_url, &options.database.reader_url}) {
    const absl::StatusOr<DatabaseUrl> parsed = DatabaseUrl::Parse(*url);
    if (parsed.ok()) add(parsed->hosts, 5432);
  }
  return servers;
}

}  // namespace postrider
