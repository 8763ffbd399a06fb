#include "serve/service.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/api_role.h"
#include "api/probes.h"
#include "api/server.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/base/status_macros.h"
#include "core/base/stop_watchdog.h"
#include "core/crypto/key_file.h"
#include "core/crypto/key_ring.h"
#include "core/crypto/random.h"
#include "core/http/address_guard.h"
#include "core/http/egress_proxy.h"
#include "core/http/resolver.h"
#include "core/kafka/kafka_log.h"
#include "core/postgres/connection.h"
#include "core/state/process_directory.h"
#include "core/stream/log.h"
#include "delivery/worker_role.h"
#include "dlq/indexer_role.h"
#include "migrations/runner.h"
#include "serve/data_directory.h"
#include "serve/endpoint_tester.h"
#include "serve/exit_status.h"
#include "serve/open_log.h"
#include "serve/pool_roles.h"
#include "serve/pool_topics.h"
#include "serve/role_status.h"
#include "serve/signals.h"
#include "serve/start_checks.h"
#include "serve/worker_stores.h"
#include "subscriptions/registry/snapshot.h"
#include "subscriptions/registry/snapshot_loader.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kKeyFileInterval{1};
// How long a start waits for the addresses of our own servers.
constexpr seconds kOwnNamesWait{5};
constexpr seconds kBrokersWait{2};
// While the log is waited for: how soon it is asked again, and how often the wait is told of.
constexpr seconds kAskAgain{1};
constexpr seconds kTellInterval{30};

absl::Status NotStarted() { return absl::UnavailableError("it has not started"); }

// A process that serves: the parts, the roles, and the loop of the main thread that the snapshot
// loader and the signals live on.
//
//   starting --Kafka answers, first snapshot--> serving --first signal--> draining --done--> end
//                                                  second signal: the end at once
class Service {
 public:
  Service(ProgramOptions options, NetworkRules::Read read_network)
      : options_(std::move(options)),
        snapshot_options_(options_.snapshot),
        network_(options_.network, std::move(read_network),
                 [this](const auto& rules) { OnNetworkRules(rules); }) {}

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
    if (pool_ != nullptr && pool_->left_behind()) ::_exit(code);
    return code;
  }

 private:
  bool NeedsSnapshot() const { return options_.Has("matcher") || options_.Has("worker"); }

  absl::Status Prepare() {
    ASSIGN_OR_RETURN(signal_fd_, WatchSignals());
    RETURN_IF_ERROR(options_.database.Complete());
    ASSIGN_OR_RETURN(KeyRing keys, LoadKeys(options_));
    keys_ = std::make_unique<KeyRing>(std::move(keys));
    key_file_ = std::make_unique<KeyFileWatch>(options_.key_file, *keys_);
    RETURN_IF_ERROR(network_.Open(ServersOf(options_)));
    ASSIGN_OR_RETURN(proxy_, options_.egress_proxy.Load());
    ASSIGN_OR_RETURN(open_files_, RaiseFileLimit(options_));
    RETURN_IF_ERROR(MakeDataDirectory(options_));
    if (NeedsSnapshot()) {
      ASSIGN_OR_RETURN(data_dir_, OwnDataDirectory(options_));
    }
    if (options_.Has("worker")) {
      ASSIGN_OR_RETURN(stores_, WorkerStores::Open(options_, clock_));
    }
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
      RETURN_IF_ERROR(StartPool());
      StartLoader();
    }
    return absl::OkStatus();
  }

  // Before anything is sent. The listeners are there, so that their ports are known.
  void WaitForOwnAddresses() {
    std::vector<HostAndPort> servers = ServersOf(options_);
    servers.push_back(ListenerAt(options_.probes_listen, probes_->port()));
    if (api_ != nullptr) servers.push_back(ListenerAt(options_.api.listen, api_->port()));
    network_.FollowOwn(*loop_, std::move(servers), [this] { return Brokers(); });
    const MonotonicTime until = clock_.Now() + kOwnNamesWait;
    while (!network_.own_known() && !stopping_ && clock_.Now() < until) {
      loop_->RunOnce(milliseconds(50));
    }
    if (!network_.own_known()) POSTRIDER_LOG(kWarn, "names of our own servers are not known yet");
  }

  // Whoever may be reached no longer is left at once.
  void OnNetworkRules(const std::shared_ptr<const AddressRules>& rules) {
    if (api_ != nullptr) api_->SetAddressRules(rules);
    if (pool_ != nullptr) pool_->SetAddressRules(rules);
  }

  absl::Status OpenLog() {
    ASSIGN_OR_RETURN(ProcessLog opened, OpenProcessLog(options_, clock_, metrics_));
    log_ = std::move(opened.log);
    kafka_ = opened.kafka;
    return absl::OkStatus();
  }

  // What brokers say of themselves.
  std::vector<HostAndPort> Brokers() const {
    std::vector<HostAndPort> brokers;
    if (kafka_ == nullptr) return brokers;
    for (auto& [host, port] : kafka_->Brokers(kBrokersWait)) brokers.push_back({host, port});
    return brokers;
  }

  // For as long as it takes, unless startup_timeout says otherwise: who starts us would only do so
  // again.
  absl::Status WaitForLog() {
    // A call holds the loop up: none is long, so that the probes and the signals are served.
    constexpr milliseconds kPing{1'000};
    constexpr milliseconds kEnsure{2'000};
    const MonotonicTime begun = clock_.Now();
    const bool for_ever = options_.startup_timeout == milliseconds(0);
    const MonotonicTime until = for_ever ? MonotonicTime::max() : begun + options_.startup_timeout;
    MonotonicTime tell = begun;
    while (true) {
      absl::Status status = log_ == nullptr ? OpenLog() : absl::OkStatus();
      if (status.ok()) status = log_->Ping(kPing);
      if (status.ok()) status = log_->EnsureTopics(OwnTopics(options_), kEnsure);
      if (status.ok()) status = EnsurePoolTopics(options_, *log_, clock_, kEnsure);
      log_status_ = status;
      if (status.ok()) return status;
      const bool retry = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                         absl::IsResourceExhausted(status);
      const MonotonicTime now = clock_.Now();
      if (!retry || now >= until) return status;
      if (now >= tell) {
        tell = now + kTellInterval;
        POSTRIDER_LOG(kWarn, "waiting for the log", {"why", status.message()},
                      {"for_s", std::chrono::duration_cast<seconds>(now - begun).count()});
      }
      // Serves the probes and the signals meanwhile: an answer takes several turns.
      const MonotonicTime again = now + kAskAgain;
      while (clock_.Now() < again && !stopping_) loop_->RunOnce(again - clock_.Now());
      if (stopping_) return absl::CancelledError("stopped while waiting for the log");
    }
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
          loop, {*resolver_, *keys_, metrics_, network_.rules(), proxy_, options_.worker.ca_file});
    };
    api::PublishOptions publish;
    publish.topic_prefix = options_.matcher.decoder.topic_prefix;
    publish.own_prefix = options_.kafka.prefix;
    publish.event_bytes_max = options_.matcher.decoder.bytes_max;
    ASSIGN_OR_RETURN(
        api_, api::ApiRole::Start(parts, options_.api,
                                  Database(options_.database.api_url, ApiRoleCheckSql()), publish,
                                  network_.rules()));
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

  absl::Status StartPool() {
    PoolRoles::Parts parts{options_, *loop_,  *log_,   clock_, metrics_,
                           nullptr,  nullptr, nullptr, nullptr};
    parts.make_worker_parts = [this] { return MakeWorkerParts(); };
    parts.fail = [this](absl::Status why) { Fatal(std::move(why)); };
    parts.drain = [this](absl::Status why) {
      failure_ = std::move(why);
      POSTRIDER_LOG(kError, "draining", {"why", failure_.message()});
      Stop();
    };
    parts.stopped = [this] { PartStopped(); };
    pool_ = std::make_unique<PoolRoles>(std::move(parts), network_.rules());
    return pool_->Start();
  }

  delivery::WorkerParts MakeWorkerParts() {
    delivery::WorkerParts parts{*log_,
                                clock_,
                                metrics_,
                                *keys_,
                                *resolver_,
                                WorkerStores::OpenHeap,
                                WorkerStores::OpenHeap,
                                nullptr,
                                nullptr,
                                proxy_};
    parts.open_files_max = open_files_.max;
    parts.other_files = open_files_.other;
    stores_->AddTo(parts);
    return parts;
  }

  void OnSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot) {
    snapshot_confirmed_ms_ = MillisSinceEpoch(snapshot->confirmed_at());
    if (!keys_checked_ && options_.Has("worker")) {
      if (absl::Status status = CheckKeys(options_, *keys_, *snapshot); !status.ok())
        return Fatal(std::move(status));
    }
    keys_checked_ = true;
    pool_->SetSnapshot(std::move(snapshot));
  }

  void Fatal(absl::Status why) {
    failure_ = std::move(why);
    loop_->Stop();
  }

  // While a key is changed (secrets_command.h) nobody is restarted.
  void LookAtKeyFile() {
    key_file_->Look();
    loop_->CallAfter(kKeyFileInterval, [this] { LookAtKeyFile(); });
  }

  // Ready: every role of this process is at work, with a snapshot that may be used.
  std::vector<api::Readiness> Ready() {
    std::vector<api::Readiness> parts;
    parts.push_back({"running", stopping_ ? absl::UnavailableError("the process is stopping")
                                          : absl::OkStatus()});
    if (!log_status_.ok()) parts.push_back({"log", log_status_});
    if (NeedsSnapshot()) parts.push_back({"snapshot", SnapshotStatus()});
    if (options_.Has("worker")) {
      parts.push_back({"worker", pool_ != nullptr ? pool_->WorkerStatus() : NotStarted()});
    }
    if (options_.Has("matcher")) {
      parts.push_back({"matcher", pool_ != nullptr ? pool_->MatcherStatus() : NotStarted()});
    }
    if (options_.Has("indexer")) parts.push_back({"indexer", StatusOf(indexer_.get(), clock_)});
    if (options_.Has("api")) {
      parts.push_back({"api", api_ != nullptr ? api_->health() : NotStarted()});
    }
    return parts;
  }

  absl::Status SnapshotStatus() const {
    const auto age = milliseconds(MillisSinceEpoch(clock_.Wall()) - snapshot_confirmed_ms_);
    if (snapshot_confirmed_ms_ > 0 && age <= snapshot_options_.age_max) return absl::OkStatus();
    return absl::UnavailableError("there is no snapshot of the database that is young enough");
  }

  void OnSignal() {
    signalfd_siginfo info{};
    while (::read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo == SIGHUP) {
        network_.ReadAgain();
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
    if (stopping_) return;
    stopping_ = true;
    POSTRIDER_LOG(kInfo, "draining");
    stop_watchdog_.Arm(options_.worker.stop_wait_max + options_.stop_grace, kExitStopHangs,
                       [this] { return Unfinished(); });
    // From the source to the receivers, so that what is in between still gets out.
    to_stop_ = 1;
    const auto part = [this](auto& role) {
      if (role == nullptr) return;
      ++to_stop_;
      role->Stop([this] { PartStopped(); });
    };
    part(api_);
    if (pool_ != nullptr) {
      to_stop_ += pool_->running();
      pool_->Stop();
    }
    part(indexer_);
    PartStopped();
  }

  // Threads: any.
  std::string Unfinished() const {
    const int parts = to_stop_;
    if (parts > 0) return absl::StrCat(parts, " of its roles still stop");
    return "its roles have stopped, and their threads and connections have not closed";
  }

  void PartStopped() {
    if (--to_stop_ > 0) return;
    POSTRIDER_LOG(kInfo, "stopped");
    loop_->Stop();
  }

  ProgramOptions options_;
  std::atomic<int> to_stop_{0};
  StopWatchdog stop_watchdog_;  // outlives all that is stopped
  subscriptions::SnapshotLoaderOptions snapshot_options_;
  SystemClock clock_;
  Metrics metrics_;
  int signal_fd_ = -1;
  std::unique_ptr<KeyRing> keys_;
  std::unique_ptr<KeyFileWatch> key_file_;
  std::shared_ptr<const EgressProxy> proxy_;
  OpenFiles open_files_;
  std::unique_ptr<ProcessDirectory> data_dir_;
  std::unique_ptr<WorkerStores> stores_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Log> log_;
  absl::Status log_status_ = NotStarted();  // of a start: whether it can be worked with
  KafkaLog* kafka_ = nullptr;               // log_, when it is that
  NetworkRules network_;
  std::unique_ptr<Resolver> resolver_;
  std::unique_ptr<api::Server> probes_;
  std::unique_ptr<dlq::IndexerRole> indexer_;
  std::unique_ptr<api::ApiRole> api_;
  std::unique_ptr<PoolRoles> pool_;  // once the log and our own addresses are there
  std::unique_ptr<subscriptions::SnapshotLoader> loader_;
  bool keys_checked_ = false;
  int64_t snapshot_confirmed_ms_ = 0;
  absl::Status failure_;
  bool stopping_ = false;
};

}  // namespace

int Serve(const ProgramOptions& options, NetworkRules::Read read_network) {
  POSTRIDER_LOG(kInfo, "postrider starts", {"version", POSTRIDER_VERSION},
                {"roles", absl::StrJoin(options.roles, ",")});
  return Service(options, std::move(read_network)).Run();
}

}  // namespace postrider
