#include "log_export/log_export.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "core/base/status_macros.h"
#include "core/crypto/digest.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Positions = LogExportTarget::Positions;
using State = LogExportMarks::State;

constexpr milliseconds kTimeout{120'000};
constexpr int16_t kReplication = 3;
// So many records at the end of what is in Kafka are compared before it is gone on with.
constexpr int64_t kTailRecords = 100;
constexpr seconds kLookWhoHasIt{10};
constexpr int64_t kLookAtTimeEvery = 1'000;
// Where tombstones go sooner, state is copied by the last step alone.
constexpr std::chrono::minutes kTombstonesStayLeast{10};
// In rounds a partition is trimmed when so much is to go.
constexpr int64_t kTrimRecords = 10'000;

// kUnavailable is what the embedded log says.
absl::Status OfKafka(const absl::Status& status) {
  return absl::IsUnavailable(status) ? absl::DeadlineExceededError(status.message()) : status;
}

TopicPartition At(const LogInspector::TopicState& topic, size_t partition) {
  return {topic.name, static_cast<int32_t>(partition)};
}

// Not its time, which brokers may set.
Sha256Digest DigestOf(const LogRecord& record) {
  ByteWriter all(record.key.size() + record.value.size() + 64);
  all.String(record.key);
  all.U64(record.value.data() == nullptr ? 0 : 1);
  all.String(record.value);
  for (const RecordHeader& header : record.headers) {
    all.String(header.name);
    all.String(header.value);
  }
  return Sha256(all.bytes());
}

LogExportTarget::Groups GroupsOf(const LogInspector& from) {
  LogExportTarget::Groups groups;
  for (const LogInspector::GroupPosition& one : from.Positions()) {
    groups[one.group].push_back({one.tp, one.position});
  }
  return groups;
}

TopicSpec SpecOf(const LogInspector::TopicState& topic) {
  TopicSpec spec;
  spec.name = topic.name;
  spec.partitions = static_cast<int32_t>(topic.partitions.size());
  spec.replication = kReplication;
  spec.settings = topic.settings;
  return spec;
}

absl::Status OfOthers(const std::string& topic) {
  return absl::FailedPreconditionError(
      absl::StrCat("log export: topic ", topic,
                   " is in Kafka already and has had records that are not of this export; "
                   "delete it, or export to another cluster"));
}

// Where no group has a position, offsets of a compacted topic mean nothing to anybody: changelogs
// and the like are read from their begin to their end.
bool Renumbered(const LogInspector::TopicState& topic,
                const std::map<TopicPartition, int64_t>& farthest) {
  if (!topic.compacted) return false;
  for (size_t i = 0; i < topic.partitions.size(); ++i) {
    if (farthest.count(At(topic, i)) > 0) return false;
  }
  return true;
}

}  // namespace

LogExport::LogExport(const LogExportOptions& options, const KafkaOptions& kafka, Log& to,
                     const Clock& clock, absl::AnyInvocable<void()> tick)
    : options_(options),
      kafka_(kafka),
      to_(to),
      clock_(clock),
      tick_(std::move(tick)),
      marks_(to, clock, absl::StrCat(kafka.prefix, "log-export")) {}

absl::StatusOr<LogExport::Round> LogExport::CopyRound(LogInspector& from) {
  CompareAnewIfReopened(from);
  NoteFarthest(from);
  round_began_ = clock_.Now();
  RETURN_IF_ERROR(OfKafka(Begin(from)));
  Round round;
  const int64_t before = copied_;
  round_end_ = clock_.Now() + options_.round_max;
  for (const TopicState& topic : from.Topics()) {
    const bool state = Renumbered(topic, farthest_);
    if (topic.compacted && (!state || topic.tombstones_stay < kTombstonesStayLeast)) continue;
    for (size_t i = 0; i < topic.partitions.size(); ++i) {
      if (RoundIsOver()) {
        round.cut = true;
        break;
      }
      const absl::Status copied = state ? CopyRenumbered(from, topic, i, Step::kRound)
                                        : CopyAsItIs(from, topic, i, Step::kRound);
      // From the log: Kafka's silence ends the copier, which EndCopy() then says.
      if (absl::IsUnavailable(copied)) {
        ++round.unread;
      } else {
        RETURN_IF_ERROR(copied);
      }
      tick_();
    }
  }
  round.cut = round.cut || RoundIsOver();
  RETURN_IF_ERROR(EndCopy());
  round.records = copied_ - before;
  return round;
}

absl::Status LogExport::Finish(LogInspector& from, absl::FunctionRef<absl::Status()> close) {
  CompareAnewIfReopened(from);
  RETURN_IF_ERROR(OpenTarget());
  const std::string outline = HexDigest(Sha256(from.Outline()));
  NoteFarthest(from);
  round_began_ = clock_.Now();
  if (!begun_) {
    RETURN_IF_ERROR(marks_.Load());
    const State state = marks_.state();
    if (state == State::kDone && marks_.outline() == outline) {
      RETURN_IF_ERROR(close());
      return absl::AlreadyExistsError("");
    }
    if (state == State::kPositions && marks_.outline() == outline) {
      RETURN_IF_ERROR(target_->CheckGroups(GroupsOf(from), Positions::kTheSame));
      RETURN_IF_ERROR(marks_.Take());
      RETURN_IF_ERROR(close());
      RETURN_IF_ERROR(target_->SetPositions(GroupsOf(from)));
      return marks_.Set(State::kDone, outline);
    }
  }
  if (begun_) RETURN_IF_ERROR(marks_.CheckTaken());
  RETURN_IF_ERROR(Begin(from));
  RETURN_IF_ERROR(target_->CheckGroups(GroupsOf(from), Positions::kNone));
  RETURN_IF_ERROR(CheckFillers(from));
  const std::vector<TopicState> topics = from.Topics();
  for (const TopicState& topic : topics) {
    TopicReport& report = reports_[topic.name];
    report.renumbered = Renumbered(topic, farthest_);
    const int64_t before = report.records;
    for (size_t i = 0; i < topic.partitions.size(); ++i) {
      RETURN_IF_ERROR(report.renumbered ? CopyRenumbered(from, topic, i, Step::kLast)
                                        : CopyAsItIs(from, topic, i, Step::kLast));
      tick_();
    }
    report.last = report.records - before;
  }
  RETURN_IF_ERROR(EndCopy());
  RETURN_IF_ERROR(CheckEnds());
  for (const TopicState& topic : topics) {
    if (topic.frozen) RETURN_IF_ERROR(to_.FreezeTopic(topic.name, kTimeout));
  }
  RETURN_IF_ERROR(marks_.CheckTaken());
  RETURN_IF_ERROR(close());
  RETURN_IF_ERROR(marks_.Set(State::kPositions, outline));
  RETURN_IF_ERROR(target_->SetPositions(GroupsOf(from)));
  return marks_.Set(State::kDone, outline);
}

bool LogExport::RoundIsOver() const { return clock_.Now() >= round_end_; }

void LogExport::CompareAnewIfReopened(const LogInspector& from) {
  if (from.Opening() == opening_) return;
  opening_ = from.Opening();
  next_.clear();
  begin_.clear();
  state_.clear();
  touched_.clear();
}

void LogExport::NoteFarthest(const LogInspector& from) {
  farthest_.clear();
  for (const GroupPosition& one : from.Positions()) {
    int64_t& farthest = farthest_[one.tp];
    farthest = std::max(farthest, one.position.offset);
  }
}

void LogExport::LeaveKafka() {
  copier_.reset();
  next_.clear();
  begin_.clear();
  state_.clear();
  touched_.clear();
  put_.clear();
  trim_.clear();
}

// What is there is this export's or nobody's; topics that have come since the last time are made.
absl::Status LogExport::Begin(const LogInspector& from) {
  if (begun_) {
    if (clock_.Now() - checked_ >= kLookWhoHasIt) {
      RETURN_IF_ERROR(marks_.CheckTaken());
      checked_ = clock_.Now();
    }
    RETURN_IF_ERROR(CheckSameLog(from.Topics()));
    if (copier_ == nullptr) {
      RETURN_IF_ERROR(target_->Settle(from.Topics(), options_.settle));
      ASSIGN_OR_RETURN(copier_, PartitionCopier::Open(kafka_, {}));
    }
    RETURN_IF_ERROR(TakeTopics(from));
    return RemakeState(from);
  }
  RETURN_IF_ERROR(OpenTarget());
  const std::vector<TopicState> topics = from.Topics();
  RETURN_IF_ERROR(marks_.Load());
  const State before = marks_.state();
  if (before == State::kDone || before == State::kPositions) {
    return absl::FailedPreconditionError(absl::StrCat(
        "log export: an export to this Kafka has come to its end, of another log or of this one "
        "before a service ran on it again. To export anew delete the topics that it has made "
        "there, and ",
        marks_.name()));
  }
  RETURN_IF_ERROR(CheckSameLog(topics));
  // All that may be refused is looked at before anything is made.
  for (const TopicState& topic : topics) {
    ASSIGN_OR_RETURN(const bool has, target_->HasRecords(topic));
    if (has && marks_.topics().count(topic.name) == 0) return OfOthers(topic.name);
  }
  RETURN_IF_ERROR(target_->CheckGroups(GroupsOf(from), Positions::kNone));
  RETURN_IF_ERROR(CheckFillers(from));
  if (before == State::kBegun) RETURN_IF_ERROR(target_->Settle(topics, options_.settle));
  RETURN_IF_ERROR(marks_.Take());
  checked_ = clock_.Now();
  RETURN_IF_ERROR(TakeTopics(from));
  RETURN_IF_ERROR(RemakeState(from));
  ASSIGN_OR_RETURN(reader_, BlockingReader::Open(to_, clock_, BlockingReaderOptions()));
  ASSIGN_OR_RETURN(copier_, PartitionCopier::Open(kafka_, {}));
  begun_ = true;
  return absl::OkStatus();
}

absl::Status LogExport::OpenTarget() {
  if (target_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(target_, LogExportTarget::Open(to_, clock_));
  return absl::OkStatus();
}

absl::Status LogExport::CheckSameLog(const std::vector<TopicState>& topics) const {
  bool known = marks_.topics().empty();
  for (const TopicState& topic : topics) {
    const auto found = marks_.topics().find(topic.name);
    if (found == marks_.topics().end()) continue;
    known = known || found->second.created_ms == MillisSinceEpoch(topic.created);
    if (found->second.created_ms == MillisSinceEpoch(topic.created)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "log export: the export that is begun in this Kafka is of another log, or topic ",
        topic.name,
        " was made anew here since. To export anew delete the topics that it has made "
        "there, and ",
        marks_.name()));
  }
  if (known) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("log export: the export that is begun in this Kafka is of another log. To "
                   "export this one delete the topics that it has made there, and ",
                   marks_.name()));
}

absl::Status LogExport::TakeTopics(const LogInspector& from) {
  std::vector<TopicSpec> specs;
  std::map<std::string, LogExportMarks::Topic> marks;
  for (const TopicState& topic : from.Topics()) {
    if (taken_.count(topic.name) > 0) continue;
    specs.push_back(SpecOf(topic));
    const auto mark = marks_.topics().find(topic.name);
    const bool known = mark != marks_.topics().end();
    if (known && mark->second.spoiled.empty()) continue;
    ASSIGN_OR_RETURN(const bool has, target_->HasRecords(topic));
    if (has && known) return Spoil(topic.name, mark->second.spoiled);
    if (has) return OfOthers(topic.name);
    marks[topic.name] = {MillisSinceEpoch(topic.created), ""};
  }
  if (specs.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(marks_.SetTopics(marks));
  RETURN_IF_ERROR(to_.EnsureTopics(specs, kTimeout));
  for (const TopicSpec& spec : specs) taken_.insert(spec.name);
  return absl::OkStatus();
}

absl::Status LogExport::CheckFillers(const LogInspector& from) {
  int64_t fillers = 0;
  for (const TopicState& topic : from.Topics()) {
    if (topic.compacted && Renumbered(topic, farthest_)) continue;
    ASSIGN_OR_RETURN(const bool there, target_->Has(topic.name));
    for (size_t i = 0; i < topic.partitions.size(); ++i) {
      Log::Range range;
      const auto known = next_.find(At(topic, i));
      if (known != next_.end()) {
        range.end = known->second;
      } else if (there) {
        ASSIGN_OR_RETURN(range, target_->Offsets(At(topic, i)));
      }
      fillers += std::max<int64_t>(0, topic.partitions[i].begin - range.end);
    }
  }
  if (fillers <= options_.fillers_max) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "log export: offsets stay what they are, so ", fillers,
      " records must be written to Kafka and deleted again for those that are gone here; that is "
      "more than --fillers-max=",
      options_.fillers_max, ". Give a higher one: a million takes some seconds"));
}

// State of which nothing is known, for an earlier run has begun to copy it, or that is too old, is
// copied anew: what was copied may have been compacted here since, its tombstones too.
absl::Status LogExport::RemakeState(const LogInspector& from) {
  for (const TopicState& topic : from.Topics()) {
    const auto known = state_.find(At(topic, 0));
    if (!Renumbered(topic, farthest_)) {
      // A group has come to have a position in it: offsets are to stay what they are.
      if (known != state_.end()) RETURN_IF_ERROR(Remake(topic));
      continue;
    }
    bool good = known != state_.end();
    for (size_t i = 0; good && i < topic.partitions.size(); ++i) {
      const StateCopy& copy = state_[At(topic, i)];
      good = copy.at == 0 || round_began_ - copy.was_whole < topic.tombstones_stay / 2;
    }
    if (good) continue;
    RETURN_IF_ERROR(Remake(topic));
    for (size_t i = 0; i < topic.partitions.size(); ++i) {
      next_[At(topic, i)] = 0;
      state_[At(topic, i)] = {};
    }
  }
  return absl::OkStatus();
}

absl::Status LogExport::Remake(const TopicState& topic) {
  for (size_t i = 0; i < topic.partitions.size(); ++i) {
    next_.erase(At(topic, i));
    state_.erase(At(topic, i));
  }
  ASSIGN_OR_RETURN(const bool has, target_->HasRecords(topic));
  if (has) RETURN_IF_ERROR(OfKafka(to_.DeleteTopic(topic.name, kTimeout)));
  // Also where a run before was cut short between the two.
  return OfKafka(to_.EnsureTopics({SpecOf(topic)}, kTimeout));
}

// Where Kafka goes on; what lies before is this partition's.
absl::StatusOr<int64_t> LogExport::NextOf(LogInspector& from, const TopicState& topic,
                                          const TopicPartition& tp, int64_t begin, int64_t end) {
  const auto known = next_.find(tp);
  if (known != next_.end()) return known->second;
  ASSIGN_OR_RETURN(const Log::Range there, target_->Offsets(tp));
  // What freezing appends lies behind the end.
  const bool frozen = topic.frozen && there.end > end;
  const int64_t low = std::max({there.begin, begin, std::min(there.end, end) - kTailRecords});
  // Later what is here reaches as far, and is compared then.
  if (there.end > end && !frozen) return there.end;
  RETURN_IF_ERROR(CheckTail(from, topic, tp, low, std::min(there.end, end)));
  next_[tp] = there.end;
  begin_[tp] = there.begin;
  return there.end;
}

absl::Status LogExport::CheckTail(LogInspector& from, const TopicState& topic,
                                  const TopicPartition& tp, int64_t low, int64_t end) {
  if (low >= end) return absl::OkStatus();
  std::map<int64_t, Sha256Digest> there;
  RETURN_IF_ERROR(OfKafka(reader_->ReadFrom(tp, low, end, [&](const LogRecord& record) {
    there[record.offset] = DigestOf(record);
    return absl::OkStatus();
  })));
  int64_t wrong = -1;
  int64_t absent = -1;
  RETURN_IF_ERROR(from.Read(tp, low, [&](const LogRecord& record) {
    if (record.offset >= end) return false;
    const auto found = there.find(record.offset);
    if (found == there.end()) {
      absent = record.offset;
    } else if (found->second != DigestOf(record)) {
      wrong = record.offset;
    }
    return wrong < 0;
  }));
  if (wrong < 0 && absent >= 0 && !topic.compacted) {
    // Retention there may have taken it just now.
    ASSIGN_OR_RETURN(const Log::Range now, target_->Offsets(tp));
    if (absent >= now.begin) wrong = absent;
  }
  if (wrong < 0) return absl::OkStatus();
  return Spoil(topic.name, absl::StrCat("in partition ", tp.partition, " offset ", wrong,
                                        " has another record"));
}

absl::Status LogExport::CopyAsItIs(LogInspector& from, const TopicState& topic, size_t number,
                                   Step step) {
  const TopicPartition tp = At(topic, number);
  const PartitionState& partition = topic.partitions[number];
  int64_t end = partition.end;
  if (step == Step::kLast) {
    // As a service would go on that has lost the end: behind what groups have seen.
    const auto farthest = farthest_.find(tp);
    if (farthest != farthest_.end()) end = std::max(end, farthest->second);
  }
  ASSIGN_OR_RETURN(const int64_t next, NextOf(from, topic, tp, partition.begin, end));
  if (next > end) {
    if (topic.frozen) return absl::OkStatus();
    if (step == Step::kRound) {
      next_.erase(tp);  // and is compared again when it can be
      return absl::UnavailableError("not all of it can be read");
    }
    return Spoil(topic.name, absl::StrCat("partition ", tp.partition, " has ", next,
                                          " records there and ", end, " here"));
  }
  TopicReport& report = reports_[topic.name];
  absl::Status put;
  int64_t at = std::max(next, partition.begin);
  if (next < std::max(end, partition.begin)) copier_->Begin(tp, next);
  if (next < partition.begin) {
    put = copier_->Fill(partition.begin, partition.oldest);
    report.fillers += partition.begin - next;
  }
  absl::Status read;
  if (put.ok() && at < partition.end) {
    read = from.Read(tp, at, [&](const LogRecord& record) {
      put = copier_->Put(record);
      if (!put.ok()) return false;
      report.missing += record.offset - at;
      at = record.offset + 1;
      ++report.records;
      ++copied_;
      return step == Step::kLast || copied_ % kLookAtTimeEvery != 0 || !RoundIsOver();
    });
  }
  if (put.ok() && read.ok() && step == Step::kLast && at < end) {
    put = copier_->Fill(end, partition.newest);
    report.missing += end - at;
  }
  if (!put.ok()) return Fault(put);
  if (next < std::max(end, partition.begin)) {
    put_[tp] = copier_->next();
    touched_.insert(tp);
  }
  const int64_t gone = partition.begin - begin_[tp];
  if (gone > (step == Step::kLast ? 0 : kTrimRecords)) trim_[tp] = partition.begin;
  return read;
}

absl::Status LogExport::CopyRenumbered(LogInspector& from, const TopicState& topic, size_t number,
                                       Step step) {
  const TopicPartition tp = At(topic, number);
  const PartitionState& partition = topic.partitions[number];
  StateCopy& copy = state_[tp];
  if (copy.at < partition.end) {
    if (copy.at == 0) copy.was_whole = round_began_;
    TopicReport& report = reports_[topic.name];
    copier_->Begin(tp, next_[tp]);
    absl::Status put;
    bool cut = false;
    const absl::Status read = from.Read(tp, copy.at, [&](const LogRecord& record) {
      LogRecord mine = record;
      mine.offset = copier_->next();
      put = copier_->Put(mine);
      if (!put.ok()) return false;
      copy.at = record.offset + 1;
      ++report.records;
      ++copied_;
      cut = step == Step::kRound && copied_ % kLookAtTimeEvery == 0 && RoundIsOver();
      return !cut;
    });
    if (!put.ok()) return Fault(put);
    put_[tp] = copier_->next();
    touched_.insert(tp);
    RETURN_IF_ERROR(read);
    if (cut) return absl::OkStatus();
    copy.at = partition.end;
  }
  copy.was_whole = round_began_;
  return absl::OkStatus();
}

absl::Status LogExport::EndCopy() {
  const absl::Status ended = copier_->End();
  if (!ended.ok()) return Fault(ended);
  for (const auto& [tp, next] : put_) next_[tp] = next;
  put_.clear();
  for (const auto& [tp, begin] : trim_) begin_[tp] = begin;
  return OfKafka(target_->Trim(std::exchange(trim_, {})));
}

absl::Status LogExport::CheckEnds() {
  for (const TopicPartition& tp : touched_) {
    ASSIGN_OR_RETURN(const Log::Range there, target_->Offsets(tp));
    if (there.end == next_[tp]) continue;
    return Spoil(tp.topic, absl::StrCat("partition ", tp.partition, " ends at ", there.end,
                                        " and not at ", next_[tp]));
  }
  return absl::OkStatus();
}

absl::Status LogExport::Fault(const absl::Status& status) {
  if (absl::IsAborted(status)) return Spoil(copier_->fault_tp().topic, status.message());
  return OfKafka(status);
}

// That the mark cannot be written is no matter: the next run finds the fault again.
absl::Status LogExport::Spoil(const std::string& topic, absl::string_view why) {
  LogExportMarks::Topic mark;
  const auto found = marks_.topics().find(topic);
  if (found != marks_.topics().end()) mark = found->second;
  mark.spoiled = std::string(why);
  const absl::Status written = marks_.SetTopics({{topic, mark}});
  return absl::FailedPreconditionError(absl::StrCat(
      "log export: topic ", topic, " in Kafka is not as it is here: ", why,
      ". A service has run there, or two exports have written to it. If a service has, leave it "
      "and export to another cluster; else delete the topic there and run the export again, which "
      "copies it anew",
      written.ok() ? "" : " (this could not be noted there)"));
}

int64_t LogExport::BehindOf(const LogInspector& from) const {
  int64_t behind = 0;
  for (const TopicState& topic : from.Topics()) {
    for (size_t i = 0; i < topic.partitions.size(); ++i) {
      const TopicPartition tp = At(topic, i);
      const PartitionState& partition = topic.partitions[i];
      const auto next = next_.find(tp);
      const auto state = state_.find(tp);
      const int64_t there = state != state_.end() ? state->second.at
                            : next != next_.end() ? next->second
                                                  : 0;
      behind += std::max<int64_t>(0, partition.end - std::max(there, partition.begin));
    }
  }
  return behind;
}

}  // namespace postrider
