#include "delivery/changelog_topics.h"

#include "absl/strings/str_cat.h"

namespace postrider::delivery {
namespace {

TopicSpec ChangelogTopic(absl::string_view prefix, absl::string_view what, absl::string_view pool,
                         int32_t key_groups, int16_t replication) {
  TopicSpec spec;
  spec.name = absl::StrCat(prefix, what, ".", pool);
  spec.partitions = key_groups;
  spec.replication = replication;
  spec.settings = {{"cleanup.policy", "compact"},
                   {"segment.bytes", "67108864"},
                   {"segment.ms", "3600000"},
                   {"min.cleanable.dirty.ratio", "0.3"},
                   {"compression.type", "lz4"},
                   {"delete.retention.ms", "604800000"},
                   {"max.message.bytes", "2097152"},
                   {"min.insync.replicas", replication >= 3 ? "2" : "1"},
                   {"unclean.leader.election.enable", "false"}};
  return spec;
}

}  // namespace

TopicSpec EndpointStateTopic(absl::string_view prefix, absl::string_view pool, int32_t key_groups,
                             int16_t replication) {
  return ChangelogTopic(prefix, "state", pool, key_groups, replication);
}

TopicSpec BacklogTopic(absl::string_view prefix, absl::string_view pool, int32_t key_groups,
                       int16_t replication) {
  return ChangelogTopic(prefix, "backlog", pool, key_groups, replication);
}

}  // namespace postrider::delivery
