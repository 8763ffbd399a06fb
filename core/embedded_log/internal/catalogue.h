#pragma once

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "core/embedded_log/internal/core.h"
#include "core/embedded_log/internal/database.h"
#include "core/embedded_log/internal/partition.h"
#include "core/embedded_log/internal/writer.h"
#include "core/stream/log.h"

namespace postrider::embedded_log_internal {

// Reads where a partition begins and ends.
absl::Status LoadPartition(Database& database, Partition& partition);

// Reads the topics, where their partitions begin and end, and the positions of groups. What damage
// has left in disorder is put right, on the disk too, with the first change that `writer` makes:
// a partition never ends before what a group has committed, so that no offset is given twice, and
// no position stays of a topic that is lost. Before any thread is started.
absl::Status LoadCatalogue(Core& core, Writer& writer);

absl::Status CheckTopic(const TopicSpec& spec);
// For Writer::Change::prepare: makes those that are missing; `made` is theirs, to be added when
// they are on the disk.
absl::Status MakeTopics(Core& core, const Writer::Topics& topics,
                        const std::vector<TopicSpec>& specs, std::vector<TopicPtr>& made,
                        WriteSet& set);
// The same: removes all that there is of a topic.
void RemoveTopicEntries(Core& core, const std::string& topic, WriteSet& set)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(core.mutex);

}  // namespace postrider::embedded_log_internal
