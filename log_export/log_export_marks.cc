#include "log_export/log_export_marks.h"

#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/crypto/random.h"
#include "core/json/json.h"
#include "core/json/time_text.h"
#include "core/stream/blocking_reader.h"
#include "core/stream/blocking_writer.h"

namespace postrider {
namespace {

constexpr std::chrono::milliseconds kTimeout{120'000};
constexpr int16_t kReplication = 3;
constexpr char kStateKey[] = "export";
constexpr char kRunKey[] = "run";
constexpr char kTopicKey[] = "topic/";

using State = LogExportMarks::State;
constexpr std::array<std::pair<State, const char*>, 3> kStates = {
    {{State::kBegun, "begun"}, {State::kPositions, "positions"}, {State::kDone, "done"}}};

std::string NewRun() {
  std::string bytes(16, '\0');
  FillRandom(bytes.data(), bytes.size());
  return absl::BytesToHexString(bytes);
}

// Empty: it has none.
std::string Text(const JsonValue& mark, absl::string_view name) {
  const JsonValue* value = mark.Find(name);
  return value != nullptr && value->is_string() ? *value->string() : std::string();
}

}  // namespace

LogExportMarks::LogExportMarks(Log& to, const Clock& clock, std::string name)
    : to_(to), clock_(clock), name_(std::move(name)), run_(NewRun()) {}

absl::Status LogExportMarks::Unreadable() const {
  return absl::FailedPreconditionError(
      absl::StrCat("log export: what stands in the topic ", name_, " cannot be read"));
}

absl::Status LogExportMarks::Load() {
  state_ = State::kNone;
  outline_.clear();
  last_run_.clear();
  topics_.clear();
  const absl::StatusOr<int32_t> there = to_.Partitions(name_, kTimeout);
  if (absl::IsNotFound(there.status())) return absl::OkStatus();
  RETURN_IF_ERROR(there.status());
  ASSIGN_OR_RETURN(const std::unique_ptr<BlockingReader> reader,
                   BlockingReader::Open(to_, clock_, BlockingReaderOptions()));
  return reader->ReadAll({name_, 0}, [this](const LogRecord& record) { return Take(record); });
}

absl::Status LogExportMarks::Take(const LogRecord& record) {
  absl::string_view key = record.key;
  const absl::StatusOr<JsonValue> mark = JsonValue::Parse(record.value);
  if (!mark.ok()) return Unreadable();
  if (key == kRunKey) {
    last_run_ = Text(*mark, "run");
  } else if (key == kStateKey) {
    const std::string word = Text(*mark, "state");
    outline_ = Text(*mark, "log");
    for (const auto& [state, name] : kStates) {
      if (word != name) continue;
      state_ = state;
      return absl::OkStatus();
    }
    return Unreadable();
  } else if (absl::ConsumePrefix(&key, kTopicKey)) {
    Topic& topic = topics_[std::string(key)];
    topic.spoiled = Text(*mark, "spoiled");
    if (!absl::SimpleAtoi(Text(*mark, "created_ms"), &topic.created_ms)) return Unreadable();
  }
  return absl::OkStatus();
}

absl::Status LogExportMarks::Take() {
  TopicSpec spec;
  spec.name = name_;
  spec.replication = kReplication;
  spec.settings = {{"cleanup.policy", "compact"}};
  RETURN_IF_ERROR(to_.EnsureTopics({spec}, kTimeout));
  const std::string run =
      JsonValue::MakeObject({{"run", run_}, {"time", FormatRfc3339(clock_.Wall())}}).Serialize();
  RETURN_IF_ERROR(Write({{kRunKey, run}}));
  last_run_ = run_;
  return state_ == State::kNone ? Set(State::kBegun, "") : absl::OkStatus();
}

absl::Status LogExportMarks::CheckTaken() {
  RETURN_IF_ERROR(Load());
  if (last_run_ == run_) return absl::OkStatus();
  return absl::AbortedError(
      "log export: another run of it has begun since, on this machine or elsewhere; this one ends");
}

absl::Status LogExportMarks::Set(State state, absl::string_view outline) {
  std::string word;
  for (const auto& [one, name] : kStates) {
    if (one == state) word = name;
  }
  state_ = state;
  outline_ = std::string(outline);
  return Write(
      {{kStateKey, JsonValue::MakeObject(
                       {{"log", outline_}, {"state", word}, {"time", FormatRfc3339(clock_.Wall())}})
                       .Serialize()}});
}

absl::Status LogExportMarks::SetTopics(const std::map<std::string, Topic>& topics) {
  std::vector<std::pair<std::string, std::string>> marks;
  for (const auto& [name, topic] : topics) {
    topics_[name] = topic;
    marks.emplace_back(absl::StrCat(kTopicKey, name),
                       JsonValue::MakeObject({{"created_ms", absl::StrCat(topic.created_ms)},
                                              {"spoiled", topic.spoiled}})
                           .Serialize());
  }
  return marks.empty() ? absl::OkStatus() : Write(marks);
}

absl::Status LogExportMarks::Write(const std::vector<std::pair<std::string, std::string>>& marks) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BlockingWriter> writer,
                   BlockingWriter::Open(to_, clock_, BlockingWriterOptions()));
  for (const auto& [key, value] : marks) {
    AppendRecord record;
    record.topic = name_;
    record.key = key;
    record.value = value;
    RETURN_IF_ERROR(writer->Append(std::move(record)));
  }
  return writer->Flush();
}

}  // namespace postrider
