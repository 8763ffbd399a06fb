#include "core/stream/state_upgrade.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/status_macros.h"
#include "core/stream/blocking_reader.h"
#include "core/stream/blocking_writer.h"
#include "core/stream/changelog.h"
#include "core/stream/record.h"
#include "core/stream/state_key.h"
#include "core/stream/state_table.h"

namespace postrider {
namespace {

// What one partition says of a state.
struct Known {
  uint64_t epoch = 0;  // of the entry
  StateTableEntry entry;
  uint32_t finished = 0;
};

absl::Status ReadTable(BlockingReader& reader, const TopicPartition& tp,
                       std::map<std::string, Known>& states) {
  return reader.ReadAll(tp, [&](const LogRecord& record) -> absl::Status {
    ASSIGN_OR_RETURN(const ChangelogRecord read, DecodeChangelogRecord(record.key, record.value));
    if (read.kind == ChangelogKind::kFinish) {
      Known& known = states[read.identity];
      known.finished = std::max(known.finished, read.version);
      return absl::OkStatus();
    }
    if (read.kind != ChangelogKind::kPut) return absl::OkStatus();
    const absl::optional<StateKey> key = DecodeStateKey(read.identity);
    if (!key || key->state != kStateTableId) return absl::OkStatus();
    const absl::optional<StateTableEntry> entry = DecodeStateTableEntry(read.payload);
    if (!entry) {
      return absl::DataLossError(absl::StrCat("state upgrade: the entry of '", key->key, "' in ",
                                              tp.ToString(), " cannot be read"));
    }
    Known& known = states[key->key];
    if (read.epoch >= known.epoch) {
      known.epoch = read.epoch;
      known.entry = *entry;
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::vector<StateUpgrade>> FindStateUpgrades(Log& log, const Clock& clock,
                                                            const std::string& changelog,
                                                            std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const int32_t partitions, log.Partitions(changelog, timeout));
  BlockingReaderOptions options;
  options.silence_max = timeout;
  ASSIGN_OR_RETURN(const std::unique_ptr<BlockingReader> reader,
                   BlockingReader::Open(log, clock, options));
  struct Target {
    uint32_t version = 0;
    int32_t partition = 0;        // the first that has it
    uint32_t finished_least = 0;  // over the partitions
    int32_t told = 0;             // partitions that were told of any finish
  };
  std::map<std::string, Target> targets;
  for (int32_t partition = 0; partition < partitions; ++partition) {
    const TopicPartition tp{changelog, partition};
    std::map<std::string, Known> states;
    RETURN_IF_ERROR(ReadTable(*reader, tp, states));
    for (const auto& [name, known] : states) {
      Target& target = targets[name];
      if (known.finished > 0) {
        target.finished_least =
            target.told == 0 ? known.finished : std::min(target.finished_least, known.finished);
        ++target.told;
      }
      const uint32_t version = known.entry.version_max;
      if (version == 0) continue;  // not used there
      if (target.version == 0) {
        target.version = version;
        target.partition = partition;
      }
      if (target.version == version) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "state upgrade: the worker that last owned ", tp.ToString(), " reads '", name,
          "' up to version ", version, ", that of ", changelog, "/", target.partition,
          " up to version ", target.version,
          "; run the same binary in every worker of the pool first, and wait until it is ready"));
    }
  }
  std::vector<StateUpgrade> upgrades;
  for (const auto& [name, target] : targets) {
    // Version 1 needs no finish: nothing was before it.
    const uint32_t finished = target.told == partitions ? target.finished_least : 1;
    if (target.version > finished) upgrades.push_back(StateUpgrade{name, target.version});
  }
  return upgrades;
}

absl::Status FinishStateUpgrades(Log& log, const Clock& clock, const std::string& changelog,
                                 const std::vector<StateUpgrade>& upgrades,
                                 std::chrono::milliseconds timeout) {
  for (const StateUpgrade& upgrade : upgrades) {
    if (upgrade.state.empty() || upgrade.version == 0) {
      return absl::InvalidArgumentError(absl::StrCat("state upgrade: '", upgrade.state,
                                                     "' in version ", upgrade.version,
                                                     " is no state in a version"));
    }
  }
  ASSIGN_OR_RETURN(const int32_t partitions, log.Partitions(changelog, timeout));
  BlockingWriterOptions options;
  options.silence_max = timeout;
  ASSIGN_OR_RETURN(const std::unique_ptr<BlockingWriter> writer,
                   BlockingWriter::Open(log, clock, options));
  for (int32_t partition = 0; partition < partitions; ++partition) {
    for (const StateUpgrade& upgrade : upgrades) {
      EncodedChangelogRecord record = FinishRecord(upgrade.state, upgrade.version);
      AppendRecord append;
      append.topic = changelog;
      append.partition = partition;
      append.key = std::move(record.key);
      append.value = std::move(record.value);
      RETURN_IF_ERROR(writer->Append(std::move(append)));
    }
  }
  return writer->Flush();
}

}  // namespace postrider
