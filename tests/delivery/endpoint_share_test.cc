// How an endpoint's sends are shared between what is new and what waits already.

#include <chrono>
#include <string>

#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using subscriptions::EndpointMode;

// One request at a time, so that each send is a choice. RULES 3: retries get at least one send in
// five while fresh messages wait, all when none do.
class EndpointShareTest : public DeliveryFixture {
 protected:
  static constexpr int64_t kFreshFrom = 10'000;

  void SetUp() override {
    settings_.mode = EndpointMode::kStreaming;
    settings_.window_max = 1;
    settings_.retry.schedule = {std::chrono::minutes(10)};
  }
  // The one in flight is answered, and the next one is sent.
  void Answer(int status) {
    ASSERT_TRUE(sink_->last().open);
    sink_->AnswerStatus(sink_->size() - 1, status);
    SendAll();
    Settle();
    SendAll();
  }
  static bool IsFresh(const FakeHttpSink::Sent& sent) {
    const std::vector<std::string> ids = EventIds(sent);
    return ids.size() == 1 && std::stoll(ids[0].substr(1)) >= kFreshFrom;
  }
  // Of so many sends, those that were not of fresh messages.
  int CountOld(int sends) {
    int old = 0;
    for (int i = 0; i < sends; ++i) {
      Answer(200);
      if (!sink_->last().open) break;  // there was nothing to send
      old += IsFresh(sink_->last()) ? 0 : 1;
    }
    return old;
  }
};

TEST_F(EndpointShareTest, RetriesGetOneSendInFiveWhileFreshMessagesWaitAndAllAfterwards) {
  Publish();
  Start();
  // Forty wait for their second try; the breaker sees one failure in three.
  Deliver(1, 120);
  SendAll();
  for (int i = 0; i < 120; ++i) Answer(i % 3 == 0 ? 500 : 200);
  ASSERT_FALSE(sink_->last().open);
  ASSERT_EQ(sink_->size(), 120u);
  // All of them are due when the one in flight is answered.
  Deliver(MakeRecord(kFreshFrom));
  SendAll();
  ASSERT_EQ(sink_->size(), 121u);
  Advance(std::chrono::minutes(11));
  Deliver(kFreshFrom + 1, kFreshFrom + 80);
  SendAll();
  ASSERT_EQ(sink_->size(), 121u);
  for (int round = 0; round < 20; ++round) EXPECT_EQ(CountOld(5), 1) << round;
  EXPECT_EQ(CountOld(20), 20);
  Answer(200);
  EXPECT_EQ(sink_->size(), 121u + 120u) << "nothing is left";
  EXPECT_FALSE(sink_->last().open);
}

TEST_F(EndpointShareTest, TheBacklogGetsOneSendInFiveWhileFreshMessagesWaitAndAllAfterwards) {
  BeginPaused();
  Deliver(1, 40);
  Settle();
  ASSERT_EQ(BacklogMessages(), 41u);
  settings_.pause.by_customer = false;
  ++generation_;
  Publish(11);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  Deliver(kFreshFrom + 1, kFreshFrom + 80);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  for (int round = 0; round < 20; ++round) EXPECT_EQ(CountOld(5), 1) << round;
  EXPECT_EQ(CountOld(20), 20);
  Answer(200);
  EXPECT_EQ(sink_->size(), 121u) << "nothing is left";
}

}  // namespace
}  // namespace postrider::delivery
