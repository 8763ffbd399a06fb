// The command line of postrider. It builds the real parts (log, database, sink, clock) and hands
// them to the roles; nothing else does.

#include <regex.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "api/api_key.h"
#include "api/api_role.h"
#include "api/probes.h"
#include "api/server.h"
#include "commands/log_command.h"
#include "commands/publish_command.h"
#include "commands/rescale_command.h"
#include "commands/savepoint_command.h"
#include "commands/secrets_command.h"
#include "commands/state_command.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/file_limit.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/base/status_macros.h"
#include "core/crypto/key_file.h"
#include "core/crypto/key_ring.h"
#include "core/crypto/random.h"
#include "core/embedded_log/embedded_log.h"
#include "core/embedded_log/inspect.h"
#include "core/http/address_guard.h"
#include "core/http/egress_proxy.h"
#include "core/http/own_addresses.h"
#include "core/http/resolver.h"
#include "core/kafka/kafka_log.h"
#include "core/postgres/url.h"
#include "core/state/heap_store.h"
#include "core/state/lazy_store.h"
#include "core/state/process_directory.h"
#include "core/state/rocksdb_store.h"
#include "core/stream/control_follower.h"
#include "core/stream/control_record.h"
#include "core/stream/pool_plan.h"
#include "core/stream/trim_holds.h"
#include "delivery/memory_budget.h"
#include "delivery/worker_role.h"
#include "dlq/indexer_role.h"
#include "dlq/letters/dead_letter_log.h"
#include "dlq/reports/report_record.h"
#include "migrations/database_options.h"
#include "migrations/runner.h"
#include "serve/endpoint_tester.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/matching/matcher_role.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/repository.h"
#include "subscriptions/registry/snapshot_loader.h"

extern char** environ;

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr seconds kMemoryInterval{2};
constexpr int64_t kTesterFiles = 72;  // connections of MakeEndpointTester()
constexpr seconds kKeyFileInterval{1};
// Names of our own servers are looked up again, and how long a start waits for their addresses.
constexpr seconds kOwnNamesInterval{30};
constexpr seconds kOwnNamesWait{5};
constexpr seconds kBrokersWait{2};
// Before a worker leaves topics that are rescaled its requests end; they do within their timeout.
constexpr seconds kInFlightWait{20};
constexpr milliseconds kInFlightLook{100};
// How long the threads of a role that has stopped may take to end.
constexpr seconds kDisposeWait{5};

// Which log the process stands on.
struct LogOptions {
  std::string kind = "kafka";
  std::string directory;
  int64_t memory_bytes = 96 << 20;
  milliseconds sync_interval{1};
  milliseconds retention{hours(7 * 24)};
  int64_t retention_bytes = 0;
  int64_t reserve_bytes = 256 << 20;

  bool embedded() const { return kind == "embedded"; }
  void Register(Options& options) {
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
};

struct ProgramOptions {
  std::vector<std::string> roles = {"api", "matcher", "worker", "indexer"};
  std::string data_dir = "./postrider-data";
  std::string key_file;
  std::string log_level = "info";
  milliseconds startup_timeout{60'000};

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

  void Register(Options& options) {
    options.AddList("roles", &roles,
                    "What this process does: any of api, matcher, worker, indexer.");
    options.Add("data_dir", &data_dir,
                "Where a process keeps its last snapshot and, while it runs, the backlog; its own, "
                "made when it is missing.");
    options.Add(
        "secrets.key_file", &key_file,
        "The master keys that secrets are sealed with: lines `keyid:base64 of 32 bytes`, "
        "the first one seals; readable by its owner only. It is read again when it changes.");
    options.AddChoice("log.level", &log_level, {"debug", "info", "warn", "error"},
                      "The least level of log lines.");
    options.AddDuration(
        "startup_timeout", &startup_timeout, milliseconds(1'000), std::chrono::hours(24),
        "How long a start waits for the log, Kafka above all, before the process gives up.");
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

  bool Has(absl::string_view role) const {
    for (const std::string& mine : roles) {
      if (mine == role) return true;
    }
    return false;
  }

  std::string EmbeddedLogDirectory() const {
    return log.directory.empty() ? absl::StrCat(data_dir, "/log") : log.directory;
  }

  absl::Status Check() const {
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
      return absl::InvalidArgumentError(
          absl::StrCat("option source.topic_prefix: \"", source, "\" lies within kafka.prefix = \"",
                       kafka.prefix, "\", whose topics are never sources"));
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

  static absl::Status CheckListen(absl::string_view name, const std::string& text) {
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
};

// What is wrong with the options or the command line is told apart by the exit status.
int Fail(const absl::Status& status) {
  std::fprintf(stderr, "postrider: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailure;
}

absl::Status LoadOptions(Options& options, const std::string& config_file,
                         const std::vector<std::string>& flags) {
  std::string file = config_file;
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view text(*entry);
    // Not an option: what `postrider publish` shows to the service.
    if (text.substr(0, kApiKeyVariable.size() + 1) == absl::StrCat(kApiKeyVariable, "=")) continue;
    environment.emplace_back(*entry);
    constexpr absl::string_view kConfig = "POSTRIDER_CONFIG=";
    if (file.empty() && text.substr(0, kConfig.size()) == kConfig) {
      file = std::string(text.substr(kConfig.size()));
    }
  }
  if (!file.empty()) RETURN_IF_ERROR(options.LoadYamlFile(file));
  RETURN_IF_ERROR(options.LoadEnvironment(environment));
  return options.LoadFlags(flags);
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

absl::StatusOr<std::unique_ptr<Log>> OpenEmbeddedLog(const ProgramOptions& options,
                                                     const Clock& clock, Metrics& metrics) {
  EmbeddedLogOptions embedded;
  embedded.directory = options.EmbeddedLogDirectory();
  embedded.memory_bytes = static_cast<size_t>(options.log.memory_bytes);
  embedded.sync_interval = options.log.sync_interval;
  embedded.retention = options.log.retention;
  embedded.reserve_bytes = static_cast<uint64_t>(options.log.reserve_bytes);
  embedded.retention_bytes = options.log.retention_bytes == 0 ? -1 : options.log.retention_bytes;
  ASSIGN_OR_RETURN(std::unique_ptr<EmbeddedLog> log, EmbeddedLog::Open(embedded, clock, metrics));
  return std::unique_ptr<Log>(std::move(log));
}

// What only works on Apache Kafka.
absl::Status NeedsKafka(const ProgramOptions& options, absl::string_view command) {
  if (!options.log.embedded()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("option log.kind: `postrider ", command,
                   "` needs Apache Kafka (log.kind: kafka): the embedded log belongs to the one "
                   "process that serves"));
}

absl::Status UpgradeState(const ProgramOptions& options, const std::string& pool, bool finish) {
  const SystemClock clock;
  Metrics metrics;
  if (!options.log.embedded()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<KafkaLog> log,
                     KafkaLog::Open(options.kafka, clock, metrics));
    return RunStateUpgrade(pool, finish, *log, clock, options.kafka.prefix);
  }
  // Opening makes what is missing.
  RETURN_IF_ERROR(LogInspector::Open(options.EmbeddedLogDirectory()).status());
  ASSIGN_OR_RETURN(const std::unique_ptr<Log> log, OpenEmbeddedLog(options, clock, metrics));
  return RunStateUpgrade(pool, finish, *log, clock, options.kafka.prefix);
}

// Where a listener of ours is, whose option ProgramOptions::Check() has looked at. `port`: the real
// one; 0: that of the option.
HostAndPort ListenerAt(absl::string_view listen, uint32_t port) {
  const size_t colon = listen.rfind(':');
  absl::string_view host = listen.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (port == 0 && !absl::SimpleAtoi(listen.substr(colon + 1), &port)) port = 0;
  return {std::string(host), static_cast<uint16_t>(port)};
}

// Our listeners as options name them, the brokers, the database and the egress proxy: never
// receivers.
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

// Reads network.allow and network.deny as they stand now.
using ReadNetwork = std::function<absl::StatusOr<AddressRulesOptions>()>;

constexpr int16_t kReplication = 3;

// The topics that the roles of this process need, whatever its pool works on.
std::vector<TopicSpec> OwnTopics(const ProgramOptions& options) {
  return {dlq::DeadLetterTopic(options.kafka.prefix, kReplication),
          dlq::ReportTopic(options.kafka.prefix, kReplication),
          ControlTopic(options.kafka.prefix, kReplication)};
}

subscriptions::MatcherTarget TargetOf(const ProgramOptions& options, const PoolPlan& plan) {
  subscriptions::MatcherTarget target;
  target.topic_prefix = options.kafka.prefix;
  target.pool = options.worker.pool;
  target.key_groups = plan.key_groups;
  target.generation = plan.generation;
  return target;
}

// Those that it works on.
std::vector<TopicSpec> PoolTopics(const ProgramOptions& options, const PoolPlan& plan) {
  std::vector<TopicSpec> topics =
      subscriptions::MatcherRole::Topics(TargetOf(options, plan), kReplication);
  for (TopicSpec& topic : delivery::WorkerRole::Topics(
           options.kafka.prefix, GenerationName(options.worker.pool, plan.generation),
           plan.key_groups, kReplication)) {
    topics.push_back(std::move(topic));
  }
  return topics;
}

// A role that works on the topics of one generation of its pool.
template <typename Role>
struct Slot {
  std::unique_ptr<Role> role;
  uint64_t generation = 0;
  bool stopping = false;  // is to be gone when its stop is through
  std::thread disposer;
};

// A process that serves: the parts, the roles, and the loop of the main thread that the snapshot
// loader and the signals live on.
//
//   starting --Kafka answers, first snapshot--> serving --first signal--> draining --done--> end
//                                                  second signal: the end at once
class Service {
 public:
  Service(ProgramOptions options, ReadNetwork read_network)
      : options_(std::move(options)),
        read_network_(std::move(read_network)),
        network_(options_.network),
        snapshot_options_(options_.snapshot) {}

  int Run() {
    if (absl::Status status = Prepare(); !status.ok()) {
      if (stopping_ && absl::IsCancelled(status)) return 0;  // as it was told to
      POSTRIDER_LOG(kError, "cannot start", {"why", status.message()});
      return Fail(status);
    }
    loop_->Run();
    int code = 0;
    if (!failure_.ok()) {
      POSTRIDER_LOG(kError, "stopped", {"why", failure_.message()});
      code = Fail(failure_);
    }
    // Threads that do not end stand on what is destroyed next.
    if (left_behind_ || matcher_.disposer.joinable() || worker_.disposer.joinable()) {
      ::_exit(code);
    }
    return code;
  }

 private:
  bool NeedsSnapshot() const { return options_.Has("matcher") || options_.Has("worker"); }

  absl::Status Prepare() {
    RETURN_IF_ERROR(WatchSignals());
    RETURN_IF_ERROR(options_.database.Complete());
    ASSIGN_OR_RETURN(KeyRing keys, LoadKeys(options_));
    keys_ = std::make_unique<KeyRing>(std::move(keys));
    key_file_ = std::make_unique<KeyFileWatch>(options_.key_file, *keys_);
    network_.own = AddressesAmong(ServersOf(options_));
    ASSIGN_OR_RETURN(rules_, AddressRules::Create(network_));
    ASSIGN_OR_RETURN(proxy_, options_.egress_proxy.Load());
    RETURN_IF_ERROR(RaiseFileLimit());
    RETURN_IF_ERROR(MakeDataDir());
    if (NeedsSnapshot()) RETURN_IF_ERROR(OwnDataDir());
    if (options_.Has("worker")) RETURN_IF_ERROR(PrepareState());
    ASSIGN_OR_RETURN(loop_, EventLoop::Create(clock_));
    RETURN_IF_ERROR(loop_->Watch(signal_fd_, kFdReadable, [this](uint32_t) { OnSignal(); }));
    // A disk that is full is waited for, with the probes.
    if (absl::Status opened = OpenLog(); !absl::IsResourceExhausted(opened)) {
      RETURN_IF_ERROR(opened);
    }
    api::ServerOptions probes;
    probes.listen = options_.probes_listen;
    probes.connections_max = 64;
    ASSIGN_OR_RETURN(
        probes_, api::Server::Start(*loop_, api::MakeProbes(metrics_, [this] { return Ready(); }),
                                    probes, metrics_, "probes", nullptr));
    POSTRIDER_LOG(kInfo, "probes listen", {"port", probes_->port()});
    resolver_ = CreateSystemResolver(SystemResolverOptions(), clock_, metrics_);

    // A database of another schema is refused at once; one that does not answer is waited for, and
    // meanwhile matching and delivery go on from the snapshot's file.
    if (absl::Status version = CheckVersion(options_.database.reader_url);
        absl::IsFailedPrecondition(version)) {
      return version;
    }
    LookAtKeyFile();
    RETURN_IF_ERROR(WaitForLog());
    if (options_.Has("indexer")) RETURN_IF_ERROR(StartIndexer());
    if (options_.Has("api")) RETURN_IF_ERROR(StartApi());
    WaitForOwnAddresses();
    if (api_ != nullptr) api_->AllowTests();
    // Else Run() ends what has begun to stop meanwhile.
    if (NeedsSnapshot() && !stopping_) {
      RETURN_IF_ERROR(FollowControl());
      StartLoader();
    }
    return absl::OkStatus();
  }

  // Before anything is sent. The listeners are there, so that their ports are known.
  void WaitForOwnAddresses() {
    std::vector<HostAndPort> servers = ServersOf(options_);
    servers.push_back(ListenerAt(options_.probes_listen, probes_->port()));
    if (api_ != nullptr) servers.push_back(ListenerAt(options_.api.listen, api_->port()));
    own_addresses_ = std::make_unique<OwnAddresses>(
        *loop_, std::move(servers), [this] { return Brokers(); }, OwnAddresses::SystemLookup(),
        kOwnNamesInterval,
        [this](OwnAddresses::Places places, OwnAddresses::Known known) {
          own_known_ = known == OwnAddresses::Known::kAll;
          if (places == network_.own) return;
          AddressRulesOptions network = network_;
          network.own = std::move(places);
          POSTRIDER_LOG(kInfo, "our own servers are never receivers",
                        {"addresses", network.own.size()});
          const absl::Status set = SetNetwork(std::move(network));
          POSTRIDER_CHECK(set.ok());
        });
    const MonotonicTime until = clock_.Now() + kOwnNamesWait;
    while (!own_known_ && !stopping_ && clock_.Now() < until) loop_->RunOnce(milliseconds(50));
    if (!own_known_) POSTRIDER_LOG(kWarn, "names of our own servers are not known yet");
  }

  // Whoever may be reached no longer is left at once. kInvalidArgument: all stays as it was.
  absl::Status SetNetwork(AddressRulesOptions network) {
    ASSIGN_OR_RETURN(rules_, AddressRules::Create(network));
    network_ = std::move(network);
    if (api_ != nullptr) api_->SetAddressRules(rules_);
    if (worker_.role != nullptr) worker_.role->SetAddressRules(rules_);
    return absl::OkStatus();
  }

  void ReadNetworkAgain() {
    absl::StatusOr<AddressRulesOptions> read = read_network_();
    absl::Status status = read.status();
    if (status.ok()) {
      if (read->allow == network_.allow && read->deny == network_.deny) {
        POSTRIDER_LOG(kInfo, "the address lists were read again: they are as they were");
        return;
      }
      read->own = network_.own;
      status = SetNetwork(*std::move(read));
    }
    if (!status.ok()) {
      POSTRIDER_LOG(kError, "the address lists are left as they were", {"why", status.message()});
      return;
    }
    POSTRIDER_LOG(kInfo, "the address lists have changed: all connections are made anew",
                  {"allow", network_.allow.size()}, {"deny", network_.deny.size()});
  }

  absl::Status OpenLog() {
    if (options_.log.embedded()) {
      ASSIGN_OR_RETURN(log_, OpenEmbeddedLog(options_, clock_, metrics_));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(std::unique_ptr<KafkaLog> kafka,
                     KafkaLog::Open(options_.kafka, clock_, metrics_));
    kafka_ = kafka.get();
    log_ = std::move(kafka);
    return absl::OkStatus();
  }

  // What brokers say of themselves.
  std::vector<HostAndPort> Brokers() const {
    std::vector<HostAndPort> brokers;
    if (kafka_ == nullptr) return brokers;
    for (auto& [host, port] : kafka_->Brokers(kBrokersWait)) brokers.push_back({host, port});
    return brokers;
  }

  absl::Status FollowControl() {
    ASSIGN_OR_RETURN(control_,
                     ControlFollower::Open(*log_, *loop_, ControlTopicName(options_.kafka.prefix),
                                           [this] { OnControl(); }));
    return absl::OkStatus();
  }

  bool BeingRestored() const {
    const std::shared_ptr<const ControlState> control = control_->state();
    return control != nullptr && control->restores.contains(options_.worker.pool);
  }

  // Only when the topic was read to its end.
  PoolPlan Plan() const {
    return PlanFor(*control_->state(), options_.worker.pool,
                   static_cast<int32_t>(options_.worker.key_groups), clock_.Wall());
  }

  void OnControl() {
    if (stopping_) return;
    if (worker_.role != nullptr && BeingRestored()) {
      // It joined while the restore looked whether anybody was there.
      failure_ = absl::UnavailableError(absl::StrCat(
          "pool ", options_.worker.pool, " is being restored: no worker of it may run meanwhile"));
      POSTRIDER_LOG(kError, "draining", {"why", failure_.message()});
      return Stop();
    }
    FollowPlan();
  }

  // What cannot be written would be missed only when Postgres is away.
  absl::Status MakeDataDir() const {
    const char* dir = options_.data_dir.c_str();
    struct stat status = {};
    if (::mkdir(dir, 0700) != 0 && errno != EEXIST) return DataDirFault("cannot be made");
    if (::stat(dir, &status) != 0) return DataDirFault("cannot be looked at");
    if (!S_ISDIR(status.st_mode)) {
      errno = ENOTDIR;
      return DataDirFault("cannot be used");
    }
    if (::access(dir, R_OK | W_OK | X_OK) != 0) return DataDirFault("cannot be written to");
    return absl::OkStatus();
  }
  absl::Status DataDirFault(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("option data_dir: \"", options_.data_dir, "\" ",
                                                   what, ": ", std::strerror(errno)));
  }

  // Two processes would overwrite each other's snapshot and state.
  absl::Status OwnDataDir() {
    absl::StatusOr<std::unique_ptr<ProcessDirectory>> owned =
        ProcessDirectory::Acquire(options_.data_dir, ProcessDirectory::Contents::kKept);
    if (absl::IsFailedPrecondition(owned.status()) && options_.log.embedded()) {
      return WithOption("data_dir", absl::FailedPreconditionError(absl::StrCat(
                                        owned.status().message(),
                                        "; with the embedded log one process is all there is: for "
                                        "more use Apache Kafka (log.kind: kafka)")));
    }
    if (!owned.ok()) return WithOption("data_dir", owned.status());
    data_dir_ = *std::move(owned);
    return absl::OkStatus();
  }

  static absl::Status WithOption(absl::string_view option, const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat("option ", option, ": ", status.message()));
  }

  // What the stores of the worker's tasks share.
  absl::Status PrepareState() {
    if (options_.worker.state_store != "rocksdb") return absl::OkStatus();
    std::string path = options_.worker.state_directory;
    if (path.empty()) path = absl::StrCat(options_.data_dir, "/state");
    absl::StatusOr<std::unique_ptr<ProcessDirectory>> owned =
        ProcessDirectory::Acquire(path, ProcessDirectory::Contents::kWiped);
    if (!owned.ok()) return WithOption("state.directory", owned.status());
    state_dir_ = *std::move(owned);
    ASSIGN_OR_RETURN(const delivery::MemoryBudget memory, options_.worker.Memory());
    RocksdbSharedOptions shared;
    shared.memory_bytes = static_cast<size_t>(memory.backlog_store);
    rocksdb_ = RocksdbShared::Create(shared);
    return absl::OkStatus();
  }

  static absl::StatusOr<std::unique_ptr<StateStore>> OpenHeap(const TopicPartition&,
                                                              uint64_t bytes_max) {
    HeapStoreOptions options;
    options.bytes_max = bytes_max;
    return MakeHeapStore(options);
  }

  // A directory for each store that was ever opened: one shard may still close a task's store when
  // the next one opens it.
  absl::StatusOr<std::unique_ptr<StateStore>> OpenRocksdb(const TopicPartition& tp,
                                                          uint64_t bytes_max) {
    RocksdbStoreOptions options;
    options.directory = absl::StrCat(state_dir_->path(), "/", tp.partition, ".", stores_opened_++);
    options.bytes_max = bytes_max;
    return MakeLazyStore(
        clock_, [shared = rocksdb_.get(), options] { return OpenRocksdbStore(*shared, options); });
  }

  delivery::WorkerParts MakeWorkerParts() {
    delivery::WorkerParts parts{*log_,    clock_,   metrics_, *keys_,  *resolver_,
                                OpenHeap, OpenHeap, nullptr,  nullptr, proxy_};
    parts.open_files_max = open_files_max_;
    parts.other_files = other_files_;
    parts.trim_limit =
        [this, group = delivery::WorkerRole::Group(options_.kafka.prefix, options_.worker.pool)](
            const TopicPartition& tp) { return control_->TrimLimit(group, tp); };
    if (rocksdb_ == nullptr) return parts;
    parts.open_backlog = [this](const TopicPartition& tp, uint64_t bytes_max) {
      return OpenRocksdb(tp, bytes_max);
    };
    parts.backlog_memory = [this] { return rocksdb_->memory_bytes(); };
    parts.disk_free = [this]() -> absl::optional<uint64_t> {
      struct statvfs disk = {};
      if (::statvfs(state_dir_->path().c_str(), &disk) != 0) return absl::nullopt;
      return uint64_t{disk.f_bavail} * disk.f_frsize;
    };
    parts.set_disk_tight = [this](bool tight) { rocksdb_->SetDiskTight(tight); };
    return parts;
  }

  absl::Status WatchSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);  // a limit of the file size is an error of the write
    signal_fd_ = ::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signal_fd_ < 0) return absl::InternalError("cannot watch signals");
    return absl::OkStatus();
  }

  // Every receiver kept alive is a file.
  absl::Status RaiseFileLimit() {
    open_files_max_ = RaiseOpenFileLimit();
    if (options_.Has("api")) other_files_ = options_.api.connections_max + kTesterFiles;
    if (!options_.Has("worker")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const delivery::MemoryBudget memory, options_.worker.Memory());
    ASSIGN_OR_RETURN(const int64_t connections,
                     options_.worker.IdleConnections(memory, open_files_max_, other_files_));
    if (connections < memory.connections_max) {
      POSTRIDER_LOG(kWarn, "few open files allowed, so fewer connections are kept",
                    {"limit", open_files_max_}, {"kept_per_shard", connections},
                    {"memory_has_room_for", memory.connections_max});
    }
    return absl::OkStatus();
  }

  absl::Status WaitForLog() {
    // A call holds the loop up: none is long, so that the probes and the signals are served.
    constexpr milliseconds kPing{1'000};
    constexpr milliseconds kEnsure{2'000};
    const MonotonicTime until = clock_.Now() + options_.startup_timeout;
    while (true) {
      absl::Status status = log_ == nullptr ? OpenLog() : absl::OkStatus();
      if (status.ok()) status = log_->Ping(kPing);
      if (status.ok()) status = log_->EnsureTopics(OwnTopics(options_), kEnsure);
      if (status.ok()) status = EnsurePool(kEnsure);
      if (status.ok()) return status;
      const bool retry = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                         absl::IsResourceExhausted(status);
      if (!retry || clock_.Now() >= until) return status;
      POSTRIDER_LOG(kWarn, "waiting for the log", {"why", status.message()});
      // Serves the probes and the signals meanwhile.
      loop_->RunOnce(milliseconds(200));
      if (stopping_) return absl::CancelledError("stopped while waiting for the log");
    }
  }

  // The first start of a pool makes its topics; a rescale makes those of later generations.
  absl::Status EnsurePool(milliseconds timeout) {
    ASSIGN_OR_RETURN(const ControlState control,
                     ReadControl(*log_, clock_, ControlTopicName(options_.kafka.prefix)));
    if (control.pools_unreadable.contains(options_.worker.pool)) return absl::OkStatus();
    const PoolPlan plan = PlanFor(control, options_.worker.pool,
                                  static_cast<int32_t>(options_.worker.key_groups), clock_.Wall());
    return log_->EnsureTopics(PoolTopics(options_, plan), timeout);
  }

  ConnectionOptions Database(const std::string& url, std::string check_sql) const {
    ConnectionOptions connection;
    connection.url = url;
    connection.application_name = absl::StrCat("postrider ", absl::StrJoin(options_.roles, ","));
    connection.check_sql = std::move(check_sql);
    return connection;
  }

  absl::Status StartIndexer() {
    ASSIGN_OR_RETURN(indexer_, dlq::IndexerRole::Start(
                                   *log_, clock_, metrics_, options_.indexer, options_.kafka.prefix,
                                   Database(options_.database.indexer_url, VersionCheckSql())));
    return absl::OkStatus();
  }

  absl::Status StartApi() {
    api::ApiRoleParts parts{*log_, clock_, metrics_, *keys_};
    parts.make_tester = [this](EventLoop& loop) {
      return MakeEndpointTester(
          loop, {*resolver_, *keys_, metrics_, rules_, proxy_, options_.worker.ca_file});
    };
    api::PublishOptions publish;
    publish.topic_prefix = options_.matcher.decoder.topic_prefix;
    publish.own_prefix = options_.kafka.prefix;
    publish.event_bytes_max = options_.matcher.decoder.bytes_max;
    ASSIGN_OR_RETURN(
        api_, api::ApiRole::Start(parts, options_.api,
                                  Database(options_.database.api_url, ApiRoleCheckSql()), publish,
                                  rules_));
    POSTRIDER_LOG(kInfo, "api listens", {"port", api_->port()});
    return absl::OkStatus();
  }

  void StartLoader() {
    snapshot_options_.file = absl::StrCat(options_.data_dir, "/snapshot");
    uint64_t seed = 0;
    FillRandom(&seed, sizeof seed);
    loader_ = std::make_unique<subscriptions::SnapshotLoader>(
        *loop_, Database(options_.database.reader_url, VersionCheckSql()), snapshot_options_,
        metrics_, seed, [this](std::shared_ptr<const subscriptions::Snapshot> snapshot) {
          OnSnapshot(std::move(snapshot));
        });
  }

  void OnSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot) {
    snapshot_confirmed_ms_ = MillisSinceEpoch(snapshot->confirmed_at());
    if (snapshot_ == nullptr && options_.Has("worker")) {
      if (absl::Status status = CheckKeys(*snapshot); !status.ok()) return Fatal(std::move(status));
    }
    if (matcher_.role != nullptr) matcher_.role->SetSnapshot(snapshot);
    if (worker_.role != nullptr) worker_.role->SetSnapshot(snapshot);
    snapshot_ = std::move(snapshot);
    FollowPlan();
  }

  void Fatal(absl::Status why) {
    failure_ = std::move(why);
    loop_->Stop();
  }

  // Has the roles do what the pool's plan says. They need a snapshot and what the control topic
  // says; called again at every change of either.
  void FollowPlan() {
    if (stopping_ || snapshot_ == nullptr || control_->state() == nullptr) return;
    const PoolPlan plan = Plan();
    if (plan.why != plan_.why) {
      POSTRIDER_LOG(kInfo, plan.why.empty() ? "the pool is at work" : "the pool is not at work",
                    {"pool", options_.worker.pool}, {"generation", plan.generation},
                    {"key_groups", plan.key_groups}, {"why", plan.why});
    }
    plan_ = plan;
    if (plan.again_at) LookAgainIn(*plan.again_at - clock_.Wall());
    absl::Status status = FollowWithMatcher();
    if (status.ok()) status = FollowWithWorker();
    if (!status.ok()) Fatal(std::move(status));
  }

  // Follows the plan again after a while: as soon as was asked for last.
  void LookAgainIn(Duration delay) {
    loop_->CancelTimer(plan_timer_);
    plan_timer_ = loop_->CallAfter(delay, [this] { FollowPlan(); });
  }

  absl::Status FollowWithMatcher() {
    if (!options_.Has("matcher") || matcher_.stopping) return absl::OkStatus();
    if (matcher_.role != nullptr) {
      if (!plan_.match || matcher_.generation != plan_.generation) StopRole(matcher_);
      return absl::OkStatus();
    }
    if (!plan_.match) return absl::OkStatus();
    ASSIGN_OR_RETURN(matcher_.role, subscriptions::MatcherRole::Start(
                                        *log_, clock_, metrics_, options_.matcher,
                                        TargetOf(options_, plan_), snapshot_options_.age_max));
    matcher_.generation = plan_.generation;
    matcher_.role->SetSnapshot(snapshot_);
    return absl::OkStatus();
  }

  absl::Status FollowWithWorker() {
    if (!options_.Has("worker") || worker_.stopping) return absl::OkStatus();
    const bool run = plan_.work != PoolPlan::Work::kStop;
    if (worker_.role != nullptr) {
      const bool go_on = run && worker_.generation == plan_.generation;
      SetDraining(!go_on || plan_.work == PoolPlan::Work::kDrain);
      if (!go_on) StopWorkerWhenIdle();
      return absl::OkStatus();
    }
    if (!run) return absl::OkStatus();
    // While the pool is being restored it waits.
    if (BeingRestored()) {
      POSTRIDER_LOG(kWarn, "the worker waits until its pool is restored",
                    {"pool", options_.worker.pool});
      return absl::OkStatus();
    }
    delivery::WorkerOptions options = options_.worker;
    options.generation = plan_.generation;
    options.key_groups = plan_.key_groups;
    ASSIGN_OR_RETURN(worker_.role,
                     delivery::WorkerRole::Start(MakeWorkerParts(), options, options_.kafka.prefix,
                                                 snapshot_options_.age_max, rules_, snapshot_));
    worker_.generation = plan_.generation;
    draining_since_ = absl::nullopt;
    SetDraining(plan_.work == PoolPlan::Work::kDrain);
    if (!std::exchange(looks_at_memory_, true)) LookAtMemory();
    return absl::OkStatus();
  }

  void SetDraining(bool draining) {
    if (draining == draining_since_.has_value()) return;
    if (draining) {
      draining_since_ = clock_.Now();
    } else {
      draining_since_ = absl::nullopt;
    }
    worker_.role->SetDraining(draining);
  }

  // It begins none any more, but its shards must have heard of that.
  void StopWorkerWhenIdle() {
    const Duration waited = clock_.Now() - *draining_since_;
    const bool idle = waited >= 2 * kInFlightLook && worker_.role->requests_in_flight() == 0;
    if (idle || waited >= kInFlightWait) return StopRole(worker_);
    LookAgainIn(kInFlightLook);
  }

  template <typename Role>
  void StopRole(Slot<Role>& slot) {
    slot.stopping = true;
    slot.role->Stop([this, &slot] {
      EventLoop::Callback gone = [this, &slot] { Dispose(slot); };
      POSTRIDER_CHECK(loop_->Post(std::move(gone)));
    });
  }

  // Not on this thread: librdkafka 2.0.2 does not always let go of a consumer whose topic was
  // deleted while it was a member of its group, as a process finds that hung through a rescale.
  template <typename Role>
  void Dispose(Slot<Role>& slot) {
    const TimerId timer = loop_->CallAfter(kDisposeWait, [this, &slot] {
      POSTRIDER_LOG(kError, "a role's threads do not end: they stay until the process ends");
      left_behind_ = true;
      slot.disposer.detach();
      Disposed(slot);
    });
    slot.disposer = std::thread([this, &slot, timer, role = std::move(slot.role)]() mutable {
      role.reset();
      EventLoop::Callback disposed = [this, &slot, timer] {
        if (!loop_->CancelTimer(timer)) return;
        slot.disposer.join();
        Disposed(slot);
      };
      POSTRIDER_CHECK(loop_->Post(std::move(disposed)));
    });
  }
  template <typename Role>
  void Disposed(Slot<Role>& slot) {
    slot.stopping = false;
    if (stopping_) return PartStopped();
    FollowPlan();
  }

  // Why a role is not at work that should be, if its pool says so.
  template <typename Role>
  absl::Status StatusOf(const Slot<Role>& slot) const {
    if (!plan_.why.empty()) return absl::UnavailableError(plan_.why);
    if (slot.stopping) return absl::UnavailableError("it changes to other topics");
    return StatusOf(slot.role.get());
  }
  absl::Status WorkerStatus() const {
    if (worker_.role == nullptr && control_ != nullptr && BeingRestored()) {
      return absl::UnavailableError(absl::StrCat(
          "pool ", options_.worker.pool,
          " is being restored: it starts when `postrider savepoint restore` has ended"));
    }
    return StatusOf(worker_);
  }

  void LookAtMemory() {
    if (stopping_) return;
    if (worker_.role != nullptr && !worker_.stopping) worker_.role->LookAtMemory();
    loop_->CallAfter(kMemoryInterval, [this] { LookAtMemory(); });
  }

  // While a key is changed (secrets_command.h) nobody is restarted.
  void LookAtKeyFile() {
    key_file_->Look();
    loop_->CallAfter(kKeyFileInterval, [this] { LookAtKeyFile(); });
  }

  // With a key file that opens no secret at all, every message would end as a dead letter.
  absl::Status CheckKeys(const subscriptions::Snapshot& snapshot) const {
    absl::Status failure;
    for (const auto& endpoint : snapshot.endpoints()) {
      failure = subscriptions::OpenEndpointSecrets(*keys_, endpoint->customer, endpoint->id,
                                                   endpoint->secrets_sealed)
                    .status();
      if (failure.ok()) return failure;
    }
    if (failure.ok()) return failure;
    return absl::FailedPreconditionError(
        absl::StrCat("option secrets.key_file: ", options_.key_file,
                     " opens none of the secrets in the database: ", failure.message()));
  }

  // Ready: every role of this process is at work, with a snapshot that may be used.
  std::vector<api::Readiness> Ready() {
    std::vector<api::Readiness> parts;
    parts.push_back({"running", stopping_ ? absl::UnavailableError("the process is stopping")
                                          : absl::OkStatus()});
    if (NeedsSnapshot()) parts.push_back({"snapshot", SnapshotStatus()});
    if (options_.Has("worker")) parts.push_back({"worker", WorkerStatus()});
    if (options_.Has("matcher")) parts.push_back({"matcher", StatusOf(matcher_)});
    if (options_.Has("indexer")) parts.push_back({"indexer", StatusOf(indexer_.get())});
    if (options_.Has("api")) {
      parts.push_back(
          {"api", api_ != nullptr ? api_->health() : absl::UnavailableError("it has not started")});
    }
    return parts;
  }

  absl::Status SnapshotStatus() const {
    const auto age = milliseconds(MillisSinceEpoch(clock_.Wall()) - snapshot_confirmed_ms_);
    if (snapshot_confirmed_ms_ > 0 && age <= snapshot_options_.age_max) return absl::OkStatus();
    return absl::UnavailableError("there is no snapshot of the database that is young enough");
  }

  template <typename Role>
  static absl::Status StatusOf(const Role* role) {
    if (role == nullptr) return absl::UnavailableError("it has not started");
    const JobStatus status = role->status();
    if (!status.log_reachable) return absl::UnavailableError("the log does not answer");
    if (status.shards_assigned < status.shards) {
      return absl::UnavailableError(absl::StrCat(status.shards_assigned, " of ", status.shards,
                                                 " shards have their share of the partitions"));
    }
    if (status.tasks_restoring > 0) {
      return absl::UnavailableError(
          absl::StrCat(status.tasks_restoring, " tasks are being restored"));
    }
    if (status.tasks_failed > 0) {
      return absl::UnavailableError(
          absl::StrCat(status.tasks_failed, " tasks have failed and are being restarted"));
    }
    return absl::OkStatus();
  }

  void OnSignal() {
    signalfd_siginfo info{};
    while (::read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo == SIGHUP) {
        ReadNetworkAgain();
        continue;
      }
      if (stopping_) {
        POSTRIDER_LOG(kWarn, "second signal: stopping hard");
        // What is not committed is repeated by whoever takes over.
        ::_exit(kExitFailure);
      }
      Stop();
    }
  }

  void Stop() {
    stopping_ = true;
    POSTRIDER_LOG(kInfo, "draining");
    // From the source to the receivers, so that what is in between still gets out.
    to_stop_ = 1;
    const auto part = [this](auto& role) {
      if (role == nullptr) return;
      ++to_stop_;
      role->Stop([this] { PartStopped(); });
    };
    const auto slot = [this](auto& role) {
      if (role.role == nullptr && !role.stopping) return;
      ++to_stop_;
      if (!role.stopping) StopRole(role);
    };
    part(api_);
    slot(matcher_);
    slot(worker_);
    part(indexer_);
    PartStopped();
  }

  void PartStopped() {
    if (--to_stop_ > 0) return;
    POSTRIDER_LOG(kInfo, "stopped");
    loop_->Stop();
  }

  ProgramOptions options_;
  const ReadNetwork read_network_;
  AddressRulesOptions network_;  // in force
  subscriptions::SnapshotLoaderOptions snapshot_options_;
  SystemClock clock_;
  Metrics metrics_;
  int signal_fd_ = -1;
  std::unique_ptr<KeyRing> keys_;
  std::unique_ptr<KeyFileWatch> key_file_;
  std::shared_ptr<const AddressRules> rules_;
  std::shared_ptr<const EgressProxy> proxy_;
  int64_t open_files_max_ = 0;
  int64_t other_files_ = 0;  // those of the api
  std::unique_ptr<ProcessDirectory> data_dir_;
  std::unique_ptr<ProcessDirectory> state_dir_;
  std::unique_ptr<RocksdbShared> rocksdb_;
  std::atomic<uint64_t> stores_opened_{0};
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Log> log_;
  KafkaLog* kafka_ = nullptr;  // log_, when it is that
  std::unique_ptr<ControlFollower> control_;
  std::unique_ptr<OwnAddresses> own_addresses_;
  bool own_known_ = false;
  std::unique_ptr<Resolver> resolver_;
  std::unique_ptr<api::Server> probes_;
  std::unique_ptr<dlq::IndexerRole> indexer_;
  std::unique_ptr<api::ApiRole> api_;
  Slot<delivery::WorkerRole> worker_;
  Slot<subscriptions::MatcherRole> matcher_;
  std::unique_ptr<subscriptions::SnapshotLoader> loader_;
  std::shared_ptr<const subscriptions::Snapshot> snapshot_;  // the newest
  PoolPlan plan_;                                            // followed last
  TimerId plan_timer_ = 0;
  absl::optional<MonotonicTime> draining_since_;  // of the worker
  bool looks_at_memory_ = false;
  bool left_behind_ = false;  // threads of a role
  int64_t snapshot_confirmed_ms_ = 0;
  absl::Status failure_;
  bool stopping_ = false;
  std::atomic<int> to_stop_{0};
};

int Serve(const ProgramOptions& options, ReadNetwork read_network) {
  POSTRIDER_LOG(kInfo, "postrider starts", {"version", POSTRIDER_VERSION},
                {"roles", absl::StrJoin(options.roles, ",")});
  return Service(options, std::move(read_network)).Run();
}

int RunMigrate(ProgramOptions options) {
  if (absl::Status status = options.database.Complete(); !status.ok()) return Fail(status);
  const absl::StatusOr<MigrateReport> report = Migrate(options.database);
  if (!report.ok()) return Fail(report.status());
  for (const std::string& name : report->applied) std::printf("applied %s\n", name.c_str());
  for (const std::string& role : report->roles_created) {
    std::printf("created role %s\n", role.c_str());
  }
  std::printf("the schema is at version %d\n", report->to);
  return 0;
}

int CreateKey(ProgramOptions options, const std::string& scope, const std::string& name) {
  if (scope != "operator") {
    return Fail(absl::InvalidArgumentError(
        "--scope: only operator keys are made here; the others by POST /v1/keys"));
  }
  if (absl::Status status = options.database.Complete(); !status.ok()) return Fail(status);
  absl::StatusOr<std::unique_ptr<BlockingSession>> session =
      BlockingSession::Open(options.database.api_url);
  if (!session.ok()) return Fail(session.status());
  const api::NewKey made = api::MakeKey();
  subscriptions::ApiKey key;
  key.key_id = made.key_id;
  key.secret_sha256 = made.secret_sha256;
  key.scope = subscriptions::KeyScope::kOperator;
  key.name = name;
  const absl::StatusOr<subscriptions::ApiKey> inserted =
      subscriptions::InsertKeyBlocking(**session, key);
  if (!inserted.ok()) return Fail(inserted.status());
  std::printf("%s\n", made.text.c_str());
  return 0;
}

int CheckConfig(ProgramOptions options) {
  SystemClock clock;
  Metrics metrics;
  if (absl::Status status = options.database.Complete(); !status.ok()) return Fail(status);
  if (const auto keys = LoadKeys(options); !keys.ok()) return Fail(keys.status());
  if (const auto proxy = options.egress_proxy.Load(); !proxy.ok()) return Fail(proxy.status());
  // The embedded log is not opened: it may be in use.
  if (!options.log.embedded()) {
    const auto log = KafkaLog::Open(options.kafka, clock, metrics);
    if (!log.ok()) return Fail(log.status());
  }
  std::printf("the configuration is fine\n");
  return 0;
}

// `postrider savepoint VERB`, and what each takes.
template <typename Add>
std::vector<std::pair<CLI::App*, SavepointCommand::Verb>> AddSavepointVerbs(
    CLI::App& app, const Add& add, SavepointCommand& command) {
  using Verb = SavepointCommand::Verb;
  CLI::App* parent =
      app.add_subcommand("savepoint", "The durable state of a pool, kept and put back");
  parent->require_subcommand(1);
  const auto pool = [&command](CLI::App* verb) {
    verb->add_option("--pool", command.pool, "Default: worker.pool");
  };
  const auto directory = [&command](CLI::App* verb) {
    verb->add_option("directory", command.directory, "Where the savepoint is")->required();
  };
  CLI::App* create = add(parent, "create", "Makes one; the workers go on undisturbed");
  pool(create);
  create->add_option("--to", command.directory, "A new directory")->required();
  create->add_option("--keep", command.keep, "How long its records are held, such as 48h (24h)");
  CLI::App* inspect = add(parent, "inspect", "Says what a savepoint is of");
  directory(inspect);
  CLI::App* verify = add(parent, "verify", "Reads all of a savepoint and says whether it is whole");
  directory(verify);
  CLI::App* restore = add(parent, "restore", "Puts a pool whose workers are stopped back to it");
  directory(restore);
  pool(restore);
  restore->add_flag("--accept-loss", command.accept_loss,
                    "Go on though the log does not reach back to the savepoint");
  CLI::App* abandon = add(parent, "abandon", "Lets workers start though a restore has not ended");
  pool(abandon);
  CLI::App* drop = add(parent, "drop", "Holds a savepoint's records no longer");
  drop->add_option("id", command.id, "As `list` prints it")->required();
  CLI::App* list = add(parent, "list", "Says whose records are held");
  return {{create, Verb::kCreate},   {inspect, Verb::kInspect}, {verify, Verb::kVerify},
          {restore, Verb::kRestore}, {abandon, Verb::kAbandon}, {drop, Verb::kDrop},
          {list, Verb::kList}};
}

// `postrider secrets VERB`.
template <typename Add>
std::vector<std::pair<CLI::App*, SecretsCommand::Verb>> AddSecretsVerbs(CLI::App& app,
                                                                        const Add& add,
                                                                        SecretsCommand& command) {
  using Verb = SecretsCommand::Verb;
  CLI::App* parent = app.add_subcommand("secrets", "The master keys, changed while all goes on");
  parent->require_subcommand(1);
  CLI::App* rotate =
      add(parent, "rotate", "A new key seals all secrets; where every process reads this key file");
  rotate->add_option("--wait", command.wait,
                     "How long processes get to read the file between the steps (5s)");
  CLI::App* add_key = add(parent, "add-key", "Adds a new key, which opens only; prints its id");
  CLI::App* use_key = add(parent, "use-key", "Seals with a key that every process has");
  use_key->add_option("id", command.key_id, "As `add-key` printed it")->required();
  CLI::App* reseal = add(parent, "reseal", "Seals anew what another key has sealed");
  return {{rotate, Verb::kRotate},
          {add_key, Verb::kAddKey},
          {use_key, Verb::kUseKey},
          {reseal, Verb::kReseal}};
}

// `postrider log VERB`.
template <typename Add>
std::vector<std::pair<CLI::App*, LogCommand::Verb>> AddLogVerbs(CLI::App& app, const Add& add,
                                                                LogCommand& command) {
  using Verb = LogCommand::Verb;
  CLI::App* parent = app.add_subcommand(
      "log", "The embedded log of a service that is stopped (`export --wait`: of one that runs)");
  parent->require_subcommand(1);
  CLI::App* list = add(parent, "list", "Says what topics it has and where groups are");
  CLI::App* read = add(parent, "read", "Prints records of a partition");
  read->add_option("--topic", command.topic, "Its whole name")->required();
  read->add_option("--partition", command.partition, "Its number (0)");
  read->add_option("--from", command.from, "The first offset (where the partition begins)");
  read->add_option("--max", command.records_max, "So many records at most (all)");
  CLI::App* verify = add(parent, "verify", "Reads all of it and tells of each damage");
  CLI::App* move = add(parent, "export", "Copies it to Kafka; it may be interrupted and run again");
  move->add_option("--to", command.to, "Addresses of Kafka, host:port,... (kafka.brokers)");
  move->add_option("--fillers-max", command.fillers_max,
                   "Records that only keep the place of what is gone (200000000)");
  move->add_flag("--wait", command.wait,
                 "Copy while the service runs, and end when that has been stopped");
  for (CLI::App* verb : {list, read, verify, move}) {
    verb->add_flag("--json", command.json, "As JSON; `read` prints a document on each line");
  }
  return {{list, Verb::kList}, {read, Verb::kRead}, {verify, Verb::kVerify}, {move, Verb::kExport}};
}

// `postrider publish`.
CLI::App* AddPublish(CLI::App* command, PublishCommand& publish) {
  command->add_option("file", publish.file, "Lines of JSON, each one event (standard input)");
  command->add_option("--topic", publish.topic,
                      "The topic of events that name no type, with or without "
                      "source.topic_prefix");
  command->add_option("--url", publish.url, "Where the service is (api.listen)");
  command->add_option(
      "--key-file", publish.key_file,
      absl::StrCat("A file with a publisher's key (", kApiKeyVariable, " in the environment)"));
  command->add_option("--in-flight", publish.in_flight,
                      "Requests at once, 1 to 16; more than one gives up the lines' order (1)");
  command->add_option("--give-up-after", publish.give_up_after,
                      "How long a service that does not take events is tried again (5m)");
  command->add_flag("--fail-fast", publish.fail_fast, "Stop at the first line that is refused");
  return command;
}

int RunSecrets(ProgramOptions options, const SecretsCommand& command) {
  absl::Status status = options.database.Complete();
  if (status.ok()) status = LoadKeys(options).status();
  if (status.ok()) status = RunSecretsCommand(command, options.key_file, options.database.api_url);
  return status.ok() ? 0 : Fail(status);
}

int Main(int argc, char** argv) {
  // Debian's Abseil is built to look for deadlocks at each lock, as no other program's is.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  CLI::App app("Delivers events from Kafka to customers' HTTP endpoints.", "postrider");
  app.set_version_flag("--version", std::string("postrider ") + POSTRIDER_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Every option of `postrider config reference` may be given as a flag "
      "(--section.name=value), as POSTRIDER_SECTION__NAME or in the YAML file of --config.");
  std::string config_file;
  std::string scope;
  std::string name;

  const auto add = [&config_file](CLI::App* parent, const std::string& word,
                                  const std::string& help) {
    CLI::App* command = parent->add_subcommand(word, help);
    command->add_option("--config", config_file, "YAML file with options");
    command->allow_extras();
    return command;
  };
  CLI::App* serve = add(&app, "serve", "Runs the roles of `--roles` (all by default)");
  CLI::App* migrate = add(&app, "migrate", "Brings the database to this version's schema");
  CLI::App* keys = app.add_subcommand("keys", "API keys");
  keys->require_subcommand(1);
  CLI::App* create = add(keys, "create", "Makes an operator's key and prints it once");
  create->add_option("--scope", scope, "operator")->required();
  create->add_option("--name", name, "What it is for");
  SecretsCommand secrets;
  const std::vector<std::pair<CLI::App*, SecretsCommand::Verb>> secrets_verbs =
      AddSecretsVerbs(app, add, secrets);
  CLI::App* config = app.add_subcommand("config", "The configuration");
  config->require_subcommand(1);
  CLI::App* check = add(config, "check", "Says whether the options are valid");
  CLI::App* reference = add(config, "reference", "Prints every option, as Markdown");

  SavepointCommand savepoint;
  const std::vector<std::pair<CLI::App*, SavepointCommand::Verb>> savepoint_verbs =
      AddSavepointVerbs(app, add, savepoint);
  CLI::App* state = app.add_subcommand("state", "What workers keep");
  state->require_subcommand(1);
  CLI::App* upgrade = add(state, "upgrade", "Says which states can be written in a newer version");
  std::string pool;
  bool finish = false;
  upgrade->add_option("--pool", pool, "Default: worker.pool");
  upgrade->add_flag("--finish", finish,
                    "Have it written from the workers' next start on: no way back to the binary "
                    "before");

  RescaleCommand rescale;
  CLI::App* rescaling = add(&app, "rescale", "Gives a pool another number of key groups");
  rescaling->add_option("--key-groups", rescale.key_groups, "So many");
  rescaling->add_option("--pool", rescale.pool, "Default: worker.pool");
  rescaling->add_flag("--keep-old", rescale.keep_old, "Leave the topics of before where they are");
  rescaling->add_flag("--abort", rescale.abort,
                      "Let a pool whose rescale has died while it drained go on as it was");
  rescaling->add_option("--drain-wait", rescale.drain_wait,
                        "How long the pool may take to come to rest (5m)");
  rescaling->add_option("--lease", rescale.lease,
                        "How long the pool waits for a command that has died while it drained "
                        "(30s)");
  rescaling->add_option("--spool", rescale.spool,
                        "A directory with room for a key group's backlog (TMPDIR, /tmp)");

  LogCommand log_command;
  const std::vector<std::pair<CLI::App*, LogCommand::Verb>> log_verbs =
      AddLogVerbs(app, add, log_command);
  PublishCommand publish;
  CLI::App* publishing = AddPublish(
      add(&app, "publish", "Sends events from a file or standard input to a running service"),
      publish);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kExitUsage;
  }

  Options options;
  ProgramOptions program;
  program.Register(options);
  if (*reference) {
    std::printf("%s", options.Reference().c_str());
    return 0;
  }
  CLI::App* chosen = nullptr;
  for (CLI::App* command : {serve, migrate, create, check, upgrade, rescaling, publishing}) {
    if (*command) chosen = command;
  }
  bool is_savepoint = false;
  for (const auto& [command, verb] : savepoint_verbs) {
    if (!*command) continue;
    chosen = command;
    savepoint.verb = verb;
    is_savepoint = true;
  }
  bool is_log = false;
  for (const auto& [command, verb] : log_verbs) {
    if (!*command) continue;
    chosen = command;
    log_command.verb = verb;
    is_log = true;
  }
  bool is_secrets = false;
  for (const auto& [command, verb] : secrets_verbs) {
    if (!*command) continue;
    chosen = command;
    secrets.verb = verb;
    is_secrets = true;
  }
  absl::Status status = LoadOptions(options, config_file, chosen->remaining());
  if (status.ok()) status = program.Check();
  if (!status.ok()) {
    Fail(status);
    return kExitUsage;
  }
  LogLevel level = LogLevel::kInfo;
  ParseLogLevel(program.log_level, &level);
  StartLog(level);

  if (*publishing) {
    publish.topic_prefix = program.matcher.decoder.topic_prefix;
    publish.listen = program.api.listen;
    publish.ca_file = program.worker.ca_file;
    const absl::StatusOr<bool> all = RunPublishCommand(publish);
    if (!all.ok()) return Fail(all.status());
    return *all ? 0 : kExitFailure;
  }
  if (is_log) {
    log_command.directory = program.EmbeddedLogDirectory();
    const absl::StatusOr<bool> whole = RunLogCommand(log_command, program.kafka);
    if (!whole.ok()) return Fail(whole.status());
    return *whole ? 0 : kExitFailure;
  }
  if (is_secrets) return RunSecrets(program, secrets);
  if (is_savepoint) {
    if (savepoint.pool.empty()) savepoint.pool = program.worker.pool;
    status = NeedsKafka(program, "savepoint");
    if (status.ok()) status = RunSavepointCommand(savepoint, program.kafka);
    return status.ok() ? 0 : Fail(status);
  }
  if (*rescaling) {
    if (rescale.pool.empty()) rescale.pool = program.worker.pool;
    status = NeedsKafka(program, "rescale");
    if (status.ok()) status = RunRescaleCommand(rescale, program.kafka);
    return status.ok() ? 0 : Fail(status);
  }
  if (*upgrade) {
    status = UpgradeState(program, pool.empty() ? program.worker.pool : pool, finish);
    return status.ok() ? 0 : Fail(status);
  }
  if (*serve) {
    return Serve(
        program,
        [config_file, flags = serve->remaining()]() -> absl::StatusOr<AddressRulesOptions> {
          Options again;
          ProgramOptions read;
          read.Register(again);
          RETURN_IF_ERROR(LoadOptions(again, config_file, flags));
          RETURN_IF_ERROR(read.Check());
          return read.network;
        });
  }
  if (*migrate) return RunMigrate(program);
  if (*create) return CreateKey(program, scope, name);
  return CheckConfig(program);
}

}  // namespace
}  // namespace postrider

int main(int argc, char** argv) { return postrider::Main(argc, argv); }
