#include "delivery/operational_teller.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "core/base/id.h"
#include "core/json/json.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using Health = OperationalRecord::Health;

class OperationalTellerTest : public testing::Test {
 protected:
  OperationalTellerTest() {
    facts_.backlog_bytes_max = 1'000;
    facts_.backlog_age_max = hours(10);
    facts_.well = true;
  }
  const OperationalTeller::Event* Next() {
    return teller_.Next(options_, endpoint_, facts_, now_, wall_);
  }
  // What is told now, as `type occasion`, and acknowledged; empty: nothing.
  std::string Tell() {
    const OperationalTeller::Event* event = Next();
    if (event == nullptr) return "";
    const std::string told = std::string(event->type);
    last_ = *JsonValue::Parse(event->data);
    occasion_ = event->occasion;
    teller_.OnSent();
    teller_.OnAnswer(true);
    return told;
  }
  void Pass(Duration by) {
    now_ += by;
    wall_ += std::chrono::duration_cast<std::chrono::milliseconds>(by);
  }
  void Fail(uint32_t warned = 0) {
    facts_.failing = true;
    facts_.well = false;
    facts_.failing_since = since_;
    facts_.warned = warned;
  }
  void BeWell() {
    facts_.failing = false;
    facts_.well = true;
    facts_.failing_since.reset();
    facts_.warned = 0;
  }
  void Disable(uint64_t generation, DisableReason reason = DisableReason::kGone) {
    facts_.disabled = reason;
    facts_.disabled_generation = generation;
    facts_.disabled_at = wall_;
  }
  std::string Text(absl::string_view name) { return last_.Find(name)->Serialize(); }

  subscriptions::EndpointId endpoint_{IdBytes{1}};
  OperationalOptions options_;
  OperationalFacts facts_;
  OperationalTeller teller_;
  MonotonicTime now_{hours(100)};
  WallTime wall_ = WallTimeFromMillis(1'900'000'000'000);
  WallTime since_ = WallTimeFromMillis(1'899'999'000'000);
  JsonValue last_;
  std::string occasion_;
};

TEST_F(OperationalTellerTest, TellsNothingOfAnEndpointThatIsWell) {
  EXPECT_EQ(Tell(), "");
  EXPECT_TRUE(teller_.quiet());
  EXPECT_FALSE(teller_.TakeChanged());
}

TEST_F(OperationalTellerTest, TellsOfEachChangeOnceAndOfTheEnd) {
  Fail();
  facts_.last_outcome = "timeout";
  facts_.disables_at = since_ + hours(120);
  EXPECT_EQ(Tell(), "endpoint.degraded");
  EXPECT_EQ(Text("endpoint_id"), "\"" + endpoint_.ToString() + "\"");
  EXPECT_EQ(Text("percent"), "0");
  EXPECT_EQ(Text("last_outcome"), "\"timeout\"");
  EXPECT_EQ(Text("last_status"), "null");
  EXPECT_TRUE(teller_.TakeChanged());
  EXPECT_EQ(Tell(), "");
  Fail(1);
  EXPECT_EQ(Tell(), "endpoint.degraded") << "a quarter of the time to its disabling";
  EXPECT_EQ(Text("percent"), "25");
  EXPECT_EQ(Tell(), "");
  BeWell();
  EXPECT_EQ(Tell(), "endpoint.recovered");
  EXPECT_EQ(Text("was"), "\"degraded\"");
  EXPECT_EQ(Tell(), "");
  EXPECT_EQ(teller_.told(), OperationalRecord());
  EXPECT_TRUE(teller_.quiet() || teller_.TakeChanged());
}

TEST_F(OperationalTellerTest, ASlowStartIsNoEndOfIt) {
  Fail();
  EXPECT_EQ(Tell(), "endpoint.degraded");
  BeWell();
  facts_.well = false;
  EXPECT_EQ(Tell(), "");
  Fail();
  EXPECT_EQ(Tell(), "") << "the same trouble still";
}

TEST_F(OperationalTellerTest, HTTP_04_AnEndpointThatIsGoneIsToldOfOnce) {
  Disable(7);
  EXPECT_EQ(Tell(), "endpoint.disabled");
  EXPECT_EQ(Text("reason"), "\"gone\"");
  Fail(3);
  EXPECT_EQ(Tell(), "") << "nothing more while it is disabled";
  facts_.disabled = DisableReason::kNone;
  BeWell();
  facts_.well = false;
  EXPECT_EQ(Tell(), "") << "enabled again, and has taken nothing yet";
  Disable(8);
  EXPECT_EQ(Tell(), "endpoint.disabled") << "another time";
  facts_.disabled = DisableReason::kNone;
  BeWell();
  EXPECT_EQ(Tell(), "endpoint.recovered");
  EXPECT_EQ(Text("was"), "\"disabled\"");
}

TEST_F(OperationalTellerTest, WhatAPersonHasStoppedIsNoNews) {
  facts_.stopped = true;
  Fail();
  EXPECT_EQ(Tell(), "");
  facts_.stopped = false;
  EXPECT_EQ(Tell(), "endpoint.degraded");
}

TEST_F(OperationalTellerTest, TellsAgainWithTheSameIdWhatWasNotAcknowledged) {
  Fail();
  const OperationalTeller::Event first = *Next();
  teller_.OnSent();
  EXPECT_EQ(Next(), nullptr) << "it is on its way";
  teller_.OnAnswer(false);
  Pass(minutes(1));
  ASSERT_NE(Next(), nullptr);
  EXPECT_EQ(Next()->occasion, first.occasion);
  EXPECT_EQ(Next()->data, first.data);
  EXPECT_FALSE(teller_.TakeChanged());
  EXPECT_EQ(Tell(), "endpoint.degraded");
  // A successor that does not know of it.
  OperationalTeller next;
  const OperationalTeller::Event* again = next.Next(options_, endpoint_, facts_, now_, wall_);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->occasion, first.occasion);
  // And one that does.
  OperationalTeller knowing;
  knowing.Restore(teller_.told());
  EXPECT_EQ(knowing.Next(options_, endpoint_, facts_, now_, wall_), nullptr);
}

TEST_F(OperationalTellerTest, TellsOfABacklogAtEachLevelOnceUntilItIsSmallAgain) {
  const auto tell_at = [this](uint64_t bytes) {
    facts_.backlog_bytes = bytes;
    const std::string told = Tell();
    return told.empty() ? told : told + Text("percent");
  };
  EXPECT_EQ(tell_at(499), "");
  EXPECT_EQ(tell_at(500), "backlog.threshold50");
  EXPECT_EQ(tell_at(799), "");
  EXPECT_EQ(tell_at(250), "") << "it is not small yet";
  EXPECT_EQ(tell_at(600), "");
  EXPECT_EQ(tell_at(1'001), "backlog.threshold100") << "not of 80 beside";
  EXPECT_EQ(tell_at(249), "");
  EXPECT_EQ(teller_.told(), OperationalRecord());
  Pass(seconds(1));
  const std::string before = occasion_;
  EXPECT_EQ(tell_at(500), "backlog.threshold50");
  EXPECT_NE(occasion_, before);
}

TEST_F(OperationalTellerTest, TheAgeOfABacklogCountsLikeItsSize) {
  facts_.backlog_bytes = 1;
  facts_.backlog_oldest = wall_;
  EXPECT_EQ(Tell(), "");
  Pass(hours(8));
  EXPECT_EQ(Tell(), "backlog.threshold");
  EXPECT_EQ(Text("percent"), "80");
}

TEST_F(OperationalTellerTest, TellsOfManyDeadLettersUntilAnHourHasFewer) {
  const auto give_up = [this](int count) {
    for (int i = 0; i < count; ++i) teller_.OnDeadLetters(1, now_, wall_);
  };
  give_up(99);
  EXPECT_EQ(Tell(), "");
  EXPECT_TRUE(teller_.CountsAt(now_));
  Pass(minutes(61));
  EXPECT_FALSE(teller_.CountsAt(now_));
  EXPECT_EQ(Tell(), "") << "that hour is over";
  give_up(100);
  EXPECT_EQ(Tell(), "dead_letters.threshold");
  EXPECT_EQ(Text("dead_letters"), "100");
  give_up(100);
  EXPECT_EQ(Tell(), "");
  Pass(hours(1));
  EXPECT_EQ(Tell(), "") << "the next hour begins";
  give_up(100);
  EXPECT_EQ(Tell(), "") << "it goes on";
  Pass(hours(1));
  EXPECT_EQ(Tell(), "");
  Pass(hours(1));
  EXPECT_EQ(Tell(), "") << "an hour without any has passed";
  EXPECT_TRUE(teller_.quiet() || teller_.TakeChanged());
  give_up(100);
  EXPECT_EQ(Tell(), "dead_letters.threshold");
}

TEST_F(OperationalTellerTest, ASuccessorWaitsForAnHourWithFewerLettersToo) {
  OperationalRecord told;
  told.letters_since = wall_;
  teller_.Restore(told);
  EXPECT_EQ(Tell(), "");
  for (int i = 0; i < 100; ++i) teller_.OnDeadLetters(1, now_, wall_);
  EXPECT_EQ(Tell(), "");
}

TEST_F(OperationalTellerTest, TheRecordComesBackAsItWas) {
  OperationalRecord record;
  record.health = Health::kDegraded;
  record.warned = 3;
  record.generation = 9;
  record.since = since_;
  record.backlog = 80;
  record.backlog_since = wall_;
  record.letters_since = since_;
  record.secret_ends = wall_;
  const StateSerializer<OperationalRecord> serializer = OperationalSerializer();
  for (const OperationalRecord& one : {record, OperationalRecord()}) {
    const std::string bytes = serializer.encode(one, 1);
    EXPECT_EQ(serializer.decode(bytes, 1), one);
    EXPECT_FALSE(serializer.decode(bytes + "x", 1).has_value());
    EXPECT_FALSE(serializer.decode(bytes.substr(1), 1).has_value());
  }
}

}  // namespace
}  // namespace postrider::delivery
