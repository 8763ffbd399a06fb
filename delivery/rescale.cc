#include "delivery/rescale.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "core/base/status_macros.h"
#include "core/state/savepoint.h"
#include "core/state/savepoint_file.h"
#include "core/state/savepoint_manifest.h"
#include "core/stream/blocking_reader.h"
#include "core/stream/blocking_writer.h"
#include "core/stream/control_follower.h"
#include "core/stream/control_record.h"
#include "core/stream/key_groups.h"
#include "delivery/backlog_state.h"
#include "delivery/move_backlog.h"
#include "delivery/worker_role.h"
#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Phase = PoolRecord::Phase;

constexpr milliseconds kLook{200};
constexpr seconds kTellInterval{5};
// Records between two looks at the clock.
constexpr uint64_t kLookRecords = 1'000;

absl::Status Refused(absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat("rescale: ", what));
}

int64_t SecondsUntil(WallTime time, WallTime now) {
  return (MillisSinceEpoch(time) - MillisSinceEpoch(now) + 999) / 1'000;
}

class Rescaler {
 public:
  Rescaler(Log& log, const Clock& clock, const RescalePool& pool)
      : log_(log),
        clock_(clock),
        pool_(pool),
        control_topic_(ControlTopicName(pool.topic_prefix)) {}

  absl::StatusOr<RescaleReport> Run(const RescaleOptions& options) {
    if (options.key_groups < 1 || options.key_groups > kKeyGroupsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("rescale: a pool has 1 to ", kKeyGroupsMax, " key groups"));
    }
    RETURN_IF_ERROR(ReadRecord());
    RETURN_IF_ERROR(CheckHolder());
    const bool goes_on = record_.phase == Phase::kMoving;
    RETURN_IF_ERROR(CheckTopics());
    report_.key_groups_before = record_.key_groups;
    report_.key_groups = options.key_groups;
    report_.generation = record_.generation;
    if (!goes_on) {
      RETURN_IF_ERROR(RemoveLeft());
      if (record_.key_groups == options.key_groups) {
        if (record_.phase != Phase::kSteady) RETURN_IF_ERROR(PutSteady());
        return report_;
      }
    }
    record_.holder = pool_.holder;
    record_.key_groups_next = options.key_groups;
    if (!goes_on) {
      Tell(absl::StrCat("pool ", pool_.pool, " has ", record_.key_groups, " key groups, it gets ",
                        options.key_groups, "; matchers stop, workers park what they have"));
      record_.phase = Phase::kDraining;
      RETURN_IF_ERROR(Put(Claim::kTake));
      RETURN_IF_ERROR(OrAsBefore(WaitUntilDrained()));
      record_.phase = Phase::kMoving;
      RETURN_IF_ERROR(Put(Claim::kHold));
    } else {
      Tell(absl::StrCat("pool ", pool_.pool,
                        " is in the middle of a rescale that was not finished; "
                        "it gets ",
                        options.key_groups, " key groups"));
      RETURN_IF_ERROR(Put(Claim::kTake));
    }
    RETURN_IF_ERROR(OrAsBefore(WaitUntilGone()));
    absl::Status moved = Move(options);
    if (!moved.ok()) {
      return absl::Status(moved.code(),
                          absl::StrCat(moved.message(), "; pool ", pool_.pool,
                                       " stands still until `postrider rescale` is run again"));
    }
    return report_;
  }

  absl::Status Abort() {
    RETURN_IF_ERROR(ReadRecord());
    if (record_.phase == Phase::kSteady) {
      return absl::NotFoundError(
          absl::StrCat("rescale: pool '", pool_.pool, "' is not being rescaled"));
    }
    if (Closed()) {
      return Refused(absl::StrCat("the topics of pool '", pool_.pool,
                                  "' may be closed already, so it can only go forward: run "
                                  "`postrider rescale --key-groups ",
                                  record_.key_groups, "` for the number that it had"));
    }
    return PutSteady();
  }

  absl::StatusOr<AdoptReport> Adopt(const std::string& directory, bool accept_loss) {
    ASSIGN_OR_RETURN(const SavepointManifest manifest, VerifySavepoint(directory));
    if (manifest.pool != pool_.pool || manifest.changelogs.size() != 2) {
      return Refused(absl::StrCat("savepoint ", manifest.id, " is of pool '", manifest.pool,
                                  "', not of '", pool_.pool, "'"));
    }
    RETURN_IF_ERROR(ReadRecord());
    if (record_.phase != Phase::kSteady) return Refused("the pool is being rescaled");
    RETURN_IF_ERROR(CheckTopics());
    // One that runs would take what it has met lately for copies of the same.
    ASSIGN_OR_RETURN(const Log::GroupState positions, Positions());
    if (positions.members > 0) {
      return Refused(absl::StrCat("pool '", pool_.pool, "' is running: stop its workers"));
    }
    AdoptReport report;
    report.savepoint = manifest.id;
    report.key_groups_before = static_cast<int32_t>(manifest.key_groups.size());
    report.key_groups = record_.key_groups;

    // What was not complete stands in its dispatch topic, if that is the same one.
    const absl::StatusOr<int32_t> partitions = log_.Partitions(manifest.topic, pool_.timeout);
    const bool there = control_.log_identity == manifest.log_identity && partitions.ok() &&
                       *partitions == report.key_groups_before;
    if (!partitions.ok() && !absl::IsNotFound(partitions.status())) return partitions.status();
    if (!there && !accept_loss) {
      return Refused(absl::StrCat("the messages that savepoint ", manifest.id,
                                  " had not begun are not there any more: topic ", manifest.topic,
                                  " was removed, or is another one; --accept-loss puts back the "
                                  "others"));
    }
    const std::string dispatch = Names(record_.generation)[0];
    ASSIGN_OR_RETURN(const std::unique_ptr<BlockingReader> reader,
                     BlockingReader::Open(log_, clock_, Reading()));
    ASSIGN_OR_RETURN(const std::unique_ptr<BlockingWriter> writer,
                     BlockingWriter::Open(log_, clock_, Writing()));
    const auto append = [&](AppendRecord&& record) {
      record.topic = dispatch;
      record.partition = KeyGroupOf(record.key, 0, record_.key_groups);
      return writer->Append(std::move(record));
    };
    MoveFigures figures;
    for (size_t i = 0; i < manifest.key_groups.size(); ++i) {
      const SavepointManifest::KeyGroup& saved = manifest.key_groups[i];
      const auto partition = static_cast<int32_t>(i);
      MovedKeyGroup key_group;
      key_group.dispatch = Part(manifest.topic, partition);
      key_group.endpoint_state = Part(manifest.changelogs[kEndpointChangelog], partition);
      key_group.backlog = Part(manifest.changelogs[kBacklogChangelog], partition);
      key_group.committed = CommittedPosition{saved.offset, saved.metadata};
      key_group.read_state = [&, i](size_t changelog, MovedKeyGroup::Visitor visit) {
        return ReadSavepointFile(absl::StrCat(directory, "/", SavepointFileName(changelog, i)),
                                 saved.files[changelog], visit);
      };
      if (there) {
        ASSIGN_OR_RETURN(const Log::Range range, log_.Offsets(key_group.dispatch, pool_.timeout));
        if (range.begin > saved.offset && !accept_loss) {
          return Refused(absl::StrCat("the log was trimmed past the savepoint's position in ",
                                      key_group.dispatch.ToString(),
                                      ": --accept-loss restores without what is gone"));
        }
        key_group.dispatch_end = range.end;
      }
      // The pool knows better how its endpoints are by now.
      RETURN_IF_ERROR(MoveKeyGroup(log_, clock_, *reader, key_group, pool_.spool_directory,
                                   pool_.timeout, append, nullptr, &figures));
    }
    RETURN_IF_ERROR(writer->Flush());
    report.entries = figures.entries;
    report.batches = figures.batches;
    report.left_over = figures.left_over;
    return report;
  }

 private:
  BlockingReaderOptions Reading() const {
    BlockingReaderOptions options;
    options.silence_max = pool_.timeout;
    return options;
  }
  BlockingWriterOptions Writing() const {
    BlockingWriterOptions options;
    options.silence_max = pool_.timeout;
    return options;
  }
  enum class Claim { kTake, kHold };
  using Topics = std::vector<std::string>;  // dispatch, endpoint state, backlog

  void Tell(const std::string& line) const {
    if (pool_.tell) pool_.tell(line);
  }
  absl::Status Step() const { return pool_.before_step ? pool_.before_step() : absl::OkStatus(); }
  void Sleep() const {
    if (pool_.sleep) return pool_.sleep(kLook);
    absl::SleepFor(absl::FromChrono(kLook));
  }
  // Whether topics of the generation may be closed to appends.
  bool Closed() const { return record_.generation_tried > record_.generation; }

  std::vector<TopicSpec> Specs(uint64_t generation, int32_t key_groups) const {
    const std::string name = GenerationName(pool_.pool, generation);
    std::vector<TopicSpec> specs = {
        subscriptions::DispatchTopic(pool_.topic_prefix, name, key_groups, pool_.replication)};
    for (TopicSpec& spec :
         WorkerRole::Topics(pool_.topic_prefix, name, key_groups, pool_.replication)) {
      specs.push_back(std::move(spec));
    }
    return specs;
  }
  Topics Names(uint64_t generation) const {
    Topics names;
    for (const TopicSpec& spec : Specs(generation, 1)) names.push_back(spec.name);
    return names;
  }
  static TopicPartition Part(const std::string& topic, int32_t partition) {
    return TopicPartition{topic, partition};
  }
  std::string WorkGroup() const { return WorkerRole::Group(pool_.topic_prefix, pool_.pool); }

  // --- The record ------------------------------------------------------------------------------

  absl::StatusOr<ControlState> Control() {
    const absl::StatusOr<int32_t> partitions = log_.Partitions(control_topic_, pool_.timeout);
    if (absl::IsNotFound(partitions.status())) {
      return Refused(absl::StrCat("topic ", control_topic_,
                                  " does not exist: no process of this version has run yet"));
    }
    RETURN_IF_ERROR(partitions.status());
    return ReadControl(log_, clock_, control_topic_);
  }

  absl::Status ReadRecord() {
    if (!IsPoolName(pool_.pool)) {
      return absl::InvalidArgumentError("rescale: no pool may be called so");
    }
    ASSIGN_OR_RETURN(control_, Control());
    if (control_.restores.contains(pool_.pool)) {
      return Refused(absl::StrCat("pool '", pool_.pool,
                                  "' is being restored from a savepoint: finish that first"));
    }
    if (const auto why = control_.pools_unreadable.find(pool_.pool);
        why != control_.pools_unreadable.end()) {
      return Refused(why->second);
    }
    const auto found = control_.pools.find(pool_.pool);
    if (found != control_.pools.end()) {
      record_ = found->second;
      return absl::OkStatus();
    }
    record_ = PoolRecord();
    record_.pool = pool_.pool;
    const std::string dispatch = Names(1)[0];
    const absl::StatusOr<int32_t> key_groups = log_.Partitions(dispatch, pool_.timeout);
    if (absl::IsNotFound(key_groups.status())) {
      return Refused(
          absl::StrCat("there is no pool '", pool_.pool, "': topic ", dispatch, " does not exist"));
    }
    RETURN_IF_ERROR(key_groups.status());
    record_.key_groups = *key_groups;
    return absl::OkStatus();
  }

  absl::Status CheckHolder() const {
    const WallTime now = clock_.Wall();
    if (record_.phase == Phase::kSteady || record_.holder == pool_.holder ||
        record_.lease_until <= now) {
      return absl::OkStatus();
    }
    return Refused(absl::StrCat("pool '", pool_.pool,
                                "' is being rescaled already; if that one has died, it may be run "
                                "again in ",
                                SecondsUntil(record_.lease_until, now), " s"));
  }

  absl::Status CheckTopics() {
    for (const std::string& topic : Names(record_.generation)) {
      const absl::StatusOr<int32_t> partitions = log_.Partitions(topic, pool_.timeout);
      if (absl::IsNotFound(partitions.status())) {
        return Refused(absl::StrCat("topic ", topic,
                                    " does not exist: no worker of this version has run yet"));
      }
      RETURN_IF_ERROR(partitions.status());
      if (*partitions != record_.key_groups) {
        return Refused(absl::StrCat("topic ", topic, " has ", *partitions,
                                    " partitions, not the pool's ", record_.key_groups));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Write() {
    RETURN_IF_ERROR(Step());
    ASSIGN_OR_RETURN(const std::unique_ptr<BlockingWriter> writer,
                     BlockingWriter::Open(log_, clock_, Writing()));
    AppendRecord record;
    record.topic = control_topic_;
    record.key = PoolKey(pool_.pool);
    record.value = EncodePoolRecord(record_);
    RETURN_IF_ERROR(writer->Append(std::move(record)));
    return writer->Flush();
  }

  // Two that begin at once both take it: the last one's record stands, and the other one sees that.
  absl::Status CheckMine() {
    ASSIGN_OR_RETURN(const ControlState control, Control());
    const auto found = control.pools.find(pool_.pool);
    if (found != control.pools.end() && found->second.holder == pool_.holder) {
      return absl::OkStatus();
    }
    return absl::AbortedError("rescale: somebody else rescales the pool meanwhile");
  }

  absl::Status Put(Claim claim) {
    if (claim == Claim::kHold) RETURN_IF_ERROR(CheckMine());
    record_.lease_until = clock_.Wall() + pool_.lease;
    renew_at_ = clock_.Now() + pool_.lease / 3;
    RETURN_IF_ERROR(Write());
    return CheckMine();
  }
  absl::Status Renew() { return clock_.Now() < renew_at_ ? absl::OkStatus() : Put(Claim::kHold); }
  absl::Status PutSteady() {
    record_.phase = Phase::kSteady;
    record_.lease_until = WallTime();
    record_.key_groups_next = 0;
    return Write();
  }

  // Before its topics are closed a pool that does not come to rest works on.
  absl::Status OrAsBefore(absl::Status status) {
    if (status.ok() || Closed() || absl::IsAborted(status)) return status;
    const absl::Status steady = PutSteady();
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(),
                     steady.ok() ? "; it works on as before" : "; and it could not be let go on"));
  }

  // --- Coming to rest --------------------------------------------------------------------------

  struct Rest {
    int matchers = 0;
    int workers = 0;
    int64_t waiting = 0;  // records above the watermarks
  };
  absl::StatusOr<Rest> Look() {
    Rest rest;
    ASSIGN_OR_RETURN(const Log::GroupState matchers,
                     log_.DescribeGroup(pool_.match_group, {}, pool_.timeout));
    rest.matchers = matchers.members;
    ASSIGN_OR_RETURN(const Log::GroupState workers, Positions());
    rest.workers = workers.members;
    for (const AssignedPartition& partition : workers.partitions) {
      ASSIGN_OR_RETURN(const Log::Range range, log_.Offsets(partition.tp, pool_.timeout));
      const int64_t done = partition.committed ? partition.committed->offset : range.begin;
      rest.waiting += std::max<int64_t>(0, range.end - done);
    }
    return rest;
  }
  absl::StatusOr<Log::GroupState> Positions() {
    const std::string dispatch = Names(record_.generation)[0];
    std::vector<TopicPartition> partitions;
    for (int32_t i = 0; i < record_.key_groups; ++i) partitions.push_back(Part(dispatch, i));
    ASSIGN_OR_RETURN(Log::GroupState state,
                     log_.DescribeGroup(WorkGroup(), partitions, pool_.timeout));
    std::sort(state.partitions.begin(), state.partitions.end(),
              [](const AssignedPartition& a, const AssignedPartition& b) { return a.tp < b.tp; });
    if (state.partitions.size() != partitions.size()) {
      return absl::InternalError("rescale: the log did not say all positions of the group");
    }
    return state;
  }

  // Looks until `done`, telling how it stands.
  absl::Status Wait(milliseconds wait_max, absl::string_view what,
                    const std::function<bool(const Rest&)>& done) {
    const MonotonicTime until = clock_.Now() + wait_max;
    MonotonicTime tell_at = clock_.Now() + kTellInterval;
    while (true) {
      ASSIGN_OR_RETURN(const Rest rest, Look());
      if (done(rest)) return absl::OkStatus();
      const std::string how =
          absl::StrCat(rest.matchers, " matcher shards and ", rest.workers,
                       " worker shards are there, ", rest.waiting, " messages are not complete");
      if (clock_.Now() >= until) {
        return absl::FailedPreconditionError(absl::StrCat("rescale: pool '", pool_.pool, "' ", what,
                                                          " within ", wait_max.count() / 1'000,
                                                          " s: ", how));
      }
      if (clock_.Now() >= tell_at) {
        Tell(absl::StrCat("waiting: ", how));
        tell_at = clock_.Now() + kTellInterval;
      }
      RETURN_IF_ERROR(Renew());
      Sleep();
    }
  }
  absl::Status WaitUntilDrained() {
    return Wait(pool_.drain_wait_max, "does not come to rest", [this](const Rest& rest) {
      if (rest.matchers > 0) return false;
      if (rest.workers == 0 && rest.waiting > 0) {
        Tell(absl::StrCat("no worker runs: ", rest.waiting,
                          " messages are carried over as they are"));
      }
      return rest.workers == 0 || rest.waiting == 0;
    });
  }
  absl::Status WaitUntilGone() {
    return Wait(pool_.leave_wait_max, "is not left by everybody",
                [](const Rest& rest) { return rest.matchers == 0 && rest.workers == 0; });
  }

  // --- The move --------------------------------------------------------------------------------

  absl::Status Move(const RescaleOptions& options) {
    const uint64_t from = record_.generation;
    RETURN_IF_ERROR(RemoveTried());
    uint64_t to = std::max(record_.generation_tried, from) + 1;
    // From here on it cannot be as before; and a number is used once.
    record_.generation_tried = to;
    RETURN_IF_ERROR(Put(Claim::kHold));
    const Topics old = Names(from);
    RETURN_IF_ERROR(Step());
    RETURN_IF_ERROR(log_.FreezeTopic(old[0], pool_.timeout));
    ASSIGN_OR_RETURN(const Log::GroupState positions, Positions());
    if (positions.members > 0) return Refused("a worker has come back meanwhile");
    RETURN_IF_ERROR(Step());
    RETURN_IF_ERROR(log_.EnsureTopics(Specs(to, options.key_groups), pool_.timeout));
    Tell(absl::StrCat("generation ", to, " has its topics; moving what waits"));
    RETURN_IF_ERROR(Copy(positions, old, Names(to), options.key_groups));

    record_.phase = Phase::kSteady;
    record_.generation = to;
    record_.key_groups = options.key_groups;
    record_.key_groups_next = 0;
    record_.generation_left = options.keep_old ? 0 : from;
    RETURN_IF_ERROR(CheckMine());
    record_.lease_until = WallTime();
    RETURN_IF_ERROR(Write());
    report_.moved = true;
    report_.generation = to;
    Tell(absl::StrCat("pool ", pool_.pool, " works on generation ", to, " with ",
                      options.key_groups, " key groups"));
    if (options.keep_old) {
      for (const std::string& topic : old) report_.kept.push_back(topic);
      return absl::OkStatus();
    }
    // It works: what is not removed now is by the next call.
    if (const absl::Status removed = RemoveLeft(); !removed.ok()) {
      Tell(absl::StrCat("old topics are left: ", removed.message()));
    }
    return absl::OkStatus();
  }

  absl::Status Copy(const Log::GroupState& positions, const Topics& old, const Topics& next,
                    int32_t key_groups) {
    const std::string& dispatch = next[0];
    ASSIGN_OR_RETURN(const std::unique_ptr<BlockingReader> reader,
                     BlockingReader::Open(log_, clock_, Reading()));
    ASSIGN_OR_RETURN(const std::unique_ptr<BlockingWriter> writer,
                     BlockingWriter::Open(log_, clock_, Writing()));
    uint64_t appended = 0;
    const auto append = [&](AppendRecord&& record) -> absl::Status {
      record.topic = dispatch;
      record.partition = KeyGroupOf(record.key, 0, key_groups);
      if (appended++ % kLookRecords == 0) {
        RETURN_IF_ERROR(Step());
        RETURN_IF_ERROR(Renew());
      }
      return writer->Append(std::move(record));
    };
    const auto append_state = [&](const std::string& endpoint, AppendRecord&& record) {
      record.topic = next[1];
      record.partition = KeyGroupOf(endpoint, 0, key_groups);
      return writer->Append(std::move(record));
    };
    MoveFigures figures;
    MonotonicTime tell_at = clock_.Now() + kTellInterval;
    for (size_t i = 0; i < positions.partitions.size(); ++i) {
      RETURN_IF_ERROR(Renew());
      const auto partition = static_cast<int32_t>(i);
      MovedKeyGroup key_group;
      key_group.dispatch = Part(old[0], partition);
      key_group.endpoint_state = Part(old[1], partition);
      key_group.backlog = Part(old[2], partition);
      ASSIGN_OR_RETURN(const Log::Range range, log_.Offsets(key_group.dispatch, pool_.timeout));
      key_group.dispatch_end = range.end;
      key_group.committed = positions.partitions[i].committed;
      RETURN_IF_ERROR(MoveKeyGroup(log_, clock_, *reader, key_group, pool_.spool_directory,
                                   pool_.timeout, append, append_state, &figures));
      if (clock_.Now() < tell_at) continue;
      Tell(absl::StrCat("moved ", appended, " messages of ", i + 1, " key groups"));
      tell_at = clock_.Now() + kTellInterval;
    }
    RETURN_IF_ERROR(writer->Flush());
    uint64_t there = 0;
    for (int32_t i = 0; i < key_groups; ++i) {
      ASSIGN_OR_RETURN(const Log::Range range, log_.Offsets(Part(dispatch, i), pool_.timeout));
      there += static_cast<uint64_t>(range.end - range.begin);
    }
    if (there != appended) {
      return absl::InternalError(absl::StrCat("rescale: topic ", dispatch, " has ", there,
                                              " messages, ", appended, " were appended"));
    }
    report_.states = figures.states;
    report_.entries = figures.entries;
    report_.batches = figures.batches;
    report_.left_over = figures.left_over;
    return absl::OkStatus();
  }

  // Topics of generations that an earlier call began and did not finish.
  absl::Status RemoveTried() {
    for (uint64_t tried = record_.generation + 1; tried <= record_.generation_tried; ++tried) {
      for (const std::string& topic : Names(tried)) {
        RETURN_IF_ERROR(Step());
        RETURN_IF_ERROR(log_.DeleteTopic(topic, pool_.timeout));
      }
    }
    return absl::OkStatus();
  }

  // The topics that the pool worked on before, unless a savepoint needs them.
  absl::Status RemoveLeft() {
    if (record_.generation_left == 0) return absl::OkStatus();
    const Topics topics = Names(record_.generation_left);
    ASSIGN_OR_RETURN(const ControlState control, Control());
    for (const auto& [key, hold] : control.holds.holds()) {
      if (hold.topic != topics[0] || hold.expires <= clock_.Wall()) continue;
      for (const std::string& topic : topics) {
        report_.kept.push_back(absl::StrCat(topic, " (savepoint ", hold.id, " needs it)"));
      }
      return absl::OkStatus();
    }
    if (!control.holds.unreadable().empty()) {
      for (const std::string& topic : topics) {
        report_.kept.push_back(absl::StrCat(topic, " (a savepoint's hold cannot be read)"));
      }
      return absl::OkStatus();
    }
    for (const std::string& topic : topics) {
      RETURN_IF_ERROR(Step());
      RETURN_IF_ERROR(log_.DeleteTopic(topic, pool_.timeout));
      report_.removed.push_back(topic);
    }
    // Unless somebody rescales again already: then it sees to it.
    const auto now = control.pools.find(pool_.pool);
    if (now == control.pools.end() || now->second != record_) return absl::OkStatus();
    record_.generation_left = 0;
    return Write();
  }

  Log& log_;
  const Clock& clock_;
  const RescalePool& pool_;
  const std::string control_topic_;
  ControlState control_;
  PoolRecord record_;
  MonotonicTime renew_at_{};
  RescaleReport report_;
};

}  // namespace

absl::StatusOr<RescaleReport> Rescale(Log& log, const Clock& clock, const RescalePool& pool,
                                      const RescaleOptions& options) {
  return Rescaler(log, clock, pool).Run(options);
}

absl::Status AbortRescale(Log& log, const Clock& clock, const RescalePool& pool) {
  return Rescaler(log, clock, pool).Abort();
}

absl::StatusOr<AdoptReport> AdoptSavepoint(Log& log, const Clock& clock, const RescalePool& pool,
                                           const std::string& directory, bool accept_loss) {
  return Rescaler(log, clock, pool).Adopt(directory, accept_loss);
}

}  // namespace postrider::delivery
