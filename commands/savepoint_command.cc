#include "commands/savepoint_command.h"

#include <stdlib.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/base/status_macros.h"
#include "core/crypto/random.h"
#include "core/json/time_text.h"
#include "core/kafka/kafka_log.h"
#include "core/state/savepoint.h"
#include "core/stream/control_follower.h"
#include "core/stream/control_record.h"
#include "core/stream/pool_plan.h"
#include "core/stream/trim_holds.h"
#include "delivery/rescale.h"
#include "delivery/worker_role.h"
#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// How long a first answer of Kafka is waited for.
constexpr milliseconds kPing{10'000};

SavepointPool PoolOf(const KafkaOptions& kafka, const std::string& name, uint64_t generation) {
  SavepointPool pool;
  pool.pool = name;
  pool.group = delivery::WorkerRole::Group(kafka.prefix, name);
  const std::string topics = GenerationName(name, generation);
  pool.topic = subscriptions::DispatchTopic(kafka.prefix, topics, 1, 1).name;
  for (const TopicSpec& topic : delivery::WorkerRole::Topics(kafka.prefix, topics, 1, 1)) {
    pool.changelogs.push_back(topic.name);
  }
  pool.control_topic = ControlTopicName(kafka.prefix);
  return pool;
}

void PrintManifest(const SavepointManifest& manifest) {
  std::printf("savepoint   %s\n", manifest.id.c_str());
  std::printf("created     %s\n", FormatRfc3339(manifest.created).c_str());
  std::printf("pool        %s (topic %s)\n", manifest.pool.c_str(), manifest.topic.c_str());
  std::printf("key groups  %zu\n", manifest.key_groups.size());
  for (size_t i = 0; i < manifest.changelogs.size(); ++i) {
    uint64_t entries = 0;
    uint64_t bytes = 0;
    for (const SavepointManifest::KeyGroup& key_group : manifest.key_groups) {
      entries += key_group.files[i].entries;
      bytes += key_group.files[i].bytes;
    }
    std::printf("state       %s: %" PRIu64 " entries, %" PRIu64 " bytes\n",
                manifest.changelogs[i].c_str(), entries, bytes);
  }
}

absl::Status Create(Log& log, const Clock& clock, const SavepointPool& pool,
                    const SavepointCommand& command) {
  CreateSavepointOptions options;
  Options keep;
  keep.AddDuration("keep", &options.keep, milliseconds(60'000), hours(24 * 90), "");
  if (!command.keep.empty()) {
    RETURN_IF_ERROR(keep.LoadFlags({absl::StrCat("--keep=", command.keep)}));
  }
  options.directory = command.directory;
  options.id = NewId<SavepointId>(clock);
  FillRandom(options.log_identity.data(), options.log_identity.size());
  ASSIGN_OR_RETURN(const SavepointManifest manifest, CreateSavepoint(log, clock, pool, options));
  PrintManifest(manifest);
  std::printf("held until  %s (earlier: postrider savepoint drop %s)\n",
              FormatRfc3339(manifest.created + options.keep).c_str(), manifest.id.c_str());
  return absl::OkStatus();
}

// Whether the savepoint is of another number of key groups than the pool has, or of an earlier
// generation of its topics.
absl::StatusOr<bool> OfOtherKeyGroups(Log& log, const SavepointPool& pool,
                                      const SavepointManifest& manifest) {
  if (manifest.pool != pool.pool || manifest.group != pool.group) return false;
  if (manifest.topic != pool.topic) return true;
  const absl::StatusOr<int32_t> partitions = log.Partitions(pool.topic, kPing);
  if (absl::IsNotFound(partitions.status())) return false;
  RETURN_IF_ERROR(partitions.status());
  return static_cast<size_t>(*partitions) != manifest.key_groups.size();
}

absl::Status Adopt(Log& log, const Clock& clock, const KafkaOptions& kafka,
                   const SavepointManifest& manifest, const SavepointCommand& command) {
  delivery::RescalePool pool;
  pool.topic_prefix = kafka.prefix;
  pool.pool = manifest.pool;
  const char* temporary = ::getenv("TMPDIR");
  pool.spool_directory = temporary != nullptr ? temporary : "/tmp";
  ASSIGN_OR_RETURN(
      const delivery::AdoptReport report,
      delivery::AdoptSavepoint(log, clock, pool, command.directory, command.accept_loss));
  PrintManifest(manifest);
  std::printf("put back    %" PRIu64 " messages that waited, %" PRIu64
              " batches of them tried before; %" PRIu64
              " that were not begun; into the pool's %d key groups\n",
              report.entries, report.batches, report.left_over, report.key_groups);
  std::printf("repeated    at most as many messages, which were done since\n");
  return absl::OkStatus();
}

absl::Status Restore(Log& log, const Clock& clock, const KafkaOptions& kafka,
                     const SavepointPool& pool, const SavepointCommand& command) {
  const absl::StatusOr<SavepointManifest> manifest = InspectSavepoint(command.directory);
  RETURN_IF_ERROR(manifest.status());
  ASSIGN_OR_RETURN(const bool others, OfOtherKeyGroups(log, pool, *manifest));
  if (others) return Adopt(log, clock, kafka, *manifest, command);
  RestoreSavepointOptions options;
  options.directory = command.directory;
  options.accept_loss = command.accept_loss;
  FillRandom(options.writer.data(), options.writer.size());
  ASSIGN_OR_RETURN(const RestoreReport report, RestoreSavepoint(log, clock, pool, options));
  PrintManifest(report.manifest);
  std::printf("restored    %" PRIu64 " entries; %" PRIu64 " that were newer are removed\n",
              report.entries_put, report.entries_deleted);
  std::printf("repeated    at most %" PRIu64 " messages, which were done since\n",
              report.repeated_max);
  if (report.lost_max > 0) {
    std::printf("lost        at most %" PRIu64 " messages, which the log does not have any more\n",
                report.lost_max);
  }
  return absl::OkStatus();
}

absl::Status List(Log& log, const Clock& clock, const std::string& control_topic) {
  ASSIGN_OR_RETURN(const std::vector<SavepointListing> listings,
                   ListSavepoints(log, clock, control_topic));
  ASSIGN_OR_RETURN(const ControlState control, ReadControl(log, clock, control_topic));
  for (const SavepointListing& listing : listings) {
    if (!listing.unreadable.empty()) {
      std::printf("%s  pool %s  cannot be read: %s\n", listing.id.c_str(), listing.pool.c_str(),
                  listing.unreadable.c_str());
      continue;
    }
    std::printf("%s  pool %s  created %s  %s %s\n", listing.id.c_str(), listing.pool.c_str(),
                FormatRfc3339(listing.created).c_str(),
                listing.expires > clock.Wall() ? "held until" : "not held since",
                FormatRfc3339(listing.expires).c_str());
  }
  for (const auto& [pool, mark] : control.restores) {
    std::printf("pool %s is being restored from %s since %s: run `savepoint restore` to its end\n",
                pool.c_str(), mark.savepoint.c_str(), FormatRfc3339(mark.began).c_str());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunSavepointCommand(const SavepointCommand& command, const KafkaOptions& kafka) {
  // These look at a directory only.
  if (command.verb == SavepointCommand::Verb::kInspect) {
    ASSIGN_OR_RETURN(const SavepointManifest manifest, InspectSavepoint(command.directory));
    PrintManifest(manifest);
    return absl::OkStatus();
  }
  if (command.verb == SavepointCommand::Verb::kVerify) {
    ASSIGN_OR_RETURN(const SavepointManifest manifest, VerifySavepoint(command.directory));
    PrintManifest(manifest);
    std::printf("every file is whole\n");
    return absl::OkStatus();
  }
  SystemClock clock;
  Metrics metrics;
  ASSIGN_OR_RETURN(const std::unique_ptr<KafkaLog> log, KafkaLog::Open(kafka, clock, metrics));
  RETURN_IF_ERROR(log->Ping(kPing));
  uint64_t generation = 1;
  if (command.verb == SavepointCommand::Verb::kCreate ||
      command.verb == SavepointCommand::Verb::kRestore) {
    ASSIGN_OR_RETURN(generation,
                     ReadGeneration(*log, clock, ControlTopicName(kafka.prefix), command.pool));
  }
  const SavepointPool pool = PoolOf(kafka, command.pool, generation);
  switch (command.verb) {
    case SavepointCommand::Verb::kCreate:
      return Create(*log, clock, pool, command);
    case SavepointCommand::Verb::kRestore:
      return Restore(*log, clock, kafka, pool, command);
    case SavepointCommand::Verb::kAbandon:
      return AbandonRestore(*log, clock, pool.control_topic, pool.pool);
    case SavepointCommand::Verb::kDrop:
      return DropSavepoint(*log, clock, pool.control_topic, command.id);
    default:
      return List(*log, clock, pool.control_topic);
  }
}

}  // namespace postrider
