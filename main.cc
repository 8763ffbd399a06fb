// The command line of postrider: what is given with a command, and which room does it.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "commands/keys_command.h"
#include "commands/log_command.h"
#include "commands/migrate_command.h"
#include "commands/publish_command.h"
#include "commands/rescale_command.h"
#include "commands/savepoint_command.h"
#include "commands/secrets_command.h"
#include "commands/state_command.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/base/status_macros.h"
#include "core/crypto/key_ring.h"
#include "core/embedded_log/inspect.h"
#include "core/kafka/kafka_log.h"
#include "core/stream/log.h"
#include "serve/exit_status.h"
#include "serve/open_log.h"
#include "serve/program_options.h"
#include "serve/service.h"

extern char** environ;

namespace postrider {
namespace {

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
  if (*migrate || *create) {
    status = *migrate ? RunMigrateCommand(program.database)
                      : RunKeysCreate(program.database, scope, name);
    return status.ok() ? 0 : Fail(status);
  }
  return CheckConfig(program);
}

}  // namespace
}  // namespace postrider

int main(int argc, char** argv) { return postrider::Main(argc, argv); }
