#include "commands/rescale_command.h"

#include <stdlib.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/base/status_macros.h"
#include "core/crypto/random.h"
#include "delivery/rescale.h"
#include "subscriptions/matching/matcher_role.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;

// How long a first answer of Kafka is waited for.
constexpr milliseconds kPing{10'000};

absl::Status ReadDuration(const std::string& name, const std::string& text, milliseconds least,
                          milliseconds most, milliseconds* value) {
  if (text.empty()) return absl::OkStatus();
  Options options;
  options.AddDuration(name, value, least, most, "");
  return options.LoadFlags({absl::StrCat("--", name, "=", text)});
}

void Print(const delivery::RescaleReport& report, const std::string& pool) {
  if (report.moved) {
    std::printf("pool        %s: %d key groups, before %d (generation %" PRIu64 ")\n", pool.c_str(),
                report.key_groups, report.key_groups_before, report.generation);
    std::printf("moved       %" PRIu64 " messages that wait, %" PRIu64
                " batches of them tried before; %" PRIu64 " that were not begun\n",
                report.entries, report.batches, report.left_over);
  } else {
    std::printf("pool        %s: it has %d key groups already\n", pool.c_str(), report.key_groups);
  }
  for (const std::string& topic : report.removed) std::printf("removed     %s\n", topic.c_str());
  for (const std::string& topic : report.kept) std::printf("kept        %s\n", topic.c_str());
}

}  // namespace

absl::Status RunRescaleCommand(const RescaleCommand& command, const KafkaOptions& kafka) {
  if (command.abort != (command.key_groups == 0)) {
    return absl::InvalidArgumentError("rescale: give either --key-groups or --abort");
  }
  if (command.key_groups < 0 || command.key_groups > delivery::kKeyGroupsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("rescale: --key-groups: 1 to ", delivery::kKeyGroupsMax));
  }
  delivery::RescalePool pool;
  pool.topic_prefix = kafka.prefix;
  pool.pool = command.pool;
  pool.match_group = subscriptions::MatcherRole::Group(kafka.prefix);
  FillRandom(pool.holder.data(), pool.holder.size());
  const char* temporary = ::getenv("TMPDIR");
  pool.spool_directory = !command.spool.empty() ? command.spool
                         : temporary != nullptr ? temporary
                                                : "/tmp";
  RETURN_IF_ERROR(ReadDuration("drain_wait", command.drain_wait, milliseconds(1'000),
                               std::chrono::hours(24), &pool.drain_wait_max));
  RETURN_IF_ERROR(ReadDuration("lease", command.lease, milliseconds(5'000),
                               std::chrono::minutes(10), &pool.lease));
  pool.tell = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  SystemClock clock;
  Metrics metrics;
  ASSIGN_OR_RETURN(const std::unique_ptr<KafkaLog> log, KafkaLog::Open(kafka, clock, metrics));
  RETURN_IF_ERROR(log->Ping(kPing));
  if (command.abort) {
    RETURN_IF_ERROR(delivery::AbortRescale(*log, clock, pool));
    std::printf("pool        %s works on as before\n", command.pool.c_str());
    return absl::OkStatus();
  }
  delivery::RescaleOptions options;
  options.key_groups = static_cast<int32_t>(command.key_groups);
  options.keep_old = command.keep_old;
  ASSIGN_OR_RETURN(const delivery::RescaleReport report,
                   delivery::Rescale(*log, clock, pool, options));
  Print(report, command.pool);
  return absl::OkStatus();
}

}  // namespace postrider
