#include "commands/log_command.h"

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/status_macros.h"
#include "core/embedded_log/inspect.h"
#include "core/json/json.h"
#include "core/json/reader.h"
#include "core/json/time_text.h"
#include "core/stream/hole_map.h"
#include "core/stream/log.h"
#include "core/stream/record.h"
#include "log_export/log_export_command.h"

namespace postrider {
namespace {

using GroupPosition = LogInspector::GroupPosition;
using PartitionState = LogInspector::PartitionState;
using TopicState = LogInspector::TopicState;

void Print(const std::string& line) { std::printf("%s\n", line.c_str()); }

// What a position says beyond its offset; none: it is not one that a shard has written.
absl::optional<CommitMetadata> MetadataOf(const GroupPosition& one) {
  return DecodeCommitMetadata(one.position.metadata, one.position.offset);
}

int64_t EndOf(const std::vector<TopicState>& topics, const TopicPartition& tp) {
  for (const TopicState& topic : topics) {
    if (topic.name == tp.topic) return topic.partitions[static_cast<size_t>(tp.partition)].end;
  }
  return 0;
}

JsonValue TopicJson(const TopicState& topic) {
  JsonValue settings = JsonValue::MakeObject();
  for (const auto& [name, value] : topic.settings) settings.Set(name, value);
  JsonValue partitions = JsonValue::MakeArray();
  for (size_t i = 0; i < topic.partitions.size(); ++i) {
    const PartitionState& partition = topic.partitions[i];
    JsonValue one = JsonValue::MakeObject({{"partition", i},
                                           {"begin", partition.begin},
                                           {"end", partition.end},
                                           {"bytes", partition.bytes}});
    if (partition.bytes > 0) {
      one.Set("oldest", FormatRfc3339(partition.oldest));
      one.Set("newest", FormatRfc3339(partition.newest));
    }
    partitions.Append(std::move(one));
  }
  return JsonValue::MakeObject({{"name", topic.name},
                                {"created", FormatRfc3339(topic.created)},
                                {"compacted", topic.compacted},
                                {"frozen", topic.frozen},
                                {"settings", std::move(settings)},
                                {"partitions", std::move(partitions)}});
}

JsonValue PositionJson(const GroupPosition& one, int64_t end) {
  JsonValue position = JsonValue::MakeObject({{"group", one.group},
                                              {"topic", one.tp.topic},
                                              {"partition", one.tp.partition},
                                              {"offset", one.position.offset},
                                              {"behind", end - one.position.offset}});
  if (const absl::optional<CommitMetadata> metadata = MetadataOf(one)) {
    position.Set("epoch", metadata->epoch);
    if (metadata->incarnation_ms != 0) {
      position.Set("incarnation", FormatRfc3339(WallTimeFromMillis(metadata->incarnation_ms)));
    }
    position.Set("done_above", metadata->completed.size());
  }
  return position;
}

void List(const LogInspector& log, bool json) {
  const std::vector<TopicState> topics = log.Topics();
  const std::vector<GroupPosition> positions = log.Positions();
  if (json) {
    JsonValue topics_json = JsonValue::MakeArray();
    for (const TopicState& topic : topics) topics_json.Append(TopicJson(topic));
    JsonValue positions_json = JsonValue::MakeArray();
    for (const GroupPosition& one : positions) {
      positions_json.Append(PositionJson(one, EndOf(topics, one.tp)));
    }
    return Print(JsonValue::MakeObject(
                     {{"topics", std::move(topics_json)}, {"positions", std::move(positions_json)}})
                     .Serialize());
  }
  for (const TopicState& topic : topics) {
    Print(absl::StrCat("topic ", topic.name, ", made ", FormatRfc3339(topic.created),
                       topic.compacted ? ", compacted" : "", topic.frozen ? ", frozen" : ""));
    for (size_t i = 0; i < topic.partitions.size(); ++i) {
      const PartitionState& partition = topic.partitions[i];
      std::string line =
          absl::StrCat("  partition ", i, ": offsets from ", partition.begin, " to before ",
                       partition.end, ", ", partition.bytes, " bytes");
      if (partition.bytes > 0) {
        absl::StrAppend(&line, ", ", FormatRfc3339(partition.oldest), " to ",
                        FormatRfc3339(partition.newest));
      }
      Print(line);
    }
  }
  std::string group;
  for (const GroupPosition& one : positions) {
    if (one.group != group) Print(absl::StrCat("group ", one.group));
    group = one.group;
    std::string line = absl::StrCat("  ", one.tp.ToString(), ": at ", one.position.offset, ", ",
                                    EndOf(topics, one.tp) - one.position.offset, " behind");
    if (const absl::optional<CommitMetadata> metadata = MetadataOf(one)) {
      if (!metadata->completed.empty()) {
        absl::StrAppend(&line, ", of which ", metadata->completed.size(), " are done");
      }
      absl::StrAppend(&line, ", epoch ", metadata->epoch);
      if (metadata->incarnation_ms != 0) {
        absl::StrAppend(&line, ", incarnation ",
                        FormatRfc3339(WallTimeFromMillis(metadata->incarnation_ms)));
      }
    }
    Print(line);
  }
}

// Sets it as text where it is some, else as base64 under another name.
void SetBytes(absl::string_view name, absl::string_view bytes, JsonValue& object) {
  if (IsUtf8(bytes)) {
    object.Set(name, bytes);
  } else {
    object.Set(absl::StrCat(name, "_base64"), absl::Base64Escape(bytes));
  }
}

void PrintRecord(const LogRecord& record, bool json) {
  const bool tombstone = record.value.data() == nullptr;
  if (!json) {
    std::string headers;
    for (const RecordHeader& header : record.headers) {
      absl::StrAppend(&headers, " ", absl::CHexEscape(header.name), "=",
                      absl::CHexEscape(header.value));
    }
    return Print(absl::StrCat(record.offset, " ", FormatRfc3339(record.timestamp), " key ",
                              absl::CHexEscape(record.key), headers.empty() ? "" : " headers",
                              headers, tombstone ? " tombstone" : " value ",
                              absl::CHexEscape(record.value)));
  }
  JsonValue one = JsonValue::MakeObject(
      {{"offset", record.offset}, {"timestamp", FormatRfc3339(record.timestamp)}});
  SetBytes("key", record.key, one);
  JsonValue headers = JsonValue::MakeArray();
  for (const RecordHeader& header : record.headers) {
    JsonValue mine = JsonValue::MakeObject();
    SetBytes("name", header.name, mine);
    SetBytes("value", header.value, mine);
    headers.Append(std::move(mine));
  }
  one.Set("headers", std::move(headers));
  if (tombstone) {
    one.Set("value", JsonValue());
  } else {
    SetBytes("value", record.value, one);
  }
  Print(one.Serialize());
}

absl::Status Read(LogInspector& log, const LogCommand& command) {
  int64_t printed = 0;
  return log.Read({command.topic, command.partition}, command.from, [&](const LogRecord& record) {
    PrintRecord(record, command.json);
    return command.records_max == 0 || ++printed < command.records_max;
  });
}

absl::StatusOr<bool> Verify(LogInspector& log, bool json) {
  ASSIGN_OR_RETURN(const LogInspector::VerifyReport report, log.Verify());
  if (json) {
    JsonValue damages = JsonValue::MakeArray();
    for (const LogInspector::Damage& damage : report.damages) {
      damages.Append(JsonValue::MakeObject({{"place", damage.place}, {"meaning", damage.meaning}}));
    }
    Print(JsonValue::MakeObject({{"partitions", report.partitions},
                                 {"records", report.records},
                                 {"tables", report.tables},
                                 {"damages", std::move(damages)}})
              .Serialize());
    return report.damages.empty();
  }
  for (const LogInspector::Damage& damage : report.damages) {
    Print(absl::StrCat("DAMAGED ", damage.place, ": ", damage.meaning));
  }
  Print(absl::StrCat(
      report.records, " records in ", report.partitions, " partitions and ", report.tables,
      " tables were read; ",
      report.damages.empty() ? "all is whole" : absl::StrCat(report.damages.size(), " damages")));
  return report.damages.empty();
}

}  // namespace

absl::StatusOr<bool> RunLogCommand(const LogCommand& command, const KafkaOptions& kafka) {
  if (command.verb == LogCommand::Verb::kExport) {
    KafkaOptions to = kafka;
    if (!command.to.empty()) to.brokers = command.to;
    const LogExportCommand exported{command.directory, command.fillers_max, command.json,
                                    command.wait};
    RETURN_IF_ERROR(RunLogExportCommand(exported, to));
    return true;
  }
  const absl::StatusOr<std::unique_ptr<LogInspector>> log = LogInspector::Open(command.directory);
  RETURN_IF_ERROR(log.status());
  switch (command.verb) {
    case LogCommand::Verb::kList:
      List(**log, command.json);
      return true;
    case LogCommand::Verb::kRead:
      RETURN_IF_ERROR(Read(**log, command));
      return true;
    default:
      break;
  }
  return Verify(**log, command.json);
}

}  // namespace postrider
