#include "log_export_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/base/status_macros.h"
#include "core/crypto/digest.h"
#include "core/embedded_log/inspect.h"
#include "core/json/json.h"
#include "core/json/time_text.h"
#include "core/kafka/partition_copier.h"
#include "core/stream/blocking_reader.h"
#include "core/stream/blocking_writer.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using GroupPosition = LogInspector::GroupPosition;
using PartitionState = LogInspector::PartitionState;
using TopicState = LogInspector::TopicState;

constexpr milliseconds kPing{10'000};
constexpr milliseconds kTimeout{120'000};
constexpr absl::Duration kAgain = absl::Milliseconds(200);
constexpr int16_t kReplication = 3;
constexpr char kMarkKey[] = "export";

// What became of one topic.
struct TopicReport {
  std::string name;
  int64_t records = 0;  // of this run and of those before it
  int64_t fillers = 0;  // written by this run
  int64_t missing = 0;  // offsets whose records are not there: damage, if it is not compacted
  bool renumbered = false;
};

class Export {
 public:
  Export(const LogExportCommand& command, const KafkaOptions& kafka, LogInspector& from, Log& to,
         const Clock& clock)
      : command_(command),
        kafka_(kafka),
        from_(from),
        to_(to),
        clock_(clock),
        topics_(from.Topics()),
        positions_(from.Positions()),
        outline_(HexDigest(Sha256(from.Outline()))),
        mark_topic_(absl::StrCat(kafka.prefix, "log-export")) {
    for (const GroupPosition& one : positions_) {
      int64_t& farthest = farthest_[one.tp];
      farthest = std::max(farthest, one.position.offset);
    }
  }

  absl::Status Run() {
    ASSIGN_OR_RETURN(const std::string state, ReadMark());
    if (state == "done") {
      std::printf("this log has been exported already: nothing is to be done\n");
      return absl::OkStatus();
    }
    if (state.empty()) RETURN_IF_ERROR(CheckThatNothingIsThere());
    RETURN_IF_ERROR(MakeTopics());
    RETURN_IF_ERROR(CheckFillers());
    if (state.empty()) RETURN_IF_ERROR(WriteMark("begun"));
    ASSIGN_OR_RETURN(copier_, PartitionCopier::Open(kafka_, {}));
    ASSIGN_OR_RETURN(loop_, EventLoop::Create(clock_));
    for (const TopicState& topic : topics_) RETURN_IF_ERROR(CopyTopic(topic));
    RETURN_IF_ERROR(CopyPositions());
    RETURN_IF_ERROR(WriteMark("done"));
    Print();
    return absl::OkStatus();
  }

 private:
  static TopicPartition At(const TopicState& topic, size_t partition) {
    return {topic.name, static_cast<int32_t>(partition)};
  }
  // Where no group has a position and compaction has made gaps, offsets mean nothing to anybody:
  // changelogs and the like are read from their begin to their end.
  bool Renumbered(const TopicState& topic) const {
    if (!topic.compacted) return false;
    for (size_t i = 0; i < topic.partitions.size(); ++i) {
      if (farthest_.count(At(topic, i)) > 0) return false;
    }
    return true;
  }
  // As a service would go on that has lost the end: behind what groups have seen.
  int64_t EndOf(const TopicState& topic, size_t partition) const {
    const auto farthest = farthest_.find(At(topic, partition));
    const int64_t end = topic.partitions[partition].end;
    return farthest == farthest_.end() ? end : std::max(end, farthest->second);
  }

  // "": no export has begun there.
  absl::StatusOr<std::string> ReadMark() {
    const absl::StatusOr<int32_t> there = to_.Partitions(mark_topic_, kTimeout);
    if (absl::IsNotFound(there.status())) return std::string();
    RETURN_IF_ERROR(there.status());
    ASSIGN_OR_RETURN(const std::unique_ptr<BlockingReader> reader,
                     BlockingReader::Open(to_, clock_, BlockingReaderOptions()));
    std::string last;
    RETURN_IF_ERROR(reader->ReadAll({mark_topic_, 0}, [&last](const LogRecord& record) {
      if (record.key == kMarkKey) last = std::string(record.value);
      return absl::OkStatus();
    }));
    if (last.empty()) return std::string();
    const absl::StatusOr<JsonValue> mark = JsonValue::Parse(last);
    const JsonValue* outline = mark.ok() ? mark->Find("log") : nullptr;
    const JsonValue* state = mark.ok() ? mark->Find("state") : nullptr;
    if (outline == nullptr || !outline->is_string() || state == nullptr || !state->is_string()) {
      return absl::FailedPreconditionError(
          absl::StrCat("log export: what stands in ", mark_topic_, " cannot be read"));
    }
    if (*outline->string() != outline_) {
      return absl::FailedPreconditionError(absl::StrCat(
          "log export: an export to this Kafka is ", *state->string(),
          ", of another log or of this one before a service ran on it again. To export anew delete "
          "the topics that it has made there, and ",
          mark_topic_));
    }
    return *state->string();
  }

  absl::Status WriteMark(absl::string_view state) {
    TopicSpec spec;
    spec.name = mark_topic_;
    spec.replication = kReplication;
    spec.settings = {{"cleanup.policy", "compact"}};
    RETURN_IF_ERROR(to_.EnsureTopics({spec}, kTimeout));
    ASSIGN_OR_RETURN(const std::unique_ptr<BlockingWriter> writer,
                     BlockingWriter::Open(to_, clock_, BlockingWriterOptions()));
    AppendRecord record;
    record.topic = mark_topic_;
    record.key = kMarkKey;
    record.value =
        JsonValue::MakeObject(
            {{"log", outline_}, {"state", state}, {"time", FormatRfc3339(clock_.Wall())}})
            .Serialize();
    RETURN_IF_ERROR(writer->Append(std::move(record)));
    return writer->Flush();
  }

  // Topics that were just made may not have settled everywhere.
  absl::StatusOr<Log::Range> Offsets(const TopicPartition& tp) {
    const MonotonicTime end = clock_.Now() + kTimeout;
    while (true) {
      absl::StatusOr<Log::Range> range = to_.Offsets(tp, kTimeout);
      if (!absl::IsUnavailable(range.status()) || clock_.Now() >= end) return range;
      absl::SleepFor(kAgain);
    }
  }

  absl::Status CheckThatNothingIsThere() {
    for (const TopicState& topic : topics_) {
      const absl::StatusOr<int32_t> there = to_.Partitions(topic.name, kTimeout);
      if (absl::IsNotFound(there.status())) continue;
      RETURN_IF_ERROR(there.status());
      if (static_cast<size_t>(*there) != topic.partitions.size()) {
        return absl::FailedPreconditionError(
            absl::StrCat("log export: topic ", topic.name, " is in Kafka already, with ", *there,
                         " partitions and not ", topic.partitions.size()));
      }
      for (size_t i = 0; i < topic.partitions.size(); ++i) {
        ASSIGN_OR_RETURN(const Log::Range range, Offsets(At(topic, i)));
        if (range.end == 0) continue;
        return absl::FailedPreconditionError(
            absl::StrCat("log export: topic ", topic.name,
                         " is in Kafka already and has had records that are not of this export; "
                         "delete it, or export to another cluster"));
      }
    }
    for (const auto& [group, entries] : Groups()) {
      std::vector<TopicPartition> partitions;
      for (const CommitEntry& entry : entries) {
        if (to_.Partitions(entry.tp.topic, kTimeout).ok()) partitions.push_back(entry.tp);
      }
      ASSIGN_OR_RETURN(const Log::GroupState state, to_.DescribeGroup(group, partitions, kTimeout));
      bool committed = state.members > 0;
      for (const AssignedPartition& one : state.partitions) {
        committed = committed || one.committed.has_value();
      }
      if (!committed) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("log export: group ", group,
                       " has members or positions in Kafka already: a service has run there"));
    }
    return absl::OkStatus();
  }

  absl::Status MakeTopics() {
    std::vector<TopicSpec> specs;
    for (const TopicState& topic : topics_) {
      TopicSpec& spec = specs.emplace_back();
      spec.name = topic.name;
      spec.partitions = static_cast<int32_t>(topic.partitions.size());
      spec.replication = kReplication;
      spec.settings = topic.settings;
    }
    return to_.EnsureTopics(specs, kTimeout);
  }

  absl::Status CheckFillers() {
    int64_t fillers = 0;
    for (const TopicState& topic : topics_) {
      if (Renumbered(topic)) continue;
      for (size_t i = 0; i < topic.partitions.size(); ++i) {
        ASSIGN_OR_RETURN(const Log::Range range, Offsets(At(topic, i)));
        fillers += std::max<int64_t>(0, topic.partitions[i].begin - range.end);
      }
    }
    if (fillers <= command_.fillers_max) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "log export: offsets stay what they are, so ", fillers,
        " records must be written to Kafka and deleted again for those that are gone here; that is "
        "more than --fillers-max=",
        command_.fillers_max, ". Give a higher one: a million takes about two seconds"));
  }

  absl::Status CopyTopic(const TopicState& topic) {
    TopicReport& report = reports_.emplace_back();
    report.name = topic.name;
    report.renumbered = Renumbered(topic);
    for (size_t i = 0; i < topic.partitions.size(); ++i) {
      if (report.renumbered) {
        RETURN_IF_ERROR(CopyRenumbered(topic, i, report));
      } else {
        RETURN_IF_ERROR(CopyAsItIs(topic, i, report));
      }
    }
    if (topic.frozen) RETURN_IF_ERROR(to_.FreezeTopic(topic.name, kTimeout));
    return absl::OkStatus();
  }

  absl::Status CopyAsItIs(const TopicState& topic, size_t number, TopicReport& report) {
    const TopicPartition tp = At(topic, number);
    const PartitionState& partition = topic.partitions[number];
    const int64_t end = EndOf(topic, number);
    ASSIGN_OR_RETURN(const Log::Range there, Offsets(tp));
    if (topic.frozen && there.end > end) return absl::OkStatus();  // with what freezing appends
    RETURN_IF_ERROR(CheckEnd(tp, there.end, end));
    copier_->Begin(tp, there.end);
    if (there.end < partition.begin) {
      RETURN_IF_ERROR(copier_->Fill(partition.begin, partition.oldest));
      report.fillers += partition.begin - there.end;
    }
    int64_t next = partition.begin;
    RETURN_IF_ERROR(Copy(tp, partition.begin, [&](const LogRecord& record) {
      report.missing += record.offset - next;
      next = record.offset + 1;
      ++report.records;
      return record.offset < there.end ? absl::OkStatus() : copier_->Put(record);
    }));
    report.missing += end - next;
    RETURN_IF_ERROR(copier_->Fill(end, partition.newest));
    RETURN_IF_ERROR(EndCopy(tp, end));
    return partition.begin > there.begin ? Trim(tp, partition.begin) : absl::OkStatus();
  }

  absl::Status CopyRenumbered(const TopicState& topic, size_t number, TopicReport& report) {
    const TopicPartition tp = At(topic, number);
    ASSIGN_OR_RETURN(const Log::Range there, Offsets(tp));
    copier_->Begin(tp, there.end);
    int64_t next = 0;
    RETURN_IF_ERROR(Copy(tp, 0, [&](const LogRecord& record) {
      LogRecord mine = record;
      mine.offset = next++;
      return mine.offset < there.end ? absl::OkStatus() : copier_->Put(mine);
    }));
    report.records += next;
    RETURN_IF_ERROR(CheckEnd(tp, there.end, next));
    return EndCopy(tp, next);
  }

  absl::Status Copy(const TopicPartition& tp, int64_t from,
                    absl::FunctionRef<absl::Status(const LogRecord&)> put) {
    absl::Status status;
    RETURN_IF_ERROR(from_.Read(tp, from, [&](const LogRecord& record) {
      status = put(record);
      return status.ok();
    }));
    return status;
  }

  static absl::Status CheckEnd(const TopicPartition& tp, int64_t there, int64_t end) {
    if (there <= end) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("log export: ", tp.ToString(), " has ", there, " records in Kafka and ", end,
                     " here: a service has run there since the export began"));
  }

  absl::Status EndCopy(const TopicPartition& tp, int64_t end) {
    RETURN_IF_ERROR(copier_->End());
    ASSIGN_OR_RETURN(const Log::Range there, Offsets(tp));
    if (there.end == end) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("log export: ", tp.ToString(), " ends at ", there.end,
                                            " in Kafka and not at ", end));
  }

  absl::Status Trim(const TopicPartition& tp, int64_t offset) {
    absl::optional<absl::Status> trimmed;
    to_.Trim(*loop_, tp, offset, [&trimmed](absl::Status status) { trimmed = std::move(status); });
    while (!trimmed.has_value()) loop_->RunOnce(seconds(1));
    return *trimmed;
  }

  std::map<std::string, std::vector<CommitEntry>> Groups() const {
    std::map<std::string, std::vector<CommitEntry>> groups;
    for (const GroupPosition& one : positions_) {
      groups[one.group].push_back({one.tp, one.position});
    }
    return groups;
  }

  absl::Status CopyPositions() {
    for (const auto& [group, entries] : Groups()) {
      RETURN_IF_ERROR(to_.ResetGroup(group, entries, kTimeout));
      std::vector<TopicPartition> partitions;
      for (const CommitEntry& entry : entries) partitions.push_back(entry.tp);
      ASSIGN_OR_RETURN(const Log::GroupState state, to_.DescribeGroup(group, partitions, kTimeout));
      for (size_t i = 0; i < entries.size(); ++i) {
        if (i < state.partitions.size() && state.partitions[i].committed == entries[i].position) {
          continue;
        }
        return absl::InternalError(absl::StrCat("log export: the position of group ", group, " at ",
                                                entries[i].tp.ToString(), " is another in Kafka"));
      }
    }
    return absl::OkStatus();
  }

  void Print() const {
    int64_t records = 0;
    JsonValue topics = JsonValue::MakeArray();
    for (const TopicReport& topic : reports_) {
      records += topic.records;
      if (command_.json) {
        topics.Append(JsonValue::MakeObject({{"name", topic.name},
                                             {"records", topic.records},
                                             {"fillers", topic.fillers},
                                             {"missing", topic.missing},
                                             {"renumbered", topic.renumbered}}));
        continue;
      }
      std::printf("topic %s: %lld records%s", topic.name.c_str(),
                  static_cast<long long>(topic.records),
                  topic.renumbered ? ", from offset 0 on" : ", at their offsets");
      if (topic.fillers > 0) {
        std::printf(", %lld fillers before them deleted again",
                    static_cast<long long>(topic.fillers));
      }
      if (topic.missing > 0) {
        std::printf(", %lld offsets without a record here (see `postrider log verify`)",
                    static_cast<long long>(topic.missing));
      }
      std::printf("\n");
    }
    if (command_.json) {
      std::printf("%s\n", JsonValue::MakeObject({{"topics", std::move(topics)},
                                                 {"records", records},
                                                 {"positions", positions_.size()}})
                              .Serialize()
                              .c_str());
      return;
    }
    std::printf(
        "%lld records and %zu positions of groups are in Kafka; start the service with "
        "log.kind: kafka\n",
        static_cast<long long>(records), positions_.size());
  }

  const LogExportCommand& command_;
  const KafkaOptions& kafka_;
  LogInspector& from_;
  Log& to_;
  const Clock& clock_;
  const std::vector<TopicState> topics_;
  const std::vector<GroupPosition> positions_;
  const std::string outline_;
  const std::string mark_topic_;
  std::map<TopicPartition, int64_t> farthest_;  // position of any group
  std::unique_ptr<PartitionCopier> copier_;
  std::unique_ptr<EventLoop> loop_;
  std::vector<TopicReport> reports_;
};

}  // namespace

absl::Status RunLogExportCommand(const LogExportCommand& command, const KafkaOptions& kafka) {
  SystemClock clock;
  Metrics metrics;
  ASSIGN_OR_RETURN(const std::unique_ptr<LogInspector> from, LogInspector::Open(command.directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<KafkaLog> to, KafkaLog::Open(kafka, clock, metrics));
  RETURN_IF_ERROR(to->Ping(kPing));
  return Export(command, kafka, *from, *to, clock).Run();
}

}  // namespace postrider
