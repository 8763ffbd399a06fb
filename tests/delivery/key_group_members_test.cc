#include "delivery/key_group_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/stream/key_groups.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/pg_snapshot.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::delivery {
namespace {

using subscriptions::CustomerId;
using subscriptions::Endpoint;
using subscriptions::EndpointId;
using subscriptions::PgSnapshot;
using subscriptions::Snapshot;
using subscriptions::SnapshotBuilder;
using testing::ElementsAreArray;
using testing::IsEmpty;

constexpr int32_t kKeyGroups = 8;

std::shared_ptr<const Snapshot> Of(int endpoints, std::shared_ptr<const Snapshot> before) {
  SnapshotBuilder builder(std::move(before), SnapshotBuilder::Start::kNothing);
  IdBytes customer{};
  customer[0] = 1;
  builder.PutCustomer(CustomerId(customer), 1, 1);
  for (int i = 0; i < endpoints; ++i) {
    Endpoint endpoint;
    IdBytes id{};
    id[0] = static_cast<uint8_t>(i);
    id[1] = static_cast<uint8_t>(i >> 8);
    endpoint.id = EndpointId(id);
    endpoint.customer = CustomerId(customer);
    endpoint.settings.url = "https://example.com/";
    builder.PutEndpoint(endpoint);
  }
  return builder.Build(*PgSnapshot::Parse("10:10:"), WallTime(), "here");
}

// As it was looked for before there was an index.
std::vector<uint32_t> Scan(const Snapshot& snapshot, int32_t key_group, int32_t key_groups) {
  std::vector<uint32_t> members;
  for (uint32_t i = 0; i < snapshot.endpoints().size(); ++i) {
    const std::string id(snapshot.endpoints()[i]->id.view());
    if (KeyGroupOf(id, 0, key_groups) == key_group) members.push_back(i);
  }
  return members;
}

TEST(KeyGroupMembersTest, EachEndpointIsInTheKeyGroupOfItsFirstPart) {
  const auto snapshot = Of(500, nullptr);
  ASSERT_EQ(snapshot->endpoints().size(), 500u);
  KeyGroupMembers members;
  size_t all = 0;
  for (int32_t key_group = 0; key_group < kKeyGroups; ++key_group) {
    const auto of = members.Of(*snapshot, key_group, kKeyGroups);
    EXPECT_THAT(of, ElementsAreArray(Scan(*snapshot, key_group, kKeyGroups)));
    all += of.size();
  }
  EXPECT_EQ(all, 500u);
}

TEST(KeyGroupMembersTest, FollowsTheSnapshotAndTheNumberOfKeyGroups) {
  const auto before = Of(100, nullptr);
  KeyGroupMembers members;
  members.Of(*before, 0, kKeyGroups);
  const auto after = Of(60, before);
  ASSERT_NE(after->contents_version(), before->contents_version());
  EXPECT_THAT(members.Of(*after, 3, kKeyGroups), ElementsAreArray(Scan(*after, 3, kKeyGroups)));
  EXPECT_THAT(members.Of(*after, 3, 5), ElementsAreArray(Scan(*after, 3, 5)));
}

TEST(KeyGroupMembersTest, NobodyIsInAKeyGroupThatThereIsNot) {
  const auto snapshot = Of(10, nullptr);
  KeyGroupMembers members;
  EXPECT_THAT(members.Of(*snapshot, kKeyGroups, kKeyGroups), IsEmpty());
  EXPECT_THAT(members.Of(*snapshot, -1, kKeyGroups), IsEmpty());
  EXPECT_THAT(members.Of(*Of(0, nullptr), 1, kKeyGroups), IsEmpty());
}

}  // namespace
}  // namespace postrider::delivery
