#include "delivery/changelog_topics.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace postrider::delivery {
namespace {

std::map<std::string, std::string> Settings(const TopicSpec& spec) {
  return {spec.settings.begin(), spec.settings.end()};
}

TEST(ChangelogTopicsTest, HaveAPartitionPerKeyGroupAndNamesOfTheirPool) {
  const TopicSpec state = EndpointStateTopic("postrider.", "default", 64, 3);
  EXPECT_EQ(state.name, "postrider.state.default");
  EXPECT_EQ(state.partitions, 64);
  EXPECT_EQ(state.replication, 3);
  const TopicSpec backlog = BacklogTopic("x.", "night", 8, 1);
  EXPECT_EQ(backlog.name, "x.backlog.night");
  EXPECT_EQ(backlog.partitions, 8);
  EXPECT_EQ(backlog.replication, 1);
}

TEST(ChangelogTopicsTest, AreCompactedAndKeepRemovalsAWeek) {
  for (const TopicSpec& spec :
       {EndpointStateTopic("p.", "a", 1, 3), BacklogTopic("p.", "a", 1, 3)}) {
    std::map<std::string, std::string> settings = Settings(spec);
    EXPECT_EQ(settings["cleanup.policy"], "compact");
    EXPECT_EQ(settings["segment.bytes"], "67108864");
    EXPECT_EQ(settings["segment.ms"], "3600000");
    EXPECT_EQ(settings["min.cleanable.dirty.ratio"], "0.3");
    EXPECT_EQ(settings["compression.type"], "lz4");
    EXPECT_EQ(settings["delete.retention.ms"], "604800000");
    EXPECT_EQ(settings["min.insync.replicas"], "2");
    EXPECT_EQ(settings["unclean.leader.election.enable"], "false");
  }
}

}  // namespace
}  // namespace postrider::delivery
