#include "core/state/savepoint.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/state/durable_state_reader.h"
#include "core/state/internal/durable_file.h"
#include "core/stream/blocking_reader.h"
#include "core/stream/blocking_writer.h"
#include "core/stream/changelog.h"
#include "core/stream/control_follower.h"
#include "core/stream/control_record.h"
#include "core/stream/hole_map.h"
#include "core/stream/keyed_state.h"
#include "core/stream/record.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;

constexpr size_t kManifestBytesMax = 64 << 20;

absl::Status Refused(absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat("savepoint: ", what));
}
absl::Status With(const absl::Status& status, absl::string_view more) {
  return absl::Status(status.code(), absl::StrCat(status.message(), more));
}

TopicPartition Part(const std::string& topic, size_t partition) {
  return TopicPartition{topic, static_cast<int32_t>(partition)};
}

// One record of the control topic, acknowledged.
absl::Status WriteControl(Log& log, const Clock& clock, const std::string& topic, std::string key,
                          absl::optional<std::string> value, milliseconds timeout) {
  BlockingWriterOptions options;
  options.silence_max = timeout;
  ASSIGN_OR_RETURN(const std::unique_ptr<BlockingWriter> writer,
                   BlockingWriter::Open(log, clock, options));
  AppendRecord record;
  record.topic = topic;
  record.partition = 0;
  record.key = std::move(key);
  record.tombstone = !value.has_value();
  if (value) record.value = *std::move(value);
  RETURN_IF_ERROR(writer->Append(std::move(record)));
  return writer->Flush();
}

// The number of key groups, when all topics of the pool agree.
absl::StatusOr<size_t> KeyGroups(Log& log, const SavepointPool& pool, milliseconds timeout) {
  if (pool.pool.empty() || absl::StrContains(pool.pool, '/')) {
    return absl::InvalidArgumentError("savepoint: a pool's name is not empty and has no '/'");
  }
  const absl::StatusOr<int32_t> key_groups = log.Partitions(pool.topic, timeout);
  if (absl::IsNotFound(key_groups.status())) {
    return Refused(
        absl::StrCat("there is no pool '", pool.pool, "': topic ", pool.topic, " does not exist"));
  }
  RETURN_IF_ERROR(key_groups.status());
  for (const std::string& changelog : pool.changelogs) {
    const absl::StatusOr<int32_t> partitions = log.Partitions(changelog, timeout);
    if (absl::IsNotFound(partitions.status())) {
      return Refused(absl::StrCat("topic ", changelog,
                                  " does not exist: no worker of this version has run yet"));
    }
    RETURN_IF_ERROR(partitions.status());
    if (*partitions != *key_groups) {
      return Refused(absl::StrCat("topic ", changelog, " has ", *partitions, " partitions and ",
                                  pool.topic, " has ", *key_groups, ": they must be as many"));
    }
  }
  return static_cast<size_t>(*key_groups);
}

absl::StatusOr<Log::GroupState> Positions(Log& log, const SavepointPool& pool, size_t key_groups,
                                          milliseconds timeout) {
  std::vector<TopicPartition> partitions;
  for (size_t i = 0; i < key_groups; ++i) partitions.push_back(Part(pool.topic, i));
  ASSIGN_OR_RETURN(Log::GroupState state, log.DescribeGroup(pool.group, partitions, timeout));
  // In the order of the partitions, whatever the log's is.
  std::sort(state.partitions.begin(), state.partitions.end(),
            [](const AssignedPartition& a, const AssignedPartition& b) { return a.tp < b.tp; });
  if (state.partitions.size() != key_groups) {
    return absl::InternalError("savepoint: the log did not say all positions of the group");
  }
  return state;
}

absl::StatusOr<ControlState> Control(Log& log, const Clock& clock, const std::string& topic,
                                     milliseconds timeout) {
  const absl::StatusOr<int32_t> partitions = log.Partitions(topic, timeout);
  if (absl::IsNotFound(partitions.status())) {
    return Refused(
        absl::StrCat("topic ", topic, " does not exist: no process of this version has run yet"));
  }
  RETURN_IF_ERROR(partitions.status());
  return ReadControl(log, clock, topic);
}

// Nothing that `key_groups` need may be gone.
absl::Status CheckNotTrimmed(Log& log, const SavepointManifest& manifest, milliseconds timeout) {
  for (size_t i = 0; i < manifest.key_groups.size(); ++i) {
    const TopicPartition tp = Part(manifest.topic, i);
    ASSIGN_OR_RETURN(const Log::Range range, log.Offsets(tp, timeout));
    if (manifest.key_groups[i].offset >= range.begin) continue;
    return Refused(absl::StrCat("the committed position of ", tp.ToString(), ", ",
                                manifest.key_groups[i].offset, ", lies below the log's start, ",
                                range.begin, ": let the pool's workers go on from there first"));
  }
  return absl::OkStatus();
}

// --- Create --------------------------------------------------------------------------------------

absl::Status WriteState(Log& log, const Clock& clock, const CreateSavepointOptions& options,
                        SavepointManifest& manifest) {
  BlockingReaderOptions reading;
  reading.silence_max = options.timeout;
  ASSIGN_OR_RETURN(const std::unique_ptr<BlockingReader> reader,
                   BlockingReader::Open(log, clock, reading));
  DurableStateReader states(*reader, options.directory);
  const size_t changelogs = manifest.changelogs.size();
  for (size_t i = 0; i < manifest.key_groups.size(); ++i) {
    // The last changelog's end is taken first: what an earlier one says of it (that an endpoint has
    // a backlog) was written before, and is then in the part that is read.
    std::vector<int64_t> ends(changelogs);
    for (size_t j = changelogs; j-- > 0;) {
      ASSIGN_OR_RETURN(const Log::Range range,
                       log.Offsets(Part(manifest.changelogs[j], i), options.timeout));
      ends[j] = range.end;
    }
    for (size_t j = 0; j < changelogs; ++j) {
      ASSIGN_OR_RETURN(const std::unique_ptr<SavepointFileWriter> file,
                       SavepointFileWriter::Create(options.directory, SavepointFileName(j, i)));
      const auto add = [&](const DurableEntry& entry) { return file->Add(entry); };
      RETURN_IF_ERROR(states.Read(Part(manifest.changelogs[j], i), ends[j], add).status());
      ASSIGN_OR_RETURN(SavepointFileFigures figures, file->Finish());
      manifest.key_groups[i].files.push_back(figures);
    }
  }
  return absl::OkStatus();
}

absl::Status WriteManifest(const std::string& directory, const SavepointManifest& manifest) {
  ASSIGN_OR_RETURN(const std::unique_ptr<DurableFile> file,
                   DurableFile::Create(directory, std::string(kSavepointManifestName)));
  RETURN_IF_ERROR(file->Append(EncodeSavepointManifest(manifest)));
  return file->Commit();
}

// --- Restore -------------------------------------------------------------------------------------

class Restore {
 public:
  Restore(Log& log, const Clock& clock, const SavepointPool& pool,
          const RestoreSavepointOptions& options)
      : log_(log), clock_(clock), pool_(pool), options_(options) {}

  absl::StatusOr<RestoreReport> Run() {
    ASSIGN_OR_RETURN(report_.manifest, VerifySavepoint(options_.directory));
    RETURN_IF_ERROR(CheckTarget());
    RETURN_IF_ERROR(ComputePositions());
    RETURN_IF_ERROR(Step());
    RETURN_IF_ERROR(PutMark());
    absl::Status status = Change();
    if (status.ok()) return std::move(report_);
    return With(status, absl::StrCat("; the restore of pool ", pool_.pool,
                                     " is not finished and its workers do not start until it is: "
                                     "run it again"));
  }

 private:
  const SavepointManifest& manifest() const { return report_.manifest; }
  size_t key_groups() const { return manifest().key_groups.size(); }
  absl::Status Step() const {
    return options_.before_step ? options_.before_step() : absl::OkStatus();
  }

  absl::Status CheckTarget() {
    const SavepointManifest& m = manifest();
    if (m.pool != pool_.pool) {
      return Refused(absl::StrCat("it is of pool '", m.pool, "', not of '", pool_.pool, "'"));
    }
    if (m.topic != pool_.topic || m.group != pool_.group || m.changelogs != pool_.changelogs) {
      return Refused(absl::StrCat("it is of another installation: of topics ", m.topic, ", ",
                                  absl::StrJoin(m.changelogs, ", "), ", not of ", pool_.topic, ", ",
                                  absl::StrJoin(pool_.changelogs, ", "), "; look at kafka.prefix"));
    }
    ASSIGN_OR_RETURN(const size_t now, KeyGroups(log_, pool_, options_.timeout));
    if (now != key_groups()) {
      return Refused(absl::StrCat("it has ", key_groups(), " key groups and pool '", pool_.pool,
                                  "' has ", now, ": rescale the pool to as many first"));
    }
    ASSIGN_OR_RETURN(control_, Control(log_, clock_, pool_.control_topic, options_.timeout));
    if (!control_.log_identity || *control_.log_identity != m.log_identity) {
      return Refused("it is of another Kafka cluster, or of one that was made anew since");
    }
    ASSIGN_OR_RETURN(before_, Positions(log_, pool_, now, options_.timeout));
    return CheckStopped(before_);
  }

  absl::Status CheckStopped(const Log::GroupState& state) const {
    if (state.members == 0) return absl::OkStatus();
    return Refused(absl::StrCat("pool '", pool_.pool, "' is running (group ", pool_.group, " has ",
                                state.members,
                                " members): stop its workers, and after a crash "
                                "wait until their session has ended"));
  }

  // Where each key group goes on, and what that costs. Changes nothing.
  absl::Status ComputePositions() {
    const bool again = control_.restores.contains(pool_.pool);
    uint64_t repeated = 0;
    for (size_t i = 0; i < key_groups(); ++i) {
      const SavepointManifest::KeyGroup& saved = manifest().key_groups[i];
      const TopicPartition tp = Part(pool_.topic, i);
      ASSIGN_OR_RETURN(const Log::Range range, log_.Offsets(tp, options_.timeout));
      if (saved.offset > range.end) {
        return Refused(absl::StrCat("its position in ", tp.ToString(), ", ", saved.offset,
                                    ", lies past the log's end, ", range.end,
                                    ": the topic was made anew since"));
      }
      const absl::optional<CommittedPosition>& current = before_.partitions[i].committed;
      if (saved.committed && !current && !options_.accept_loss) {
        return Refused(absl::StrCat(
            "group ", pool_.group, " has no position in ", tp.ToString(),
            ": either it has expired, or the topic was made anew since; --accept-loss goes on if "
            "you know that it is the same topic"));
      }
      CommitMetadata position;
      if (auto decoded = DecodeCommitMetadata(saved.metadata, saved.offset)) {
        position = *std::move(decoded);
      }
      absl::optional<CommitMetadata> now;
      if (current) now = DecodeCommitMetadata(current->metadata, current->offset);
      if (now && position.incarnation_ms != 0 && now->incarnation_ms != position.incarnation_ms) {
        return Refused(absl::StrCat("topic partition ", tp.ToString(),
                                    " was made anew, or its offsets were reset, since"));
      }
      const int64_t offset = std::max(saved.offset, range.begin);
      const int64_t completed = position.completed.size();
      position.completed.DropBelow(offset);
      if (offset > saved.offset) {
        const int64_t span = offset - saved.offset - (completed - position.completed.size());
        if (!options_.accept_loss) {
          return Refused(
              absl::StrCat("the log was trimmed past its position in ", tp.ToString(), ": offsets ",
                           saved.offset, " to ", offset - 1, " are gone, at most ", span,
                           " messages that it does not have; --accept-loss restores without them"));
        }
        report_.lost_max += static_cast<uint64_t>(span);
      }
      if (current && !again) {
        const int64_t done_now =
            current->offset + (now ? now->completed.size() : int64_t{0}) - offset;
        repeated +=
            static_cast<uint64_t>(std::max<int64_t>(0, done_now - position.completed.size()));
      }
      position.writer = options_.writer;
      position.epoch = std::max(position.epoch, now ? now->epoch : uint64_t{0}) + 1;
      if (position.incarnation_ms == 0 && now) position.incarnation_ms = now->incarnation_ms;
      positions_.push_back(std::move(position));
      offsets_.push_back(offset);
    }
    report_.repeated_max = again ? control_.restores.at(pool_.pool).repeated_max : repeated;
    again_ = again;
    return absl::OkStatus();
  }

  absl::Status PutMark() {
    RestoreMark mark;
    mark.pool = pool_.pool;
    mark.savepoint = manifest().id;
    mark.began = clock_.Wall();
    mark.repeated_max = report_.repeated_max;
    return WriteControl(log_, clock_, pool_.control_topic, RestoreMarkKey(pool_.pool),
                        EncodeRestoreMark(mark), options_.timeout);
  }

  CommitEntry EntryOf(size_t i) const {
    CommitEntry entry;
    entry.tp = Part(pool_.topic, i);
    entry.position.offset = offsets_[i];
    entry.position.metadata = EncodeCommitMetadata(positions_[i], offsets_[i]).text;
    return entry;
  }

  absl::Status Change() {
    std::vector<CommitEntry> entries;
    for (size_t i = 0; i < key_groups(); ++i) entries.push_back(EntryOf(i));
    RETURN_IF_ERROR(Step());
    RETURN_IF_ERROR(log_.ResetGroup(pool_.group, entries, options_.timeout));

    BlockingReaderOptions reading;
    reading.silence_max = options_.timeout;
    ASSIGN_OR_RETURN(reader_, BlockingReader::Open(log_, clock_, reading));
    BlockingWriterOptions writing;
    writing.silence_max = options_.timeout;
    ASSIGN_OR_RETURN(writer_, BlockingWriter::Open(log_, clock_, writing));
    std::vector<CommitEntry> raised;
    for (size_t i = 0; i < key_groups(); ++i) {
      const uint64_t epoch = positions_[i].epoch;
      RETURN_IF_ERROR(RestoreKeyGroup(i));
      if (positions_[i].epoch == epoch) continue;
      entries[i] = EntryOf(i);
      raised.push_back(entries[i]);
    }
    if (!raised.empty()) {
      RETURN_IF_ERROR(Step());
      RETURN_IF_ERROR(log_.ResetGroup(pool_.group, raised, options_.timeout));
    }
    ASSIGN_OR_RETURN(const Log::GroupState after,
                     Positions(log_, pool_, key_groups(), options_.timeout));
    RETURN_IF_ERROR(CheckStopped(after));
    for (size_t i = 0; i < key_groups(); ++i) {
      if (after.partitions[i].committed == entries[i].position) continue;
      return Refused(absl::StrCat("the position of ", entries[i].tp.ToString(),
                                  " was changed meanwhile: a worker of the pool was running"));
    }
    RETURN_IF_ERROR(Step());
    return WriteControl(log_, clock_, pool_.control_topic, RestoreMarkKey(pool_.pool),
                        absl::nullopt, options_.timeout);
  }

  absl::Status AppendRecord(const TopicPartition& changelog, const ChangelogRecord& record) {
    EncodedChangelogRecord encoded = EncodeChangelogRecord(record);
    postrider::AppendRecord append;
    append.topic = changelog.topic;
    append.partition = changelog.partition;
    append.key = std::move(encoded.key);
    append.value = std::move(encoded.value);
    RETURN_IF_ERROR(Step());
    return writer_->Append(std::move(append));
  }

  absl::Status AppendMarker(size_t key_group, uint64_t epoch) {
    ChangelogRecord marker;
    marker.kind = ChangelogKind::kMarker;
    marker.epoch = epoch;
    for (const std::string& changelog : pool_.changelogs) {
      RETURN_IF_ERROR(AppendRecord(Part(changelog, key_group), marker));
    }
    return writer_->Flush();
  }

  absl::Status RestoreKeyGroup(size_t key_group) {
    uint64_t& epoch = positions_[key_group].epoch;
    // First, so that what a worker writes late is fenced, and what was written before is read.
    RETURN_IF_ERROR(AppendMarker(key_group, epoch));
    DurableStateReader states(*reader_, options_.directory);
    const uint64_t claimed = epoch;
    std::vector<DurableStateReader::Identities> now;
    for (const std::string& changelog : pool_.changelogs) {
      const TopicPartition tp = Part(changelog, key_group);
      ASSIGN_OR_RETURN(const Log::Range range, log_.Offsets(tp, options_.timeout));
      ASSIGN_OR_RETURN(DurableStateReader::Identities read, states.ReadIdentities(tp, range.end));
      if (read.figures.epoch_max > claimed) epoch = std::max(epoch, read.figures.epoch_max + 1);
      now.push_back(std::move(read));
    }
    // The group has forgotten how far the epochs had come.
    if (epoch != claimed) RETURN_IF_ERROR(AppendMarker(key_group, epoch));
    for (size_t j = 0; j < pool_.changelogs.size(); ++j) {
      RETURN_IF_ERROR(RestoreChangelog(j, key_group, std::move(now[j].identities)));
    }
    return writer_->Flush();
  }

  // `stale`: the identities that are there now.
  absl::Status RestoreChangelog(size_t changelog, size_t key_group,
                                absl::flat_hash_set<std::string> stale) {
    const TopicPartition tp = Part(pool_.changelogs[changelog], key_group);
    const uint64_t epoch = positions_[key_group].epoch;
    const std::string path =
        absl::StrCat(options_.directory, "/", SavepointFileName(changelog, key_group));
    const auto put_back = [&](const DurableEntry& entry) -> absl::Status {
      ChangelogRecord put;
      put.epoch = epoch;
      put.identity = std::string(entry.identity);
      put.payload = std::string(entry.payload);
      const bool there = stale.erase(entry.identity) > 0;
      // An entry of a list that is gone was done since; an earlier try may have put it back.
      if ((!there || again_) && ReplayRuleOf(entry.identity) == ChangelogReplay::Rule::kOnce) {
        ++report_.repeated_max;
      }
      ++report_.entries_put;
      return AppendRecord(tp, put);
    };
    RETURN_IF_ERROR(
        ReadSavepointFile(path, manifest().key_groups[key_group].files[changelog], put_back));
    for (const std::string& identity : stale) {
      ChangelogRecord gone;
      gone.kind = ChangelogKind::kDelete;
      gone.epoch = epoch;
      gone.identity = identity;
      ++report_.entries_deleted;
      RETURN_IF_ERROR(AppendRecord(tp, gone));
    }
    return absl::OkStatus();
  }

  Log& log_;
  const Clock& clock_;
  const SavepointPool& pool_;
  const RestoreSavepointOptions& options_;
  RestoreReport report_;
  ControlState control_;
  Log::GroupState before_;
  bool again_ = false;                     // an earlier restore did not come to its end
  std::vector<CommitMetadata> positions_;  // by key group
  std::vector<int64_t> offsets_;
  std::unique_ptr<BlockingReader> reader_;
  std::unique_ptr<BlockingWriter> writer_;
};

}  // namespace

absl::StatusOr<SavepointManifest> CreateSavepoint(Log& log, const Clock& clock,
                                                  const SavepointPool& pool,
                                                  const CreateSavepointOptions& options) {
  ASSIGN_OR_RETURN(const size_t key_groups, KeyGroups(log, pool, options.timeout));
  ASSIGN_OR_RETURN(ControlState control, Control(log, clock, pool.control_topic, options.timeout));
  if (control.restores.contains(pool.pool)) {
    return Refused(absl::StrCat("pool '", pool.pool,
                                "' is being restored: finish that first, by running it again"));
  }
  RETURN_IF_ERROR(MakeEmptyDirectory(options.directory));
  if (!control.log_identity) {
    RETURN_IF_ERROR(WriteControl(log, clock, pool.control_topic, LogIdentityKey(),
                                 EncodeLogIdentity(options.log_identity), options.timeout));
    // Somebody else may have done the same: the last one holds.
    ASSIGN_OR_RETURN(control, ReadControl(log, clock, pool.control_topic));
    if (!control.log_identity) return absl::InternalError("savepoint: the log has no identity");
  }

  SavepointManifest manifest;
  manifest.id = options.id.ToString();
  manifest.created = clock.Wall();
  manifest.log_identity = *control.log_identity;
  manifest.pool = pool.pool;
  manifest.group = pool.group;
  manifest.topic = pool.topic;
  manifest.changelogs = pool.changelogs;
  ASSIGN_OR_RETURN(const Log::GroupState state, Positions(log, pool, key_groups, options.timeout));
  SavepointHold hold;
  hold.pool = pool.pool;
  hold.id = manifest.id;
  hold.group = pool.group;
  hold.topic = pool.topic;
  hold.created = manifest.created;
  hold.expires = manifest.created + options.keep;
  for (size_t i = 0; i < key_groups; ++i) {
    SavepointManifest::KeyGroup group;
    const absl::optional<CommittedPosition>& committed = state.partitions[i].committed;
    if (committed) {
      group.committed = true;
      group.offset = committed->offset;
      group.metadata = committed->metadata;
    } else {
      ASSIGN_OR_RETURN(const Log::Range range, log.Offsets(Part(pool.topic, i), options.timeout));
      group.offset = range.begin;
    }
    hold.offsets.push_back(group.offset);
    manifest.key_groups.push_back(std::move(group));
  }

  const std::string key = SavepointHoldKey(pool.pool, manifest.id);
  RETURN_IF_ERROR(WriteControl(log, clock, pool.control_topic, key, EncodeSavepointHold(hold),
                               options.timeout));
  absl::Status status = CheckNotTrimmed(log, manifest, options.timeout);
  if (status.ok()) status = WriteState(log, clock, options, manifest);
  // A worker that had not seen the hold yet may have trimmed meanwhile.
  if (status.ok()) status = CheckNotTrimmed(log, manifest, options.timeout);
  if (status.ok()) status = WriteManifest(options.directory, manifest);
  if (status.ok()) return manifest;
  const absl::Status dropped =
      WriteControl(log, clock, pool.control_topic, key, absl::nullopt, options.timeout);
  if (!dropped.ok()) {
    POSTRIDER_LOG(kWarn, "a savepoint that was not made holds its records until it expires",
                  {"savepoint", manifest.id}, {"why", dropped.message()});
  }
  return status;
}

absl::StatusOr<SavepointManifest> InspectSavepoint(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kSavepointManifestName);
  const absl::StatusOr<std::string> bytes = ReadFile(path, kManifestBytesMax);
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(absl::StrCat("savepoint: ", directory,
                                            " has no manifest: it is no savepoint, or one that was "
                                            "never finished"));
  }
  RETURN_IF_ERROR(bytes.status());
  absl::StatusOr<SavepointManifest> manifest = DecodeSavepointManifest(*bytes);
  if (manifest.ok()) return manifest;
  return absl::Status(manifest.status().code(),
                      absl::StrCat("savepoint: ", path, ": ", manifest.status().message()));
}

absl::StatusOr<SavepointManifest> VerifySavepoint(const std::string& directory) {
  ASSIGN_OR_RETURN(SavepointManifest manifest, InspectSavepoint(directory));
  for (size_t i = 0; i < manifest.key_groups.size(); ++i) {
    for (size_t j = 0; j < manifest.changelogs.size(); ++j) {
      RETURN_IF_ERROR(ReadSavepointFile(absl::StrCat(directory, "/", SavepointFileName(j, i)),
                                        manifest.key_groups[i].files[j],
                                        [](const DurableEntry&) { return absl::OkStatus(); }));
    }
  }
  return manifest;
}

absl::StatusOr<RestoreReport> RestoreSavepoint(Log& log, const Clock& clock,
                                               const SavepointPool& pool,
                                               const RestoreSavepointOptions& options) {
  return Restore(log, clock, pool, options).Run();
}

absl::Status AbandonRestore(Log& log, const Clock& clock, const std::string& control_topic,
                            const std::string& pool) {
  constexpr milliseconds kTimeout{30'000};
  ASSIGN_OR_RETURN(const ControlState control, Control(log, clock, control_topic, kTimeout));
  if (!control.restores.contains(pool)) {
    return absl::NotFoundError(absl::StrCat("savepoint: pool '", pool, "' is not being restored"));
  }
  return WriteControl(log, clock, control_topic, RestoreMarkKey(pool), absl::nullopt, kTimeout);
}

absl::StatusOr<std::vector<SavepointListing>> ListSavepoints(Log& log, const Clock& clock,
                                                             const std::string& control_topic) {
  constexpr milliseconds kTimeout{30'000};
  ASSIGN_OR_RETURN(const ControlState control, Control(log, clock, control_topic, kTimeout));
  std::vector<SavepointListing> listings;
  for (const auto& [key, hold] : control.holds.holds()) {
    listings.push_back({hold.pool, hold.id, hold.created, hold.expires, ""});
  }
  for (const auto& [key, why] : control.holds.unreadable()) {
    listings.push_back({key.first, key.second, WallTime(), WallTime(), why});
  }
  std::sort(listings.begin(), listings.end(),
            [](const SavepointListing& a, const SavepointListing& b) {
              return std::tie(a.pool, a.id) < std::tie(b.pool, b.id);
            });
  return listings;
}

absl::Status DropSavepoint(Log& log, const Clock& clock, const std::string& control_topic,
                           const std::string& id) {
  constexpr milliseconds kTimeout{30'000};
  ASSIGN_OR_RETURN(const std::vector<SavepointListing> listings,
                   ListSavepoints(log, clock, control_topic));
  for (const SavepointListing& listing : listings) {
    if (listing.id != id) continue;
    return WriteControl(log, clock, control_topic, SavepointHoldKey(listing.pool, id),
                        absl::nullopt, kTimeout);
  }
  return absl::NotFoundError(absl::StrCat("savepoint: no records are held for '", id,
                                          "': see `postrider savepoint list`"));
}

}  // namespace postrider
