// The cases of kind SIGN: every request that leaves verifies at whoever checks it as the
// specification of Standard Webhooks says, by its bytes, at the time of its arrival.

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/random.h"
#include "core/crypto/mac.h"
#include "subscriptions/registry/signing_keys.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using subscriptions::BodyCompression;
using subscriptions::BodyFormat;
using subscriptions::DispatchRecord;
using subscriptions::EndpointMode;

constexpr char kOtherSecret[] = "whsec_ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=";

// A JSON text in any of the spellings that a re-serialisation would change.
std::string RandomJson(Random& random, int depth = 0) {
  static constexpr absl::string_view kScalars[] = {"1.0",
                                                   "1",
                                                   "-0",
                                                   "1E+2",
                                                   "12345678901234567890",
                                                   "0.10",
                                                   "true",
                                                   "null",
                                                   "\"\\u00e9\"",
                                                   "\"\u00e9\"",
                                                   "\"\\u2028\"",
                                                   "\"\"",
                                                   "\"/\"",
                                                   "\"\\/\"",
                                                   "\"\\\"},{\\\"id\\\":1\"",
                                                   "\"\u2028\u00b7\"",
                                                   "1e-7",
                                                   "\"a.b\"",
                                                   "[]",
                                                   "{}"};
  static constexpr absl::string_view kSpaces[] = {"", "", "", " ", "\n", "\t ", "\r\n"};
  const auto space = [&] { return kSpaces[random.Below(std::size(kSpaces))]; };
  if (depth == 3 || random.Below(3) == 0)
    return std::string(kScalars[random.Below(std::size(kScalars))]);
  const bool object = random.Below(2) == 0;
  std::vector<std::string> members;
  for (uint64_t i = random.Below(4); i > 0; --i) {
    // Keys fall, and some come twice.
    members.push_back(absl::StrCat(space(),
                                   object ? absl::StrCat("\"k", i / 2, "\"", space(), ":") : "",
                                   space(), RandomJson(random, depth + 1), space()));
  }
  return absl::StrCat(object ? "{" : "[", absl::StrJoin(members, ","), object ? "}" : "]");
}

// As a receiver does it that knows one secret.
bool Verifies(const FakeHttpSink::Sent& sent, absl::string_view secret, WallTime now) {
  int64_t timestamp = 0;
  if (!absl::SimpleAtoi(sent.Header("webhook-timestamp"), &timestamp)) return false;
  if (std::llabs(MillisSinceEpoch(now) / 1'000 - timestamp) > 300) return false;
  HmacSha256Key key(subscriptions::DecodeSigningSecret(secret).value());
  const HmacTag tag = key.Mac(
      {sent.Header("webhook-id"), ".", sent.Header("webhook-timestamp"), ".", sent.request.body});
  const std::string wanted = absl::StrCat(
      "v1,",
      absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(tag.data()), tag.size())));
  for (const absl::string_view one : absl::StrSplit(sent.Header("webhook-signature"), ' ')) {
    if (one == wanted) return true;
  }
  return false;
}

class EndpointSigningTest : public DeliveryFixture {
 protected:
  void SetUp() override {
    settings_.retry.attempts = 10;
    settings_.retry.horizon = std::chrono::hours(24);
    settings_.limits = {};
  }
  WallTime Wall() { return ctx().clock().Wall(); }
};

TEST_F(EndpointSigningTest, SIGN_01_WhatIsSignedIsWhatIsSentInEveryFormat) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.signature = subscriptions::SignatureScheme::kHmac;
  Random random(2026);
  const std::pair<BodyFormat, BodyCompression> forms[] = {
      {BodyFormat::kEnvelope, BodyCompression::kNone},
      {BodyFormat::kRaw, BodyCompression::kNone},
      {BodyFormat::kCloudEvents, BodyCompression::kNone},
      {BodyFormat::kCloudEventsBinary, BodyCompression::kNone},
      {BodyFormat::kEnvelope, BodyCompression::kZstd}};
  uint64_t xid = 10;
  int64_t number = 0;
  for (const auto& [format, compression] : forms) {
    settings_.body.format = format;
    settings_.body.compression = compression;
    Publish(++xid);
    if (function_ == nullptr) Start();
    for (int i = 0; i < 2'000; ++i) {
      DispatchRecord record = MakeRecord(++number);
      record.data = RandomJson(random);
      const size_t index = sink_->size();
      Deliver(record);
      Turn();
      ASSERT_EQ(sink_->size(), index + 1) << record.data;
      const FakeHttpSink::Sent& sent = sink_->at(index);
      ASSERT_TRUE(Verifies(sent, kSecret, Wall())) << record.data;
      // The event's own bytes, wherever they stand.
      if (compression == BodyCompression::kNone) {
        ASSERT_TRUE(absl::StrContains(sent.request.body, record.data)) << sent.request.body;
      }
      sink_->AnswerStatus(index, 200);
    }
  }
}

// The whole kind: alone and in a batch, from memory and over restarts.
class RetrySigningTest
    : public EndpointSigningTest,
      public testing::WithParamInterface<std::pair<EndpointMode, bool /* restarts */>> {};

INSTANTIATE_TEST_SUITE_P(Retries, RetrySigningTest,
                         testing::Values(std::pair(EndpointMode::kStreaming, false),
                                         std::pair(EndpointMode::kStreaming, true),
                                         std::pair(EndpointMode::kBatch, false),
                                         std::pair(EndpointMode::kBatch, true)));

TEST_P(RetrySigningTest, SIGN_02_EveryTryHasItsOwnTimeAndSignatureAndTheSameIdAndBody) {
  const auto [mode, restarts] = GetParam();
  settings_.mode = mode;
  settings_.batch.events_max = 3;
  settings_.retry.schedule = {minutes(7)};
  Publish();
  Start();
  Deliver(1, mode == EndpointMode::kStreaming ? 1 : 3);
  Turn();
  std::vector<WallTime> arrived{Wall()};
  for (size_t failed = 0; failed < 3; ++failed) {
    ASSERT_EQ(sink_->size(), failed + 1);
    sink_->AnswerStatus(failed, 500);
    Settle();
    if (restarts) NextLife();
    for (int minute = 0; minute < 8; ++minute) {
      const size_t before = sink_->size();
      Advance(minutes(1));
      Settle();
      SendAll();
      if (sink_->size() > before) arrived.push_back(Wall());
    }
  }
  ASSERT_EQ(sink_->size(), 4u);
  std::set<std::string> signatures;
  int64_t last = 0;
  for (size_t i = 0; i < 4; ++i) {
    const FakeHttpSink::Sent& sent = sink_->at(i);
    EXPECT_TRUE(Verifies(sent, kSecret, arrived[i])) << i;
    EXPECT_EQ(sent.Header("webhook-id"), sink_->at(0).Header("webhook-id"));
    EXPECT_EQ(sent.Header("webhook-attempt"), absl::StrCat(i + 1));
    EXPECT_EQ(sent.request.body, sink_->at(0).request.body);
    int64_t timestamp = 0;
    ASSERT_TRUE(absl::SimpleAtoi(sent.Header("webhook-timestamp"), &timestamp));
    EXPECT_GT(timestamp, last);
    last = timestamp;
    signatures.insert(sent.Header("webhook-signature"));
  }
  EXPECT_EQ(signatures.size(), 4u);
  EXPECT_FALSE(Verifies(sink_->at(0), kSecret, arrived[3])) << "it would be too old by then";
  sink_->AnswerStatus(3, 200);
  Settle();
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(EndpointSigningTest, SIGN_03_BothSecretsSignUntilTheOldOneEndsAndTheNewestComesFirst) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  const WallTime ends = Wall() + seconds(60);
  const auto send = [this](int64_t number) -> const FakeHttpSink::Sent& {
    Deliver(number, number);
    Turn();
    sink_->AnswerStatus(sink_->size() - 1, 200);
    return sink_->last();
  };
  const auto signatures = [](const FakeHttpSink::Sent& sent) {
    return std::vector<std::string>(absl::StrSplit(sent.Header("webhook-signature"), ' ')).size();
  };
  EXPECT_EQ(signatures(send(1)), 1u);
  secrets_ = {{kOtherSecret, Wall(), {}, kPrivateKey}, {kSecret, Wall(), ends, kPrivateKey}};
  ++generation_;
  Publish(11);
  // No snapshot comes in between: the end is read at each signing.
  ctx().manual_clock().Advance(milliseconds(59'999));
  const FakeHttpSink::Sent& last_of_both = send(2);
  EXPECT_EQ(signatures(last_of_both), 2u);
  EXPECT_TRUE(Verifies(last_of_both, kSecret, Wall()));
  EXPECT_TRUE(Verifies(last_of_both, kOtherSecret, Wall()));
  ctx().manual_clock().Advance(milliseconds(1));
  const FakeHttpSink::Sent& first_of_one = send(3);
  EXPECT_EQ(signatures(first_of_one), 1u);
  EXPECT_FALSE(Verifies(first_of_one, kSecret, Wall()));
  EXPECT_TRUE(Verifies(first_of_one, kOtherSecret, Wall()));
  // Without overlap, from the snapshot on that says so; a retry too.
  Deliver(4, 4);
  Turn();
  sink_->AnswerStatus(sink_->size() - 1, 500);
  Settle();
  secrets_ = {{kSecret, Wall(), {}, kPrivateKey}, {kOtherSecret, Wall(), Wall(), kPrivateKey}};
  ++generation_;
  Publish(12);
  for (int i = 0; i < 20; ++i) {
    Advance(milliseconds(50));
    SendAll();
  }
  EXPECT_EQ(sink_->last().Header("webhook-attempt"), "2");
  EXPECT_EQ(signatures(sink_->last()), 1u);
  EXPECT_TRUE(Verifies(sink_->last(), kSecret, Wall()));
}

// SIGN-03, SIGN-07
TEST_F(EndpointSigningTest, ARequestThatWaitedForItsSlotIsSignedWhenItGetsIt) {
  settings_.mode = EndpointMode::kStreaming;
  const WallTime ends = Wall() + seconds(60);
  secrets_ = {{kOtherSecret, Wall(), {}, kPrivateKey}, {kSecret, Wall(), ends, kPrivateKey}};
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  const FakeHttpSink::Sent& sent = sink_->at(0);
  const std::string timestamp = sent.Header("webhook-timestamp");
  const std::string signature = sent.Header("webhook-signature");
  const std::string body = sent.request.body;
  ctx().manual_clock().Advance(milliseconds(999));
  ASSERT_TRUE(sink_->MayStart(0));
  EXPECT_EQ(sent.Header("webhook-timestamp"), timestamp);
  EXPECT_EQ(sent.Header("webhook-signature"), signature);
  // The older secret ends while the request waits.
  ctx().manual_clock().Advance(milliseconds(59'001));
  ASSERT_TRUE(sink_->MayStart(0));
  EXPECT_EQ(sent.Header("webhook-timestamp"), absl::StrCat(MillisSinceEpoch(Wall()) / 1000));
  EXPECT_TRUE(Verifies(sent, kOtherSecret, Wall()));
  EXPECT_FALSE(Verifies(sent, kSecret, Wall()));
  EXPECT_EQ(sent.request.body, body);
  EXPECT_EQ(sent.Header("webhook-attempt"), "1");
  sink_->AnswerStatus(0, 200);
  EXPECT_TRUE(ctx().IsCompleted(0));
}

TEST_F(EndpointSigningTest, SIGN_07_TheTimeIsThatOfSendingInWholeSecondsAndNoIdHasAPoint) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  for (const int64_t ms : {999, 1, 1'000, 3'600'000}) {
    ctx().manual_clock().Advance(milliseconds(ms));
    Deliver(next_offset_ + 1, next_offset_ + 1);
    Turn();
    const FakeHttpSink::Sent& sent = sink_->last();
    const std::string timestamp = sent.Header("webhook-timestamp");
    EXPECT_EQ(timestamp, absl::StrCat(MillisSinceEpoch(Wall()) / 1'000));
    EXPECT_GE(timestamp.size(), 10u);
    EXPECT_LE(timestamp.size(), 11u);
    EXPECT_FALSE(absl::StrContains(sent.Header("webhook-id"), "."));
    sink_->AnswerStatus(sink_->size() - 1, 200);
  }
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 2;
  ++generation_;
  Publish(11);
  Deliver(next_offset_ + 1, next_offset_ + 2);
  Turn();
  EXPECT_TRUE(absl::StartsWith(sink_->last().Header("webhook-id"), "bat_"));
  EXPECT_FALSE(absl::StrContains(sink_->last().Header("webhook-id"), "."));
}

}  // namespace
}  // namespace postrider::delivery
