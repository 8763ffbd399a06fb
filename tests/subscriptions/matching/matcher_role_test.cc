#include "subscriptions/matching/matcher_role.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/stream/key_groups.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/registry/own_events.h"
#include "tests/fakes/memory_log.h"
#include "tests/subscriptions/matching/snapshot_fixture.h"

namespace postrider::subscriptions {
namespace {

// True as soon as `condition` holds; false when it has not within ten seconds.
bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class MatcherRoleTest : public testing::Test {
 protected:
  void SetUp() override {
    target_.topic_prefix = "own.";
    target_.key_groups = 4;
    ASSERT_TRUE(log_.EnsureTopics(MatcherRole::Topics(target_, 1), std::chrono::seconds(1)).ok());
    log_.MakeTopic("events.order.created", 2);
    log_.MakeTopic("events.order.paid", 1);
    // A topic with our own prefix is never a source, whatever the pattern says.
    log_.MakeTopic("own.events.order.created", 1);
    options_.topics = "^.*events\\..*";
    options_.shards = 2;
  }
  std::unique_ptr<MatcherRole> Start() {
    auto role =
        MatcherRole::Start(log_, clock_, metrics_, options_, target_, std::chrono::hours(24));
    EXPECT_TRUE(role.ok()) << role.status();
    return role.ok() ? *std::move(role) : nullptr;
  }
  static void Stop(MatcherRole& role) {
    absl::Notification stopped;
    role.Stop([&stopped] { stopped.Notify(); });
    ASSERT_TRUE(stopped.WaitForNotificationWithTimeout(absl::Seconds(10)));
  }
  std::shared_ptr<const Snapshot> TwoEndpoints() {
    SnapshotFixture fixture;
    fixture.Customer(1, {"t1"}).Endpoint(1, 1).Endpoint(2, 1);
    fixture.Granted(1, {"order.*"}).Tenants(2, {"order.paid"}, {"t1"});
    return fixture.Build(clock_.Wall());
  }
  std::vector<DispatchRecord> Dispatched() {
    std::vector<DispatchRecord> all;
    for (int32_t group = 0; group < target_.key_groups; ++group) {
      for (const auto& stored : log_.Records({"own.dispatch.default", group})) {
        auto record = DecodeDispatchRecord(stored.value);
        EXPECT_TRUE(record.ok()) << record.status();
        if (!record.ok()) continue;
        EXPECT_EQ(group, KeyGroupOf(record->identity.endpoint.view(), 0, target_.key_groups));
        all.push_back(*std::move(record));
      }
    }
    return all;
  }
  int64_t CommittedAt(const std::string& topic, int32_t partition) {
    const auto committed = log_.Committed("own.match", {topic, partition});
    return committed ? committed->offset : -1;
  }

  SystemClock clock_;
  Metrics metrics_;
  MemoryLog log_{clock_};
  MatcherOptions options_;
  MatcherTarget target_;
};

TEST_F(MatcherRoleTest, TurnsEventsIntoMessagesAndCommitsThem) {
  log_.Write({"events.order.created", 1}, "", R"({"tenant":"t1","id":"before"})");
  log_.Write({"own.events.order.created", 0}, "", R"({"tenant":"t1","id":"own"})");
  std::unique_ptr<MatcherRole> role = Start();
  ASSERT_NE(role, nullptr);
  role->SetSnapshot(TwoEndpoints());
  log_.Write({"events.order.paid", 0}, "", R"({"tenant":"t1","id":"paid"})");
  log_.Write({"events.order.paid", 0}, "", R"({"tenant":"t2"})");
  log_.Write({"events.order.created", 0}, "", "{", {{"tenant", "t1"}});
  EXPECT_TRUE(Eventually([&] {
    return CommittedAt("events.order.paid", 0) == 2 &&
           CommittedAt("events.order.created", 0) == 1 &&
           CommittedAt("events.order.created", 1) == 1;
  }));
  std::vector<std::string> ids;
  for (const DispatchRecord& record : Dispatched()) ids.push_back(record.event_id);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids, (std::vector<std::string>{"before", "paid", "paid"}));
  EXPECT_EQ(log_.Records({"own.rejected", 0}).size(), 1u);
  Stop(*role);
}

TEST_F(MatcherRoleTest, ReadsOurOwnEventsBesideTheSourceTopics) {
  const std::string mine = ReservedTenantOf(CustomerNumber(1));
  SnapshotFixture fixture;
  fixture.Customer(1, {mine}).Endpoint(1, 1).Granted(1, {"endpoint.*"});
  std::unique_ptr<MatcherRole> role = Start();
  ASSERT_NE(role, nullptr);
  role->SetSnapshot(fixture.Build(clock_.Wall()));
  const TopicPartition own{"own.operational-events", kOperationalPartitions - 1};
  log_.Write(own, "", "{}", {{"type", "endpoint.degraded"}, {"tenant", mine}, {"id", "e"}});
  EXPECT_TRUE(Eventually([&] { return CommittedAt(own.topic, own.partition) == 1; }));
  const std::vector<DispatchRecord> messages = Dispatched();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].type, "endpoint.degraded");
  Stop(*role);
}

TEST_F(MatcherRoleTest, NothingIsCompleteBeforeTheFirstSnapshot) {
  log_.Write({"events.order.created", 0}, "", R"({"tenant":"t1"})");
  std::unique_ptr<MatcherRole> role = Start();
  ASSERT_NE(role, nullptr);
  ASSERT_TRUE(
      Eventually([&] { return role->status().tasks_running == 3 + kOperationalPartitions; }));
  EXPECT_LE(CommittedAt("events.order.created", 0), 0);
  role->SetSnapshot(TwoEndpoints());
  EXPECT_TRUE(Eventually([&] { return CommittedAt("events.order.created", 0) == 1; }));
  EXPECT_EQ(Dispatched().size(), 1u);
  Stop(*role);
}

TEST_F(MatcherRoleTest, ASecondRunGoesOnWhereTheFirstStopped) {
  for (int run = 0; run < 2; ++run) {
    std::unique_ptr<MatcherRole> role = Start();
    ASSERT_NE(role, nullptr);
    role->SetSnapshot(TwoEndpoints());
    for (int i = 0; i < 100; ++i) {
      log_.Write({"events.order.created", i % 2}, "", R"({"tenant":"t1"})");
    }
    EXPECT_TRUE(Eventually([&] {
      return CommittedAt("events.order.created", 0) == 50 * (run + 1) &&
             CommittedAt("events.order.created", 1) == 50 * (run + 1);
    }));
    Stop(*role);
  }
  EXPECT_EQ(Dispatched().size(), 200u);
}

TEST_F(MatcherRoleTest, ABadPlaceOfAFieldIsToldAtTheStart) {
  options_.decoder.id = {"id"};
  const auto role =
      MatcherRole::Start(log_, clock_, metrics_, options_, target_, std::chrono::hours(24));
  ASSERT_FALSE(role.ok());
  EXPECT_EQ(role.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MatcherOptionsTest, RegisterTheirNamesAndHoldTheirRanges) {
  MatcherOptions options;
  Options registry;
  options.Register(registry);
  EXPECT_TRUE(registry
                  .LoadFlags({"--source.tenant=header:org,/org", "--source.start=latest",
                              "--matcher.shards=4", "--event.bytes_max=64KB"})
                  .ok());
  EXPECT_EQ(options.decoder.tenant, (std::vector<std::string>{"header:org", "/org"}));
  EXPECT_EQ(options.start, "latest");
  EXPECT_EQ(options.shards, 4);
  EXPECT_EQ(options.decoder.bytes_max, 64 << 10);
  EXPECT_FALSE(registry.LoadFlags({"--matcher.shards=65"}).ok());
  EXPECT_FALSE(registry.LoadFlags({"--source.start=now"}).ok());
  EXPECT_FALSE(registry.LoadFlags({"--event.bytes_max=769KB"}).ok());
}

}  // namespace
}  // namespace postrider::subscriptions
