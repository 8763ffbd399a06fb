#include "core/embedded_log/inspect.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/embedded_log/internal/catalogue.h"
#include "core/embedded_log/internal/database.h"
#include "core/embedded_log/internal/log_directory.h"
#include "core/embedded_log/internal/partition.h"
#include "core/embedded_log/internal/positions.h"
#include "core/embedded_log/internal/run.h"
#include "core/embedded_log/internal/run_key.h"

namespace postrider {
namespace {

constexpr std::chrono::milliseconds kTombstonesStayMost = std::chrono::hours(365 * 24);

using embedded_log_internal::Database;
using embedded_log_internal::DatabaseOptions;
using embedded_log_internal::LogDirectory;
using embedded_log_internal::PartitionId;
using embedded_log_internal::PartitionPtr;
using embedded_log_internal::RunPlace;
using embedded_log_internal::RunPtr;
using embedded_log_internal::RunReader;
using embedded_log_internal::TableDamage;
using embedded_log_internal::TopicPtr;

constexpr size_t kReadBytes = 1 << 20;
constexpr size_t kMemoryBytes = 32 << 20;

}  // namespace

struct LogInspector::Impl {
  absl::Status Load();
  absl::Status Open(const std::string& directory, DatabaseOptions::Access access);
  // Beside a service what cannot be read is not taken for damage: it may be read later.
  absl::Status CheckAllRead() const;
  const PartitionPtr* Find(const TopicPartition& tp) const;
  std::string NameOf(PartitionId id, int64_t offset) const;
  void VerifyPartition(const TopicState& topic, const PartitionPtr& partition,
                       VerifyReport& report);

  bool beside = false;  // a service
  // Before the database, which tells into it.
  std::vector<std::string> told;
  std::unique_ptr<Database> database;
  std::map<std::string, TopicPtr> topics;
  std::vector<TopicState> states;  // in their order
  std::vector<GroupPosition> positions;
  std::vector<Damage> damaged_entries;
};

namespace {

void Add(LogInspector::VerifyReport& report, std::string place, std::string meaning) {
  if (report.damages.size() >= LogInspector::kDamagesMax) return;
  report.damages.push_back({std::move(place), std::move(meaning)});
}

}  // namespace

absl::Status LogInspector::Impl::Load() {
  RETURN_IF_ERROR(database->ForEachEntry("t", [&](absl::string_view key, absl::string_view value) {
    const std::string name(key.substr(1));
    TopicPtr topic = embedded_log_internal::DecodeTopic(name, value);
    if (topic == nullptr) {
      damaged_entries.push_back({absl::StrCat("topic ", name),
                                 "its entry cannot be read, so its records cannot be reached"});
      return;
    }
    topics[name] = std::move(topic);
  }));
  RETURN_IF_ERROR(database->ForEachEntry("g", [&](absl::string_view key, absl::string_view value) {
    GroupPosition one;
    if (!embedded_log_internal::DecodePositionKey(key, &one.group, &one.tp)) {
      damaged_entries.push_back({"the positions of groups", "one of them cannot be read"});
    } else if (!embedded_log_internal::DecodePosition(value, &one.position)) {
      damaged_entries.push_back({absl::StrCat("group ", one.group, " at ", one.tp.ToString()),
                                 "its position cannot be read: the group begins there anew"});
    } else if (Find(one.tp) != nullptr) {
      positions.push_back(std::move(one));
    }
  }));
  for (const auto& [name, topic] : topics) {
    TopicState state;
    state.name = name;
    state.created = WallTimeFromMillis(topic->created_ms);
    state.frozen = topic->frozen;
    state.compacted = topic->policy.compacted;
    state.tombstones_stay = std::clamp(std::chrono::milliseconds(topic->policy.tombstone_ms),
                                       std::chrono::milliseconds(0), kTombstonesStayMost);
    state.settings = topic->settings;
    for (const PartitionPtr& partition : topic->partitions) {
      RETURN_IF_ERROR(embedded_log_internal::LoadPartition(*database, *partition));
      PartitionState& mine = state.partitions.emplace_back();
      mine.begin = partition->begin;
      mine.end = partition->end;
      mine.newest = WallTimeFromMillis(partition->high_ms);
      ASSIGN_OR_RETURN(const absl::optional<RunPlace> first,
                       database->RunAt(partition->id, partition->begin, partition->end));
      if (!first.has_value()) continue;
      mine.oldest = WallTimeFromMillis(first->header.first_ms);
      mine.bytes =
          partition->end_bytes - std::min(partition->end_bytes, first->header.bytes_before);
    }
    states.push_back(std::move(state));
  }
  // A service that met the same damage goes on behind what groups have seen.
  for (const GroupPosition& one : positions) {
    const PartitionPtr& partition = *Find(one.tp);
    if (one.position.offset <= partition->end) continue;
    damaged_entries.push_back(
        {one.tp.ToString(),
         absl::StrCat("group ", one.group, " is at ", one.position.offset,
                      ", behind the last record, ", partition->end - 1,
                      ": records at its end are lost, and the next one will be behind the group")});
  }
  return absl::OkStatus();
}

const PartitionPtr* LogInspector::Impl::Find(const TopicPartition& tp) const {
  const auto found = topics.find(tp.topic);
  if (found == topics.end() || tp.partition < 0 ||
      static_cast<size_t>(tp.partition) >= found->second->partitions.size()) {
    return nullptr;
  }
  return &found->second->partitions[static_cast<size_t>(tp.partition)];
}

std::string LogInspector::Impl::NameOf(PartitionId id, int64_t offset) const {
  for (const auto& [name, topic] : topics) {
    if (topic->id == id.topic) return absl::StrCat(name, "/", id.partition, " offset ", offset);
  }
  return "a topic that is deleted";
}

void LogInspector::Impl::VerifyPartition(const TopicState& topic, const PartitionPtr& partition,
                                         VerifyReport& report) {
  const std::string place = partition->tp.ToString();
  ++report.partitions;
  told.clear();
  int64_t next = partition->begin;
  const auto missing = [&](int64_t from, int64_t to) {
    if (topic.compacted || from >= to) return;
    Add(report, absl::StrCat(place, " offsets ", from, " to ", to - 1),
        "the records are lost, by this damage or by one that was met before; readers pass on");
  };
  while (next < partition->end) {
    absl::StatusOr<std::vector<RunPtr>> runs =
        database->ReadRuns(partition->id, next, partition->end, kReadBytes);
    if (!runs.ok()) return Add(report, place, std::string(runs.status().message()));
    for (const RunPtr& run : *runs) {
      int64_t expected = std::max(run->base, partition->begin);
      RunReader reader(*run);
      LogRecord record;
      while (reader.Next(&record)) {
        if (record.offset < partition->begin) continue;
        ++report.records;
        missing(expected, record.offset);
        expected = record.offset + 1;
      }
      if (reader.damaged()) {
        Add(report, absl::StrCat(place, " offsets ", expected, " to ", run->next - 1),
            "the records cannot be taken apart; readers pass on");
      } else {
        missing(expected, std::min(run->next, partition->end));
      }
      next = run->next;
    }
    // Of others the gap has told already.
    if (topic.compacted) {
      for (const std::string& what : told) Add(report, place, what);
    }
    told.clear();
  }
}

LogInspector::LogInspector(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LogInspector::~LogInspector() = default;

absl::StatusOr<std::unique_ptr<LogInspector>> LogInspector::Open(const std::string& directory) {
  auto impl = std::make_unique<Impl>();
  RETURN_IF_ERROR(impl->Open(directory, DatabaseOptions::Access::kLook));
  for (const std::string& what : impl->told) {
    impl->damaged_entries.push_back({"the write-ahead logs", what});
  }
  RETURN_IF_ERROR(impl->Load());
  return std::unique_ptr<LogInspector>(new LogInspector(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<LogInspector>> LogInspector::OpenBeside(
    const std::string& directory) {
  auto impl = std::make_unique<Impl>();
  impl->beside = true;
  RETURN_IF_ERROR(impl->Open(directory, DatabaseOptions::Access::kBeside));
  std::unique_ptr<LogInspector> log(new LogInspector(std::move(impl)));
  RETURN_IF_ERROR(log->CatchUp());
  return log;
}

absl::Status LogInspector::Impl::Open(const std::string& directory,
                                      DatabaseOptions::Access access) {
  DatabaseOptions options;
  options.directory = directory;
  options.memory_bytes = kMemoryBytes;
  options.access = access;
  options.on_damage = [this](absl::string_view what) {
    if (told.size() < kDamagesMax) told.emplace_back(what);
  };
  ASSIGN_OR_RETURN(database, Database::Open(options));
  return absl::OkStatus();
}

absl::Status LogInspector::Impl::CheckAllRead() const {
  if (told.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("embedded log: it cannot be read beside the service: ", told.front()));
}

absl::Status LogInspector::CatchUp() {
  POSTRIDER_CHECK(impl_->beside);
  RETURN_IF_ERROR(impl_->database->CatchUp());
  impl_->told.clear();
  impl_->topics.clear();
  impl_->states.clear();
  impl_->positions.clear();
  impl_->damaged_entries.clear();
  RETURN_IF_ERROR(impl_->Load());
  return impl_->CheckAllRead();
}

absl::StatusOr<std::unique_ptr<LogInspector::CopyHold>> LogInspector::HoldCopy(
    const std::string& directory) {
  class Hold final : public CopyHold {
   public:
    explicit Hold(std::unique_ptr<LogDirectory> held) : held_(std::move(held)) {}

   private:
    const std::unique_ptr<LogDirectory> held_;
  };
  ASSIGN_OR_RETURN(std::unique_ptr<LogDirectory> held, LogDirectory::HoldCopy(directory));
  return std::unique_ptr<CopyHold>(std::make_unique<Hold>(std::move(held)));
}

absl::Status LogInspector::MarkExported(const std::string& directory, const std::string& where) {
  return LogDirectory::MarkExported(directory, where);
}

std::vector<LogInspector::TopicState> LogInspector::Topics() const { return impl_->states; }

std::vector<LogInspector::GroupPosition> LogInspector::Positions() const {
  return impl_->positions;
}

absl::Status LogInspector::Read(const TopicPartition& tp, int64_t from,
                                absl::FunctionRef<bool(const LogRecord&)> visit) {
  const PartitionPtr* found = impl_->Find(tp);
  if (found == nullptr) {
    return absl::NotFoundError(absl::StrCat("embedded log: there is no partition ", tp.ToString()));
  }
  const PartitionPtr& partition = *found;
  if (impl_->beside) impl_->told.clear();
  const bool gaps = !impl_->beside || impl_->topics[tp.topic]->policy.compacted;
  const auto gap = [&tp](int64_t at) {
    return absl::UnavailableError(absl::StrCat("embedded log: ", tp.ToString(), " offset ", at,
                                               " cannot be read beside the service"));
  };
  int64_t next = std::max(from, partition->begin);
  while (next < partition->end) {
    ASSIGN_OR_RETURN(const std::vector<RunPtr> runs,
                     impl_->database->ReadRuns(partition->id, next, partition->end, kReadBytes));
    if (impl_->beside) RETURN_IF_ERROR(impl_->CheckAllRead());
    for (const RunPtr& run : runs) {
      int64_t expected = next;
      RunReader reader(*run);
      LogRecord record;
      while (reader.Next(&record)) {
        if (record.offset < next) continue;
        if (!gaps && record.offset != expected) return gap(expected);
        expected = record.offset + 1;
        record.topic = tp.topic;
        record.partition = tp.partition;
        if (!visit(record)) return absl::OkStatus();
      }
      next = run->next;
      if (!gaps && expected != next) return gap(expected);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LogInspector::VerifyReport> LogInspector::Verify() {
  VerifyReport report;
  for (const Damage& damage : impl_->damaged_entries) Add(report, damage.place, damage.meaning);
  size_t tables = 0;
  for (const TableDamage& damage : impl_->database->CheckTables(&tables)) {
    Add(report, absl::StrCat("table ", damage.file),
        damage.runs
            ? absl::StrCat(damage.what, "; some records between ",
                           impl_->NameOf(damage.first, damage.first_base), " and ",
                           impl_->NameOf(damage.last, damage.last_base), " cannot be read")
            : absl::StrCat(damage.what,
                           "; what it tells of topics, groups or where partitions begin may be "
                           "missing or old"));
  }
  report.tables = tables;
  for (const TopicState& topic : impl_->states) {
    for (const PartitionPtr& partition : impl_->topics[topic.name]->partitions) {
      impl_->VerifyPartition(topic, partition, report);
    }
  }
  return report;
}

std::string LogInspector::Opening() const { return impl_->database->opening(); }

std::string LogInspector::Outline() const {
  ByteWriter all(1 << 10);
  for (const TopicState& topic : impl_->states) {
    all.String(topic.name);
    all.U64(static_cast<uint64_t>(MillisSinceEpoch(topic.created)));
    for (const PartitionState& partition : topic.partitions) {
      all.U64(static_cast<uint64_t>(partition.begin));
      all.U64(static_cast<uint64_t>(partition.end));
    }
  }
  for (const GroupPosition& one : impl_->positions) {
    all.String(one.group);
    all.String(one.tp.ToString());
    all.U64(static_cast<uint64_t>(one.position.offset));
    all.String(one.position.metadata);
  }
  return all.Take();
}

}  // namespace postrider
