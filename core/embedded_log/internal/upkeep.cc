#include "core/embedded_log/internal/upkeep.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "core/base/log.h"
#include "core/base/thread_name.h"
#include "core/embedded_log/internal/key_compaction.h"

namespace postrider::embedded_log_internal {
namespace {

using std::chrono::milliseconds;

// What was trimmed takes its room until so much has come together.
constexpr uint64_t kGiveBackBytes = 32 << 20;
constexpr uint64_t kGiveBackBytesInNeed = 1 << 20;  // of a disk that is nearly full
// For the positions of groups in it.
constexpr std::chrono::minutes kCopyEntriesEvery{10};
// Below it nothing is compacted.
constexpr uint64_t kCompactBytesMin = 1 << 20;
// What a start finds too old stays for so long, at most its retention: whoever was behind when the
// service stopped, or reads what was stamped by a wrong clock, has had the time to come to it.
constexpr std::chrono::hours kGrace{1};

struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t end_bytes = 0;
  Cleaned cleaned;
  bool gone = false;
};

Extent ExtentOf(Core& core, const Partition& partition) {
  absl::MutexLock lock(&core.mutex);
  return {partition.begin, partition.end, partition.end_bytes, partition.cleaned, partition.gone};
}

}  // namespace

Upkeep::Upkeep(Core& core, Writer& writer, const Options& options)
    : core_(core), writer_(writer), options_(options) {}

Upkeep::~Upkeep() { Stop(); }

void Upkeep::Start() {
  thread_ = std::thread([this] {
    NameThread("log-upkeep");
    Run();
  });
}

void Upkeep::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wait_.Notify();
  if (core_.database != nullptr) core_.database->StopCompacting();
  if (thread_.joinable()) thread_.join();
}

void Upkeep::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const auto stopping = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_; };
      if (wait_.For(mutex_, options_.interval, stopping)) return;
    }
    Round(Urgency::kWhenWorthIt);
  }
}

void Upkeep::Round(Urgency urgency) {
  std::vector<TopicPtr> topics;
  {
    absl::MutexLock lock(&core_.mutex);
    for (const auto& [name, topic] : core_.topics) topics.push_back(topic);
  }
  for (const TopicPtr& topic : topics) {
    for (const PartitionPtr& partition : topic->partitions) {
      if (stopping()) return;
      if (topic->policy.deleted) Age(partition, topic->policy);
      if (topic->policy.compacted) Compact(partition, topic->policy, urgency);
      GiveBack(partition);
    }
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - copied_ >= kCopyEntriesEvery) {
    copied_ = now;
    KeepEntryCopy(core_);
  }
  core_.metrics.disk_bytes.Set(static_cast<double>(core_.database->disk_bytes()));
  core_.metrics.memory_bytes.Set(static_cast<double>(core_.database->memory_bytes()));
}

int64_t Upkeep::NowMillis() {
  const WallTime now = core_.AgeTime();
  const Duration off = core_.clock.Wall() - now;
  if (off > kClockOffMax || off < -kClockOffMax) {
    if (!told_of_clock_) {
      POSTRIDER_LOG(kWarn,
                    "the wall clock was set: the embedded log's records age by the time that has "
                    "passed since the start; restart to go by the clock again",
                    {"seconds", std::chrono::duration_cast<std::chrono::seconds>(off).count()});
    }
    told_of_clock_ = true;
  } else {
    told_of_clock_ = false;
  }
  return MillisSinceEpoch(now);
}

absl::Status Upkeep::Change(absl::AnyInvocable<absl::Status(WriteSet&)> prepare) {
  auto status = std::make_shared<absl::Status>();
  auto done = std::make_shared<absl::Notification>();
  writer_.Submit({std::move(prepare), [status, done](const absl::Status& answer) {
                    *status = answer;
                    done->Notify();
                  }});
  done->WaitForNotification();
  return *status;
}

// Whole runs, so a record may live a little longer than it must.
void Upkeep::Age(const PartitionPtr& partition, const TopicPolicy& policy) {
  const Extent extent = ExtentOf(core_, *partition);
  if (extent.gone || extent.begin == extent.end) return;
  int64_t to = extent.begin;
  const auto look = [&](absl::FunctionRef<bool(const RunPlace&)> stays) {
    // Mostly the first one stays, and no other is looked at.
    const auto first = core_.database->RunAt(partition->id, extent.begin, extent.end);
    if (!first.ok() || !first->has_value() || stays(**first)) return;
    const auto place =
        core_.database->FirstRunWhere(partition->id, extent.begin, extent.end, stays);
    if (place.ok()) to = std::max(to, place->has_value() ? (*place)->base : extent.end);
  };
  const int64_t keep_ms = policy.says_retention ? policy.retention_ms : options_.retention_ms;
  const int64_t keep_bytes =
      policy.says_retention ? policy.retention_bytes : options_.retention_bytes;
  if (keep_ms >= 0 && core_.OpenFor() >= std::min<Duration>(kGrace, milliseconds(keep_ms))) {
    const int64_t cutoff = NowMillis() - keep_ms;
    look([cutoff](const RunPlace& run) { return run.header.high_ms >= cutoff; });
  }
  if (keep_bytes >= 0) {
    const auto most = static_cast<uint64_t>(keep_bytes);
    look([&](const RunPlace& run) {
      return extent.end_bytes - std::min(extent.end_bytes, run.header.bytes_before) <= most;
    });
  }
  if (to <= extent.begin) return;
  const absl::Status status = Change(
      [this, partition, to](WriteSet& set) { return PrepareTrim(core_, partition, to, set); });
  if (!status.ok()) {
    POSTRIDER_LOG(kWarn, "retention failed", {"partition", partition->tp.ToString()},
                  {"status", status.ToString()});
    return;
  }
  absl::MutexLock lock(&core_.mutex);
  core_.SetBegin(*partition, to);
}

void Upkeep::Compact(const PartitionPtr& partition, const TopicPolicy& policy, Urgency urgency) {
  const Extent extent = ExtentOf(core_, *partition);
  if (extent.gone || extent.begin == extent.end) return;
  const int64_t now_ms = NowMillis();
  KeyCompaction compaction(*core_.database, partition->id);
  compaction.begin = extent.begin;
  compaction.end = extent.end;
  compaction.before = extent.cleaned;
  compaction.now_ms = now_ms;
  compaction.tombstone_ms = policy.tombstone_ms;
  compaction.lag_ms = policy.compaction_lag_ms;
  compaction.keys_max = options_.keys_max;
  if (urgency == Urgency::kWhenWorthIt) {
    const auto from = core_.database->RunAt(partition->id, extent.cleaned.until, extent.end);
    if (!from.ok() || !from->has_value()) return;
    const uint64_t dirty =
        extent.end_bytes - std::min(extent.end_bytes, (*from)->header.bytes_before);
    const bool tombstones_due = extent.cleaned.tombstones > extent.begin &&
                                now_ms - extent.cleaned.tombstones_ms >= policy.tombstone_ms;
    const double part = static_cast<double>(dirty) /
                        static_cast<double>(std::max<uint64_t>(1, dirty + extent.cleaned.bytes));
    if ((dirty < kCompactBytesMin || part < policy.dirty_ratio) && !tombstones_due) return;
  }
  compaction.change = [this, partition](KeyCompaction::Step step) {
    const auto shared = std::make_shared<KeyCompaction::Step>(std::move(step));
    return Change([this, partition, shared](WriteSet& set) {
      absl::MutexLock lock(&core_.mutex);
      if (partition->gone || partition->begin > shared->first) {
        return absl::AbortedError("it was trimmed meanwhile");
      }
      for (const int64_t base : shared->drop) set.DeleteRun(partition->id, base);
      if (shared->put != nullptr) set.PutRun(partition->id, *shared->put);
      return absl::OkStatus();
    });
  };
  compaction.stopping = [this] { return stopping(); };
  const absl::StatusOr<Cleaned> cleaned = compaction.Run();
  core_.metrics.compacted_records.Add(static_cast<double>(compaction.dropped()));
  if (!cleaned.ok()) {
    if (absl::IsAborted(cleaned.status())) return;
    POSTRIDER_LOG(kWarn, "compaction failed", {"partition", partition->tp.ToString()},
                  {"status", cleaned.status().ToString()});
    return;
  }
  const absl::Status status = Change([partition, &cleaned](WriteSet& set) {
    set.PutEntry(CleanedKey(partition->id), EncodeCleaned(*cleaned));
    return absl::OkStatus();
  });
  if (!status.ok()) return;
  absl::MutexLock lock(&core_.mutex);
  partition->cleaned = *cleaned;
}

void Upkeep::GiveBack(const PartitionPtr& partition) {
  const Extent extent = ExtentOf(core_, *partition);
  auto& [offset, bytes] = given_back_[{partition->id.topic, partition->id.partition}];
  if (extent.gone || extent.begin <= offset) return;
  const auto place = core_.database->RunAt(partition->id, extent.begin, extent.end);
  if (!place.ok()) return;
  const uint64_t now = place->has_value() ? (*place)->header.bytes_before : extent.end_bytes;
  const bool first = offset == 0 && bytes == 0;
  const uint64_t least = core_.nearly_full ? kGiveBackBytesInNeed : kGiveBackBytes;
  if (!first && now - std::min(now, bytes) < least) return;
  // What the first trim since the start has freed may be all that there is.
  if (!first || core_.nearly_full) core_.database->CompactRuns(partition->id, offset, extent.begin);
  offset = extent.begin;
  bytes = now;
}

absl::Status PrepareTrim(Core& core, const PartitionPtr& partition, int64_t offset, WriteSet& set) {
  int64_t begin = 0;
  {
    absl::MutexLock lock(&core.mutex);
    if (partition->gone) {
      return absl::NotFoundError(
          absl::StrCat("embedded log: no partition ", partition->tp.ToString()));
    }
    begin = partition->begin;
  }
  if (offset > partition->next) return absl::OutOfRangeError("embedded log: trim past the end");
  if (offset <= begin) return absl::OkStatus();
  const auto place = core.database->RunAt(partition->id, offset, partition->next);
  if (!place.ok()) return place.status();
  // Runs of the group that is being written are not in the database yet.
  int64_t until = place->has_value() ? (*place)->base : offset;
  for (const RunPtr& run : partition->fresh) until = std::min(until, run->base);
  set.PutEntry(BeginKey(partition->id), EncodeNumber(static_cast<uint64_t>(offset)));
  set.DeleteRuns(partition->id, partition->deleted_until, until);
  partition->deleted_until = std::max(partition->deleted_until, until);
  return absl::OkStatus();
}

}  // namespace postrider::embedded_log_internal
