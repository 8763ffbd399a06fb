#include "delivery/endpoint_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider::delivery {
namespace {

using subscriptions::OrderKind;
using subscriptions::OrderSettings;
using testing::ElementsAre;

OrderSettings ByKey(std::string pointer) {
  OrderSettings settings;
  settings.kind = OrderKind::kKey;
  settings.key_pointer = std::move(pointer);
  return settings;
}
OrderSettings ByEndpoint() {
  OrderSettings settings;
  settings.kind = OrderKind::kEndpoint;
  return settings;
}

std::unique_ptr<MessageContent> Content(std::string tenant, std::string data) {
  subscriptions::DispatchRecord record;
  record.tenant = std::move(tenant);
  record.data = std::move(data);
  return *MakeMessageContent(subscriptions::EncodeDispatchRecord(record));
}

Batch BatchOf(std::vector<uint64_t> keys, uint64_t first_order = 0) {
  Batch batch;
  batch.order_keys = std::move(keys);
  batch.first_order = first_order;
  return batch;
}

Message MessageOf(uint64_t order, uint64_t key) {
  Message message;
  message.order = order;
  message.order_key = key;
  return message;
}

TEST(EndpointOrderTest, TheTenantIsTheKeyWithoutAPointer) {
  EndpointOrder order(ByKey(""));
  EXPECT_EQ(order.KeyOf(*Content("t1", "1")), order.KeyOf(*Content("t1", "2")));
  EXPECT_NE(order.KeyOf(*Content("t1", "1")), order.KeyOf(*Content("t2", "1")));
  EXPECT_NE(order.KeyOf(*Content("", "1")), EndpointOrder::kUnknownKey);
}

TEST(EndpointOrderTest, APointerNamesTheValueThatIsTheKey) {
  EndpointOrder order(ByKey("/order/id"));
  const uint64_t seven = order.KeyOf(*Content("t1", R"({"order":{"id":7}})"));
  EXPECT_EQ(seven, order.KeyOf(*Content("t2", R"({"x":[1], "order": {"z":0,"id" : 7 }})")));
  EXPECT_NE(seven, order.KeyOf(*Content("t1", R"({"order":{"id":8}})")));
  EXPECT_NE(seven, order.KeyOf(*Content("t1", R"({"order":{"id":"7"}})")));
  // The same text, escaped or not.
  EXPECT_EQ(order.KeyOf(*Content("t1", R"({"order":{"id":"A"}})")),
            order.KeyOf(*Content("t1", R"({"order":{"id":"\u0041"}})")));
}

TEST(EndpointOrderTest, EventsWithoutTheValueShareAKey) {
  EndpointOrder order(ByKey("/order/id"));
  const uint64_t absent = order.KeyOf(*Content("t1", "{}"));
  EXPECT_EQ(absent, order.KeyOf(*Content("t2", "[]")));
  EXPECT_NE(absent, order.KeyOf(*Content("t1", R"({"order":{"id":null}})")));
  EXPECT_NE(absent, order.KeyOf(*Content("t1", R"({"order":{"id":""}})")));
}

TEST(EndpointOrderTest, AnEndpointsMessagesAllHaveOneKey) {
  EndpointOrder order(ByEndpoint());
  EXPECT_EQ(order.KeyOf(*Content("t1", "1")), order.KeyOf(*Content("t2", "2")));
}

TEST(EndpointOrderTest, AKeyStandsStillUntilTheLastThatHasItHasEnded) {
  EndpointOrder order(ByKey(""));
  const Batch one = BatchOf({5, 6});
  const Batch other = BatchOf({6, 7});
  order.Block(one);
  EXPECT_TRUE(order.IsBlocked(5));
  EXPECT_FALSE(order.IsBlocked(7));
  EXPECT_FALSE(order.IsBlockedBeside(one));
  order.Block(other);
  EXPECT_TRUE(order.IsBlockedBeside(one));
  order.BlockEnding(7);
  order.Unblock(one);
  EXPECT_FALSE(order.IsBlocked(5));
  EXPECT_TRUE(order.IsBlocked(6));
  order.Unblock(other);
  EXPECT_FALSE(order.IsBlocked(6));
  EXPECT_TRUE(order.IsBlocked(7));
  order.UnblockEnding(7);
  EXPECT_FALSE(order.AnyBlocked());
}

TEST(EndpointOrderTest, ABatchWhoseKeysAreNotKnownHasAll) {
  EndpointOrder order(ByKey(""));
  const Batch unknown = BatchOf({});
  order.Block(unknown);
  EXPECT_EQ(order.unknown(), 1u);
  EXPECT_TRUE(order.IsBlocked(5));
  EXPECT_FALSE(order.IsBlockedBeside(unknown));
  EXPECT_TRUE(order.IsBlockedBeside(BatchOf({5})));
  EXPECT_TRUE(EndpointOrder::Share(unknown, BatchOf({5})));
  EXPECT_TRUE(EndpointOrder::Share(BatchOf({3, 5, 9}), BatchOf({4, 9})));
  EXPECT_FALSE(EndpointOrder::Share(BatchOf({3, 5}), BatchOf({4, 9})));
  order.Unblock(unknown);
  EXPECT_FALSE(order.IsBlocked(5));
}

TEST(EndpointOrderTest, GoesBackToTheFirstEntryPassedOfTheKeysThatAreFree) {
  EndpointOrder order(ByKey(""));
  const Batch five = BatchOf({5});
  const Batch six = BatchOf({6});
  order.Block(five);
  order.Block(six);
  order.Pass(6, 100);
  order.Pass(5, 101);
  order.Pass(5, 103);
  EXPECT_EQ(order.TakeFreed(), absl::nullopt);
  order.Unblock(five);
  EXPECT_EQ(order.TakeFreed(), absl::optional<uint64_t>(101));
  EXPECT_EQ(order.TakeFreed(), absl::nullopt);
  order.Unblock(six);
  order.Block(six);  // its retry has failed: it stands still as before
  EXPECT_EQ(order.TakeFreed(), absl::nullopt);
  order.Unblock(six);
  EXPECT_EQ(order.TakeFreed(), absl::optional<uint64_t>(100));
}

TEST(EndpointOrderTest, KnowsABatchesKeysOnceEachAndItsFirstPlace) {
  Batch batch;
  batch.Add(MessageOf(9, 30));
  batch.Add(MessageOf(4, 20));
  batch.Add(MessageOf(7, 30));
  EndpointOrder::SetKeys(batch);
  EXPECT_THAT(batch.order_keys, ElementsAre(20, 30));
  EXPECT_EQ(batch.first_order, 4u);
  batch.Add(MessageOf(2, EndpointOrder::kUnknownKey));
  EndpointOrder::SetKeys(batch);
  EXPECT_TRUE(batch.order_keys.empty());
  EXPECT_EQ(batch.first_order, 2u);
}

}  // namespace
}  // namespace postrider::delivery
