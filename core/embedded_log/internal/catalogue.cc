#include "core/embedded_log/internal/catalogue.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/embedded_log/internal/positions.h"

namespace postrider::embedded_log_internal {
namespace {

void TellDamaged(Core& core, absl::string_view what) {
  core.metrics.damage.Increment();
  POSTRIDER_LOG(kError, "the embedded log is damaged", {"what", what});
}

// An entry that is to be put, or removed.
struct EntryRepair {
  std::string key;
  absl::optional<std::string> value;
};

// What is lost at the end of a partition leaves a gap.
void RaiseEnd(Partition& partition, int64_t least) {
  partition.end = std::max(partition.end, least);
  partition.next = partition.end;
}

absl::Status LoadPositions(Core& core, std::vector<std::string>& damaged,
                           std::vector<EntryRepair>& repairs)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.mutex) {
  std::map<TopicPartition, PartitionPtr> raised;
  RETURN_IF_ERROR(core.database->ForEachEntry(
      "g", [&](absl::string_view key, absl::string_view value) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        std::string group;
        TopicPartition tp;
        CommittedPosition position;
        if (!DecodePositionKey(key, &group, &tp) || !DecodePosition(value, &position)) {
          damaged.push_back("a position of a group");
          return;
        }
        const PartitionPtr partition = core.FindPartition(tp);
        if (partition == nullptr) {
          // A topic that is made anew by this name begins with none.
          repairs.push_back({std::string(key), absl::nullopt});
          return;
        }
        if (position.offset > partition->end) {
          RaiseEnd(*partition, position.offset);
          raised[tp] = partition;
        }
        core.groups.group(group).committed[tp] = std::move(position);
      }));
  for (const auto& [tp, partition] : raised) {
    POSTRIDER_LOG(kWarn, "a group is behind the last record that there is: the next one goes there",
                  {"partition", tp.ToString()}, {"offset", partition->end});
    repairs.push_back(
        {LeastEndKey(partition->id), EncodeNumber(static_cast<uint64_t>(partition->end))});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadPartition(Database& database, Partition& partition) {
  uint64_t least_end = 0;
  const auto number_at = [&database](const std::string& at, uint64_t* number) {
    return database.ForEachEntry(at, [number](absl::string_view, absl::string_view value) {
      uint64_t read = 0;
      if (DecodeNumber(value, &read)) *number = read;
    });
  };
  uint64_t begin = 0;
  RETURN_IF_ERROR(number_at(BeginKey(partition.id), &begin));
  RETURN_IF_ERROR(number_at(LeastEndKey(partition.id), &least_end));
  partition.begin = static_cast<int64_t>(begin);
  RETURN_IF_ERROR(database.ForEachEntry(CleanedKey(partition.id),
                                        [&](absl::string_view, absl::string_view value) {
                                          Cleaned cleaned;
                                          if (DecodeCleaned(value, &cleaned))
                                            partition.cleaned = cleaned;
                                        }));
  ASSIGN_OR_RETURN(const absl::optional<RunPlace> last, database.LastRun(partition.id));
  partition.end =
      std::max({partition.begin, partition.cleaned.until, static_cast<int64_t>(least_end)});
  if (last.has_value()) {
    partition.end = std::max(partition.end, last->header.next);
    partition.high_ms = last->header.high_ms;
    partition.end_bytes = last->header.bytes_before + last->bytes;
  }
  partition.next = partition.end;
  partition.next_bytes = partition.end_bytes;
  return absl::OkStatus();
}

absl::Status LoadCatalogue(Core& core, Writer& writer) {
  absl::MutexLock lock(&core.mutex);
  std::vector<std::string> damaged;
  Writer::Topics& topics = writer.topics();
  RETURN_IF_ERROR(
      core.database->ForEachEntry("t", [&](absl::string_view key, absl::string_view value) {
        const std::string name(key.substr(1));
        TopicPtr topic = DecodeTopic(name, value);
        if (topic == nullptr) {
          damaged.push_back(absl::StrCat("the entry of topic ", name));
        } else {
          topics[name] = topic;
        }
      }));
  ASSIGN_OR_RETURN(core.topic_number_max, core.database->LastTopicNumber());
  for (const auto& [name, topic] : topics) {
    core.topic_number_max = std::max(core.topic_number_max, topic->id);
    for (const PartitionPtr& partition : topic->partitions) {
      RETURN_IF_ERROR(LoadPartition(*core.database, *partition));
    }
    core.AddTopic(topic);
  }
  std::vector<EntryRepair> repairs;
  RETURN_IF_ERROR(LoadPositions(core, damaged, repairs));
  for (const std::string& what : damaged) TellDamaged(core, what);
  if (repairs.empty()) return absl::OkStatus();
  writer.Submit({[repairs = std::move(repairs)](WriteSet& set) {
                   for (const EntryRepair& repair : repairs) {
                     if (repair.value.has_value()) {
                       set.PutEntry(repair.key, *repair.value);
                     } else {
                       set.DeleteEntry(repair.key);
                     }
                   }
                   return absl::OkStatus();
                 },
                 [](const absl::Status&) {}});
  return absl::OkStatus();
}

absl::Status CheckTopic(const TopicSpec& spec) {
  if (spec.name.empty() || spec.name.size() > kTopicNameBytesMax ||
      spec.name.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("embedded log: a topic's name has 1 to 249 bytes");
  }
  if (spec.partitions < 1 || spec.partitions > kPartitionsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("embedded log: ", spec.name, ": 1 to ", kPartitionsMax, " partitions"));
  }
  return absl::OkStatus();
}

absl::Status MakeTopics(Core& core, const Writer::Topics& topics,
                        const std::vector<TopicSpec>& specs, std::vector<TopicPtr>& made,
                        WriteSet& set) {
  uint64_t next = 1;
  RETURN_IF_ERROR(core.database->ForEachEntry(
      kNextTopicKey,
      [&next](absl::string_view, absl::string_view value) { DecodeNumber(value, &next); }));
  for (const auto& [name, topic] : topics) next = std::max<uint64_t>(next, topic->id + 1);
  {
    // Damage may have taken the entries of a topic whose records are there.
    absl::MutexLock lock(&core.mutex);
    next = std::max<uint64_t>(next, uint64_t{core.topic_number_max} + 1);
  }
  for (const TopicSpec& spec : specs) {
    const auto there = topics.find(spec.name);
    if (there != topics.end() &&
        there->second->partitions.size() != static_cast<size_t>(spec.partitions)) {
      return absl::FailedPreconditionError(
          absl::StrCat("embedded log: ", spec.name, " exists and is different"));
    }
  }
  for (const TopicSpec& spec : specs) {
    const bool twice = std::any_of(made.begin(), made.end(), [&spec](const TopicPtr& topic) {
      return topic->name == spec.name;
    });
    if (twice || topics.contains(spec.name)) continue;
    auto topic = std::make_shared<Topic>();
    topic->name = spec.name;
    topic->id = static_cast<uint32_t>(next++);
    topic->created_ms = MillisSinceEpoch(core.clock.Wall());
    topic->settings = spec.settings;
    topic->policy = PolicyOf(spec.settings);
    for (int32_t i = 0; i < spec.partitions; ++i) {
      topic->partitions.push_back(std::make_shared<Partition>(
          PartitionId{topic->id, static_cast<uint32_t>(i)}, TopicPartition{topic->name, i}));
    }
    set.PutEntry(TopicKey(spec.name), EncodeTopic(*topic));
    made.push_back(std::move(topic));
  }
  set.PutEntry(kNextTopicKey, EncodeNumber(next));
  return absl::OkStatus();
}

void RemoveTopicEntries(Core& core, const std::string& topic, WriteSet& set) {
  const auto found = core.topics.find(topic);
  if (found == core.topics.end()) return;
  set.DeleteEntry(TopicKey(topic));
  for (const PartitionPtr& partition : found->second->partitions) {
    partition->gone = true;
    set.DeleteEntry(BeginKey(partition->id));
    set.DeleteEntry(CleanedKey(partition->id));
    set.DeleteEntry(LeastEndKey(partition->id));
    set.DeletePartition(partition->id);
  }
  for (const auto& [group, tp] : core.groups.PositionsOf(topic)) {
    set.DeleteEntry(PositionKey(group, tp));
  }
}

}  // namespace postrider::embedded_log_internal
