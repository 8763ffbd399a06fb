#include "delivery/endpoint_reporting.h"

#include <chrono>
#include <string>

#include "core/base/metrics.h"
#include "core/base/random.h"
#include "gmock/gmock.h"
#include "tests/fakes/fake_task_context.h"
#include "tests/fakes/manual_clock.h"
#include "tests/support/status_matchers.h"

namespace postrider::delivery {
namespace {

using dlq::EndpointHealthState;
using std::chrono::milliseconds;
using ::testing::SizeIs;

class EndpointReportingTest : public ::testing::Test {
 protected:
  EndpointReporting Make(int64_t sample = 100) {
    EndpointReportingOptions options;
    options.success_sample = sample;
    return EndpointReporting(options, "p.", metrics_, random_);
  }
  MonotonicTime now() const { return ctx_.clock().Now(); }

  Metrics registry_;
  ReportingMetrics metrics_{registry_};
  Random random_{1};
  FakeTaskContext ctx_;
};

TEST_F(EndpointReportingTest, TellsAChangeAtOnceAndFiguresAfterAWhile) {
  EndpointReporting reporting = Make();
  EndpointReporting::Told told;
  dlq::EndpointStatus status;
  status.state = EndpointHealthState::kDegraded;
  status.reason = "timeout";
  EXPECT_LE(reporting.TellAt(told, status.state, status.reason, 0), now()) << "never told";
  ASSERT_TRUE(reporting.TellStatus(ctx_, status, &told));
  ASSERT_THAT(ctx_.emitted(), SizeIs(1));
  EXPECT_EQ(ctx_.emitted()[0].record.topic, "p.reports");
  ASSERT_OK_AND_ASSIGN(const dlq::EndpointStatus read,
                       dlq::DecodeEndpointStatus(ctx_.emitted()[0].record.value));
  EXPECT_EQ(read, status);
  EXPECT_EQ(reporting.TellAt(told, status.state, status.reason, 0), now() + milliseconds(5000));
  EXPECT_LE(reporting.TellAt(told, EndpointHealthState::kHealthy, status.reason, 0), now());
  EXPECT_LE(reporting.TellAt(told, status.state, "dns", 0), now());
  EXPECT_LE(reporting.TellAt(told, status.state, status.reason, 2), now());
}

TEST_F(EndpointReportingTest, WithoutRoomAStatusIsToldLaterAndAnAttemptIsDropped) {
  EndpointReporting reporting = Make();
  EndpointReporting::Told told;
  ctx_.set_emit_room(0);
  EXPECT_FALSE(reporting.TellStatus(ctx_, dlq::EndpointStatus(), &told));
  EXPECT_FALSE(told.at.has_value());
  reporting.TellAttempt(ctx_, dlq::AttemptReport());
  EXPECT_EQ(metrics_.attempts_dropped.value(), 1);
  ctx_.set_emit_room(100);
  EXPECT_TRUE(reporting.TellStatus(ctx_, dlq::EndpointStatus(), &told));
  reporting.TellAttempt(ctx_, dlq::AttemptReport());
  EXPECT_THAT(ctx_.emitted(), SizeIs(2));
  EXPECT_EQ(metrics_.attempts_dropped.value(), 1);
}

TEST_F(EndpointReportingTest, TellsAllFailuresAndASampleOfSuccesses) {
  Outcome good;
  good.kind = OutcomeKind::kDelivered;
  Outcome bad;
  bad.kind = OutcomeKind::kConnect;
  EndpointReporting reporting = Make(10);
  int successes = 0;
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_TRUE(reporting.WantsAttempt(bad));
    successes += reporting.WantsAttempt(good) ? 1 : 0;
  }
  EXPECT_GT(successes, 800);
  EXPECT_LT(successes, 1200);
  EndpointReporting none = Make(0);
  EndpointReporting all = Make(1);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(none.WantsAttempt(good));
    EXPECT_TRUE(all.WantsAttempt(good));
  }
}

TEST_F(EndpointReportingTest, WhatTheLogDoesNotTakeIsCountedAndFailsNothing) {
  EndpointReporting reporting = Make();
  reporting.TellAttempt(ctx_, dlq::AttemptReport());
  ctx_.Answer(0, absl::UnavailableError("gone"));
  EXPECT_EQ(metrics_.failures.value(), 1);
}

TEST_F(EndpointReportingTest, AnAttemptsIdTellsNotWhenAConnectionFailed) {
  ManualClock clock;
  clock.SetWall(WallTime(milliseconds(1'900'000'123'456)));
  const auto time_of = [&clock](int status) {
    HttpResult result;
    result.status = status;
    const auto report = MakeAttemptReport(subscriptions::EndpointId(), AttemptFacts(), 1, 1, result,
                                          Outcome(), clock);
    int64_t ms = 0;
    for (size_t i = 0; i < 6; ++i) {
      ms = ms << 8 | static_cast<unsigned char>(report.id.view()[i]);
    }
    return ms;
  };
  EXPECT_EQ(time_of(500), 1'900'000'123'456);
  EXPECT_EQ(time_of(0), 1'900'000'123'000);
}

}  // namespace
}  // namespace postrider::delivery
