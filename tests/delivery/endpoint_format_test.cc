// What an endpoint's format, compression and signatures make of its messages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/crypto/ed25519.h"
#include "delivery/signer.h"
#include "subscriptions/registry/signing_keys.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using subscriptions::BodyCompression;
using subscriptions::BodyFormat;
using subscriptions::DispatchRecord;
using subscriptions::EndpointMode;
using subscriptions::SignatureScheme;
using ::testing::HasSubstr;
using ::testing::Not;

class EndpointFormatTest : public DeliveryFixture {
 protected:
  // Publishes the settings, and sends one message by itself.
  const FakeHttpSink::Sent& SendOne() {
    settings_.mode = EndpointMode::kStreaming;
    Publish();
    Start();
    Deliver(1, 1);
    Turn();
    return sink_->at(0);
  }
};

TEST_F(EndpointFormatTest, RawSendsTheEventItself) {
  settings_.body.format = BodyFormat::kRaw;
  const auto& sent = SendOne();
  EXPECT_EQ(sent.request.body, "{\"n\":1}");
  EXPECT_EQ(sent.Header("content-type"), "application/json");
  EXPECT_EQ(sent.Header("webhook-id").substr(0, 4), "msg_");
}

TEST_F(EndpointFormatTest, ABinaryCloudEventHasItsAttributesInHeaders) {
  settings_.body.format = BodyFormat::kCloudEventsBinary;
  const auto& sent = SendOne();
  EXPECT_EQ(sent.request.body, "{\"n\":1}");
  EXPECT_EQ(sent.Header("ce-id"), sent.Header("webhook-id"));
  EXPECT_EQ(sent.Header("ce-type"), "order.created");
  EXPECT_EQ(sent.Header("ce-source"), "/tenants/t1");
  EXPECT_EQ(sent.Header("ce-eventid"), "e1");
  EXPECT_EQ(sent.Header("ce-department"), "");
}

TEST_F(EndpointFormatTest, AStructuredCloudEventIsOneObject) {
  settings_.body.format = BodyFormat::kCloudEvents;
  const auto& sent = SendOne();
  EXPECT_EQ(sent.Header("content-type"), "application/cloudevents+json");
  EXPECT_TRUE(absl::StartsWith(sent.request.body, "{\"specversion\":\"1.0\",\"id\":\"msg_"));
  EXPECT_TRUE(absl::EndsWith(sent.request.body, ",\"data\":{\"n\":1}}"));
}

TEST_F(EndpointFormatTest, BatchesHaveTheMediaTypeOfTheirFormat) {
  settings_.batch.events_max = 2;
  settings_.body.format = BodyFormat::kCloudEvents;
  Publish();
  Start();
  Deliver(1, 2);
  Turn();
  settings_.body.format = BodyFormat::kNdjson;
  Publish(11);
  Deliver(3, 4);
  Turn();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(0).Header("content-type"), "application/cloudevents-batch+json");
  EXPECT_EQ(sink_->at(0).request.body.substr(0, 2), "[{");
  EXPECT_EQ(sink_->at(1).Header("content-type"), "application/x-ndjson");
  EXPECT_EQ(std::count(sink_->at(1).request.body.begin(), sink_->at(1).request.body.end(), '\n'),
            2);
}

// Put into the database past the API, which asks for the mode streaming.
TEST_F(EndpointFormatTest, AFormatWithoutAListIsSentOneByOneInAnyMode) {
  settings_.mode = EndpointMode::kBatch;
  settings_.body.format = BodyFormat::kRaw;
  Publish();
  Start();
  Deliver(1, 2);
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(0).request.body, "{\"n\":1}");
  EXPECT_EQ(sink_->at(1).request.body, "{\"n\":2}");
}

TEST_F(EndpointFormatTest, ABatchThatWasSentKeepsItsMembersWhenTheFormatHasNoListAnyMore) {
  settings_.batch.events_max = 2;
  Publish();
  Start();
  Deliver(1, 2);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  const std::string body = sink_->at(0).request.body;
  sink_->AnswerStatus(0, 500);
  settings_.mode = EndpointMode::kStreaming;
  settings_.body.format = BodyFormat::kRaw;
  Publish(11);
  Settle();
  Advance(milliseconds(100));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).request.body, body);
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
  Deliver(3, 3);
  Turn();
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_EQ(sink_->at(2).request.body, "{\"n\":3}");
}

// What was gathered as envelopes is larger as CloudEvents.
TEST_F(EndpointFormatTest, ABatchStaysWithinItsBytesWhenTheFormatChanges) {
  settings_.batch.bytes_max = 2000;
  Publish();
  Start();
  Deliver(1, 9);
  Turn();
  EXPECT_EQ(sink_->size(), 0u);
  settings_.body.format = BodyFormat::kCloudEvents;
  Publish(11);
  Advance(milliseconds(1000));
  SendAll();
  size_t messages = 0;
  for (size_t i = 0; i < sink_->size(); ++i) {
    const FakeHttpSink::Sent& sent = sink_->at(i);
    EXPECT_LE(sent.request.body.size(), 2000u);
    messages += std::stoul(sent.Header("webhook-batch-size"));
  }
  EXPECT_EQ(sink_->size(), 2u);
  EXPECT_EQ(messages, 9u);
}

TEST_F(EndpointFormatTest, TheSignatureCoversTheBytesOnTheWire) {
  settings_.body.compression = BodyCompression::kGzip;
  const auto& sent = SendOne();
  EXPECT_EQ(sent.Header("content-encoding"), "gzip");
  EXPECT_EQ(sent.request.body.substr(0, 2), "\x1f\x8b");
  SecretSet secrets;
  ASSERT_TRUE(secrets.Add("01234567890123456789012345678901"));
  const WallTime now = ctx().clock().Wall();
  EXPECT_EQ(
      secrets.Sign(sent.Header("webhook-id"), MillisSinceEpoch(now) / 1000, sent.request.body, now),
      sent.Header("webhook-signature"));
  std::string plain(10'000, '\0');
  z_stream stream{};
  ASSERT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string wire = sent.request.body;
  stream.next_in = reinterpret_cast<Bytef*>(wire.data());
  stream.avail_in = static_cast<uInt>(wire.size());
  stream.next_out = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_out = static_cast<uInt>(plain.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  plain.resize(stream.total_out);
  inflateEnd(&stream);
  EXPECT_TRUE(absl::EndsWith(plain, "\"data\":{\"n\":1}}"));
}

TEST_F(EndpointFormatTest, TheBytesOfABatchCountBeforeCompression) {
  settings_.body.compression = BodyCompression::kZstd;
  settings_.batch.bytes_max = 4000;
  Publish();
  Start();
  for (int64_t n = 1; n <= 2; ++n) {
    DispatchRecord record = MakeRecord(n);
    record.data = absl::StrCat("\"", std::string(3000, 'a'), "\"");
    Deliver(record);
  }
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).Header("webhook-batch-size"), "1");
  EXPECT_EQ(sink_->at(0).Header("content-encoding"), "zstd");
  EXPECT_EQ(sink_->at(0).request.body.substr(0, 4), "\x28\xb5\x2f\xfd");
  EXPECT_LT(sink_->at(0).request.body.size(), 1000u);
}

TEST_F(EndpointFormatTest, SignsByBothSchemesWhenAskedTo) {
  settings_.signature = SignatureScheme::kBoth;
  const auto& sent = SendOne();
  const std::vector<std::string> parts = absl::StrSplit(sent.Header("webhook-signature"), ' ');
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_TRUE(absl::StartsWith(parts[0], "v1,"));
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(absl::StripPrefix(parts[1], "v1a,"), &bytes));
  Ed25519Signature signature{};
  ASSERT_EQ(bytes.size(), signature.size());
  std::copy(bytes.begin(), bytes.end(), signature.begin());
  const Ed25519Seed seed = subscriptions::DecodePrivateKey(kPrivateKey).value();
  EXPECT_TRUE(VerifyEd25519(Ed25519Key(seed).public_key(),
                            absl::StrCat(sent.Header("webhook-id"), ".",
                                         sent.Header("webhook-timestamp"), ".", sent.request.body),
                            signature));
}

// The matcher proves all data. Nothing stands in a body on its word alone.
TEST_F(EndpointFormatTest, DataThatAreNotOneJsonValueNeverStandInABody) {
  settings_.batch.events_max = 2;
  Publish();
  Start();
  const std::string forgeries[] = {"1},{\"id\":\"forged\",\"data\":1", "", "{\"a\":\"\xff\"}",
                                   "1 2", std::string(100'000, ' ') + "1},{\"id\":\"forged\""};
  int64_t number = 1;
  for (const std::string& forgery : forgeries) {
    DispatchRecord record = MakeRecord(number++);
    record.data = forgery;
    Deliver(record);
  }
  Deliver(MakeRecord(number++));
  Deliver(MakeRecord(number++));
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).Header("webhook-batch-size"), "2");
  EXPECT_THAT(sink_->at(0).request.body, Not(HasSubstr("forged")));
  ASSERT_EQ(ctx().emitted().size(), std::size(forgeries));
  for (const auto& emitted : ctx().emitted()) {
    EXPECT_EQ(emitted.record.topic, "postrider.rejected");
  }
  ctx().AcknowledgeAll();
  EXPECT_EQ(ctx().completed().size(), std::size(forgeries));
}

}  // namespace
}  // namespace postrider::delivery
