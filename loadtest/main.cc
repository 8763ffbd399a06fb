// The command line of the load test. Each command does one thing and ends; results are one JSON
// object on standard output, progress and errors go to standard error.
#include <signal.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "loadtest/account.h"
#include "loadtest/consume.h"
#include "loadtest/gaps.h"
#include "loadtest/generate.h"
#include "loadtest/hop.h"
#include "loadtest/ledger.h"
#include "loadtest/plan.h"
#include "loadtest/receiver.h"
#include "loadtest/registration.h"
#include "loadtest/state.h"

namespace {

namespace loadtest = postrider::loadtest;

// Set by SIGTERM and SIGINT; a handler can reach nothing else.
std::atomic<bool> g_stop{false};
loadtest::Receiver* g_receiver = nullptr;

void OnSignal(int) {
  g_stop.store(true);
  if (g_receiver != nullptr) g_receiver->Stop();
}

void CatchSignals() {
  struct sigaction action {};
  action.sa_handler = &OnSignal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) return absl::NotFoundError(absl::StrCat("loadtest: cannot read ", path));
  return text.str();
}

struct PlanCommand {
  loadtest::PlanOptions options;
  std::string out = "plan.json";
  double rate = 10000;

  void Declare(CLI::App* app) {
    app->add_option("--seed", options.seed);
    app->add_option("--topics", options.topics);
    app->add_option("--tenants", options.tenants);
    app->add_option("--tenant-skew", options.tenant_skew, "exponent of the Zipf law; 0 is even");
    app->add_option("--departments", options.departments, "of each tenant");
    app->add_option("--customers", options.customers);
    app->add_option("--large-customers", options.large_customers,
                    "those that hold all tenants and get nearly all messages");
    app->add_option("--endpoints", options.endpoints);
    app->add_option("--subscriptions", options.subscriptions, "0: the broad ones only");
    app->add_option("--fan-out", options.fan_out, "messages per event, mean");
    app->add_option("--addresses", options.addresses, "distinct loopback addresses");
    app->add_option("--failing", options.failing, "endpoints that answer 500");
    app->add_option("--ordered", options.ordered,
                    "endpoints that ask for order, in turn of all and of each tenant's messages");
    app->add_option("--topic-prefix", options.topic_prefix);
    app->add_option("--tenant-prefix", options.tenant_prefix,
                    "of the tenants' names; tells two plans apart");
    app->add_option("--mode", options.mode)->check(CLI::IsMember({"batch", "streaming", "mixed"}));
    app->add_option("--events-max", options.events_max);
    app->add_option("--bytes-max", options.bytes_max);
    app->add_option("--wait-max-ms", options.wait_max_ms);
    app->add_option("--attempts", options.attempts);
    app->add_option("--first-delay-ms", options.first_delay_ms);
    app->add_option("--cap-ms", options.cap_ms, "of a retry's delay; 0: the API's default");
    app->add_option("--horizon-ms", options.horizon_ms);
    app->add_option("--window-max", options.window_max);
    app->add_option("--rate", rate, "events per second for the expectation that is printed");
    app->add_option("--out", out);
  }
  absl::Status Run() const {
    ASSIGN_OR_RETURN(const loadtest::Plan plan, loadtest::Plan::Build(options));
    RETURN_IF_ERROR(plan.Save(out));
    uint64_t grants = 0;
    for (const auto& customer : plan.customers()) grants += customer.tenants.size();
    const loadtest::Plan::Expectation expected = plan.Expect(rate, 100000);
    std::cout << absl::StrCat(R"({"customers":)", plan.customers().size(), R"(,"grants":)", grants,
                              R"(,"endpoints":)", plan.endpoints().size(), R"(,"subscriptions":)",
                              plan.subscriptions().size(), R"(,"fan_out":)", expected.fan_out,
                              R"(,"rate":)", rate, R"(,"endpoints_per_second":)",
                              expected.endpoints_per_second, R"(,"messages_per_request":)",
                              expected.messages_per_request, "}\n");
    return absl::OkStatus();
  }
};

struct RegisterCommand {
  loadtest::RegisterOptions options;
  std::string plan = "plan.json";
  std::string state = "state";

  void Declare(CLI::App* app) {
    app->add_option("--plan", plan)->required();
    app->add_option("--state", state, "written: ids, keys and secrets")->required();
    app->add_option("--api", options.api)->required();
    app->add_option("--operator-key", options.operator_key)
        ->envname("POSTRIDER_LOADTEST_OPERATOR_KEY")
        ->required();
    app->add_option("--receiver-port", options.receiver_port)->required();
    app->add_option("--parallel", options.parallel)->check(CLI::Range(1, 256));
  }
  absl::Status Run() const {
    ASSIGN_OR_RETURN(const loadtest::Plan loaded, loadtest::Plan::Load(plan));
    ASSIGN_OR_RETURN(const loadtest::State registered, loadtest::Register(loaded, options));
    RETURN_IF_ERROR(registered.Save(state));
    std::cout << absl::StrCat(R"({"customers":)", registered.customers.size(), R"(,"endpoints":)",
                              registered.endpoints.size(), R"(,"subscriptions":)",
                              registered.subscriptions, "}\n");
    return absl::OkStatus();
  }
};

struct GenerateCommand {
  loadtest::GenerateOptions options;
  std::string plan;
  std::string state;
  std::string size = "500..900";

  void Declare(CLI::App* app) {
    app->add_option("--plan", plan)->required();
    app->add_option("--brokers", options.brokers);
    app->add_option("--properties", options.properties, "of the producer: name=value,...");
    app->add_option("--file", options.file, "write events there instead of to Kafka");
    app->add_option("--api", options.api, "publish there (its URL) instead of to Kafka");
    app->add_option("--state", state, "with --api: the registration, for its publisher key");
    app->add_option("--connections", options.connections,
                    "with --api; one keeps the order of events")
        ->check(CLI::Range(1, 64));
    app->add_option("--ledger", options.ledger_file);
    app->add_option("--seed", options.seed);
    app->add_option("--first", options.first, "number of the first event");
    app->add_option("--events", options.events);
    app->add_option("--seconds", options.seconds);
    app->add_option("--rate", options.rate, "events per second; 0: as fast as possible");
    app->add_option("--size", size, "bytes of a payload: 500..900");
    app->add_flag("--create-topics", options.create_topics);
    app->add_option("--partitions", options.partitions, "of a topic that is created");
  }
  absl::Status Run() {
    if (sscanf(size.c_str(), "%u..%u", &options.size_min, &options.size_max) != 2) {
      return absl::InvalidArgumentError("loadtest: want --size MIN..MAX");
    }
    if (!options.brokers.empty() + !options.file.empty() + !options.api.empty() != 1) {
      return absl::InvalidArgumentError("loadtest: want --brokers, --api or --file");
    }
    if (options.api.empty() != state.empty()) {
      return absl::InvalidArgumentError("loadtest: --api and --state belong together");
    }
    if (!state.empty()) {
      ASSIGN_OR_RETURN(loadtest::State registered, loadtest::State::Load(state));
      options.publisher_key = std::move(registered.publisher_key);
    }
    ASSIGN_OR_RETURN(const loadtest::Plan loaded, loadtest::Plan::Load(plan));
    ASSIGN_OR_RETURN(const loadtest::GenerateResult result,
                     loadtest::Generate(loaded, options, g_stop));
    std::cout << absl::StrCat(
        R"({"events":)", result.events, R"(,"acknowledged":)", result.acknowledged,
        R"(,"sent_again":)", result.sent_again, R"(,"seconds":)", result.seconds,
        R"(,"events_per_s":)",
        result.seconds > 0 ? static_cast<double>(result.events) / result.seconds : 0, "}\n");
    if (result.acknowledged != result.events) {
      return absl::DeadlineExceededError("loadtest: not every event was acknowledged");
    }
    return absl::OkStatus();
  }
};

struct TopicsCommand {
  std::string plan;
  std::string brokers;
  int partitions = 1;

  void Declare(CLI::App* app) {
    app->add_option("--plan", plan)->required();
    app->add_option("--brokers", brokers)->required();
    app->add_option("--partitions", partitions);
  }
  absl::Status Run() const {
    ASSIGN_OR_RETURN(const loadtest::Plan loaded, loadtest::Plan::Load(plan));
    return loadtest::CreateSourceTopics(loaded, brokers, partitions);
  }
};

struct PublishCommand {
  loadtest::PublishOptions options;
  std::vector<std::string> headers;

  void Declare(CLI::App* app) {
    app->add_option("--brokers", options.brokers)->required();
    app->add_option("--topic", options.topic)->required();
    app->add_option("--key", options.key);
    app->add_option("--header", headers, "name=value, any number")->allow_extra_args(false);
    app->add_option("--properties", options.properties, "of the producer: name=value,...");
    app->add_flag("--create-topic", options.create_topic);
  }
  absl::Status Run() {
    for (const std::string& header : headers) {
      const size_t at = header.find('=');
      if (at == std::string::npos || at == 0) {
        return absl::InvalidArgumentError("loadtest: want --header name=value");
      }
      options.headers.emplace_back(header.substr(0, at), header.substr(at + 1));
    }
    return loadtest::Publish(options);
  }
};

struct ConsumeCommand {
  loadtest::ConsumeOptions options;

  void Declare(CLI::App* app) {
    app->add_option("--brokers", options.brokers)->required();
    app->add_option("--topic", options.topic)->required();
    app->add_option("--max", options.records_max, "so many records at most; 0: all");
    app->add_option("--properties", options.properties, "of the consumer: name=value,...");
    app->add_option("--timeout-s", options.timeout_s)->check(CLI::Range(1, 3600));
    app->add_flag("--headers", options.headers, "each header before the value, that in base64");
  }
  absl::Status Run() const { return loadtest::Consume(options); }
};

struct ReceiveCommand {
  loadtest::ReceiverOptions options;
  std::string plan;
  std::string summary;

  void Declare(CLI::App* app) {
    app->add_option("--plan", plan)->required();
    app->add_option("--state", options.state_file)->required();
    app->add_option("--listen-port", options.port, "0: any free one");
    app->add_option("--ledger", options.ledger_file);
    app->add_option("--metrics-file", options.metrics_file, "written anew once a second");
    app->add_option("--rules-file", options.rules_file, "lines: <path prefix> <behaviour> [arg]");
    app->add_option("--seed", options.seed, "of flaky answers");
  }
  absl::Status Run() const {
    ASSIGN_OR_RETURN(const loadtest::Plan loaded, loadtest::Plan::Load(plan));
    ASSIGN_OR_RETURN(const std::unique_ptr<loadtest::Receiver> receiver,
                     loadtest::Receiver::Create(loaded, options));
    g_receiver = receiver.get();
    fprintf(stderr, "receive: listening on port %d\n", receiver->port());
    absl::Status status;
    if (!g_stop.load()) status = receiver->Run();
    g_receiver = nullptr;
    std::cout << receiver->Summary() << std::endl;
    return status;
  }
};

struct AccountCommand {
  std::string plan;
  std::string state;
  std::vector<std::string> produced;
  std::vector<std::string> received;
  std::string dead_letters;
  std::string withheld;
  double skip_seconds = 0;
  bool repeats_fail = false;

  void Declare(CLI::App* app) {
    app->add_option("--plan", plan)->required();
    app->add_option("--state", state, "needed for --dead-letters and --withheld");
    app->add_option("--produced", produced, "any number, of one seed")->required();
    app->add_option("--received", received,
                    "without one: only says how many messages are expected");
    app->add_option("--dead-letters", dead_letters, "lines: <event id> <endpoint id> ...");
    app->add_option("--withheld", withheld, "withheld and discarded ones, the same lines");
    app->add_option("--latency-skip-seconds", skip_seconds, "at the start, not in the quantiles");
    app->add_flag("--no-repeats", repeats_fail, "a repeat is a failure too");
  }
  absl::Status ReadList(const std::string& path, uint32_t run,
                        std::vector<loadtest::MessageKey>* out) const {
    if (path.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string text, ReadText(path));
    ASSIGN_OR_RETURN(const loadtest::State ids, loadtest::State::Load(state));
    loadtest::MessageList list = loadtest::ParseMessageList(text, run, ids);
    if (list.foreign > 0) {
      fprintf(stderr, "account: %s: %llu foreign lines\n", path.c_str(),
              static_cast<unsigned long long>(list.foreign));
    }
    *out = std::move(list.messages);
    return absl::OkStatus();
  }
  absl::Status Run() const {
    ASSIGN_OR_RETURN(const loadtest::Plan loaded, loadtest::Plan::Load(plan));
    ASSIGN_OR_RETURN(auto sent, loadtest::ReadLedger<loadtest::ProducedRecord>(produced[0]));
    for (size_t i = 1; i < produced.size(); ++i) {
      ASSIGN_OR_RETURN(auto more, loadtest::ReadLedger<loadtest::ProducedRecord>(produced[i]));
      if (more.run != sent.run) {
        return absl::InvalidArgumentError("loadtest: account: the ledgers are of several runs");
      }
      sent.records.insert(sent.records.end(), more.records.begin(), more.records.end());
    }
    if (received.empty()) {
      std::cout << absl::StrCat(R"({"events":)", sent.records.size(), R"(,"expected":)",
                                loadtest::CountExpected(loaded, sent.records), "}\n");
      return absl::OkStatus();
    }
    loadtest::AccountInput input;
    input.run = sent.run;
    input.produced = std::move(sent.records);
    for (const std::string& path : received) {
      ASSIGN_OR_RETURN(auto ledger, loadtest::ReadLedger<loadtest::ReceivedRecord>(path));
      input.received.insert(input.received.end(), ledger.records.begin(), ledger.records.end());
    }
    RETURN_IF_ERROR(ReadList(dead_letters, sent.run, &input.dead_letters));
    RETURN_IF_ERROR(ReadList(withheld, sent.run, &input.withheld));
    input.skip_us = static_cast<int64_t>(skip_seconds * 1e6);
    const loadtest::AccountResult result = loadtest::Account(loaded, std::move(input));
    std::cout << result.ToJson() << std::endl;
    if (!result.good() || (repeats_fail && result.repeats > 0)) {
      return absl::DataLossError(absl::StrCat("loadtest: account: ", result.lost, " lost, ",
                                              result.repeats, " repeated, ", result.foreign,
                                              " foreign"));
    }
    return absl::OkStatus();
  }
};

struct LettersCommand {
  std::string state;
  std::string api;
  std::string out;
  int parallel = 8;

  void Declare(CLI::App* app) {
    app->add_option("--state", state)->required();
    app->add_option("--api", api, "else the one of the state file");
    app->add_option("--out", out)->required();
    app->add_option("--parallel", parallel)->check(CLI::Range(1, 256));
  }
  absl::Status Run() const {
    ASSIGN_OR_RETURN(const loadtest::State loaded, loadtest::State::Load(state));
    ASSIGN_OR_RETURN(const uint64_t letters,
                     loadtest::SaveLetters(loaded, api.empty() ? loaded.api : api, parallel, out));
    std::cout << absl::StrCat(R"({"letters":)", letters, "}\n");
    return absl::OkStatus();
  }
};

struct HopCommand {
  loadtest::HopOptions options;
  std::string size = "500..900";

  void Declare(CLI::App* app) {
    app->add_option("--brokers", options.brokers)->required();
    app->add_option("--prefix", options.prefix, "of the two topics");
    app->add_option("--first-partitions", options.first_partitions);
    app->add_option("--second-partitions", options.second_partitions);
    app->add_option("--rate", options.rate);
    app->add_option("--seconds", options.seconds);
    app->add_option("--skip-seconds", options.skip_seconds);
    app->add_option("--size", size);
    app->add_option("--client-properties", options.client_properties, "name=value,... for all");
    app->add_option("--producer-properties", options.producer_properties);
    app->add_option("--first-consumer-properties", options.first_consumer_properties);
    app->add_option("--second-consumer-properties", options.second_consumer_properties);
  }
  absl::Status Run() {
    if (sscanf(size.c_str(), "%u..%u", &options.size_min, &options.size_max) != 2) {
      return absl::InvalidArgumentError("loadtest: want --size MIN..MAX");
    }
    ASSIGN_OR_RETURN(const loadtest::HopResult result, loadtest::Hop(options, g_stop));
    std::cout << absl::StrCat(R"({"records":)", result.records, R"(,"lost":)", result.lost,
                              R"(,"p50_ms":)", result.p50_ms, R"(,"p90_ms":)", result.p90_ms,
                              R"(,"p99_ms":)", result.p99_ms, "}\n");
    return absl::OkStatus();
  }
};

struct DeleteTopicsCommand {
  std::string brokers;
  std::vector<std::string> prefixes;

  void Declare(CLI::App* app) {
    app->add_option("--brokers", brokers)->required();
    app->add_option("--prefix", prefixes, "any number")->required();
  }
  absl::Status Run() const {
    ASSIGN_OR_RETURN(const size_t deleted, loadtest::DeleteTopicsByPrefix(brokers, prefixes));
    std::cout << absl::StrCat(R"({"deleted":)", deleted, "}\n");
    return absl::OkStatus();
  }
};

struct GapsCommand {
  std::string state;
  std::string received;
  uint32_t key_groups = 64;
  int64_t from_us = 0;
  int64_t to_us = INT64_MAX;

  void Declare(CLI::App* app) {
    app->add_option("--state", state)->required();
    app->add_option("--received", received)->required();
    app->add_option("--key-groups", key_groups)->check(CLI::Range(1, 4096));
    app->add_option("--from-us", from_us, "microseconds since the epoch");
    app->add_option("--to-us", to_us);
  }
  absl::Status Run() const {
    ASSIGN_OR_RETURN(const loadtest::State ids, loadtest::State::Load(state));
    ASSIGN_OR_RETURN(const auto ledger, loadtest::ReadLedger<loadtest::ReceivedRecord>(received));
    std::cout << loadtest::FindGaps(ids, ledger.records, key_groups, from_us, to_us).ToJson()
              << std::endl;
    return absl::OkStatus();
  }
};

template <typename Command>
void Add(CLI::App* app, const char* name, const char* what, Command* command,
         std::function<absl::Status()>* run) {
  CLI::App* sub = app->add_subcommand(name, what);
  command->Declare(sub);
  sub->callback([command, run] { *run = [command] { return command->Run(); }; });
}

}  // namespace

int main(int argc, char** argv) {
  CatchSignals();
  RaiseFileLimit();
  CLI::App app("Plays the outside world of Postrider: makes load, receives it, accounts for it.");
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  std::function<absl::Status()> run;
  PlanCommand plan;
  RegisterCommand registration;
  GenerateCommand generate;
  TopicsCommand topics;
  PublishCommand publish;
  ConsumeCommand consume;
  ReceiveCommand receive;
  AccountCommand account;
  LettersCommand letters;
  GapsCommand gaps;
  HopCommand hop;
  DeleteTopicsCommand delete_topics;
  Add(&app, "plan", "writes a plan and says what to expect of it", &plan, &run);
  Add(&app, "register", "makes a plan's customers and all of theirs over REST", &registration,
      &run);
  Add(&app, "topics", "creates a plan's source topics", &topics, &run);
  Add(&app, "generate", "produces events and a ledger of them", &generate, &run);
  Add(&app, "publish", "produces standard input, a record a line", &publish, &run);
  Add(&app, "consume", "prints what a topic holds, a record a line", &consume, &run);
  Add(&app, "receive", "plays all receivers and keeps a ledger", &receive, &run);
  Add(&app, "letters", "lists all customers' dead letters into a file", &letters, &run);
  Add(&app, "account", "compares the ledgers, message by message", &account, &run);
  Add(&app, "gaps", "the longest silence of each key group", &gaps, &run);
  Add(&app, "hop", "measures a bare double Kafka hop", &hop, &run);
  Add(&app, "delete-topics", "deletes topics by the beginning of their names", &delete_topics,
      &run);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = run();
  if (status.ok()) return 0;
  fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
