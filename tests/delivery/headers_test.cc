#include "delivery/headers.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider::delivery {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

DeliveryHeaders Input(const HttpHeaders* custom = nullptr) {
  DeliveryHeaders input;
  input.webhook_id = "msg_1";
  input.timestamp_seconds = 1'700'000'000;
  input.signature = "v1,x= v1,y=";
  input.attempt = 2;
  input.batch_size = 3;
  input.custom = custom;
  return input;
}

// SIGN-07: seconds, without sign or fraction.
TEST(HeadersTest, MakesTheSameLinesInTheSameOrder) {
  const HttpHeaders custom = {{"X-B", "1"}, {"Authorization", "Bearer t"}};
  ASSERT_OK_AND_ASSIGN(const HttpHeaders headers, MakeDeliveryHeaders(Input(&custom)));
  const HttpHeaders expected = {{"content-type", "application/json"},
                                {"user-agent", "Postrider/" POSTRIDER_VERSION},
                                {"webhook-id", "msg_1"},
                                {"webhook-timestamp", "1700000000"},
                                {"webhook-signature", "v1,x= v1,y="},
                                {"webhook-attempt", "2"},
                                {"webhook-batch-size", "3"},
                                {"webhook-hops", "1"},
                                {"X-B", "1"},
                                {"Authorization", "Bearer t"}};
  EXPECT_EQ(headers, expected);
}

// URL-05, URL-07: what was put into the database past the API is refused before it is sent.
TEST(HeadersTest, RefusesHeadersThatTheApiWouldHaveRefused) {
  for (const HttpHeaders& custom :
       {HttpHeaders{{"X-A", "top\r\nX-Evil: 1"}}, HttpHeaders{{"Webhook-Id", "top"}},
        HttpHeaders{{"X-A", "1"}, {"x-a", "top"}}}) {
    EXPECT_THAT(MakeDeliveryHeaders(Input(&custom)),
                tests::StatusIs(absl::StatusCode::kFailedPrecondition, Not(HasSubstr("top"))));
  }
}

TEST(HeadersTest, SaysHowTheBodyIsWritten) {
  DeliveryHeaders input = Input();
  input.content_type = "application/x-ndjson";
  input.content_encoding = "gzip";
  ASSERT_OK_AND_ASSIGN(const HttpHeaders headers, MakeDeliveryHeaders(input));
  EXPECT_EQ(headers[0].second, "application/x-ndjson");
  EXPECT_EQ(headers[1], (HttpHeaders::value_type{"content-encoding", "gzip"}));
}

TEST(HeadersTest, AnEndpointsHeaderNeverStandsBesideOneOfTheEvent) {
  const HttpHeaders custom = {{"CE-Id", "mine"}};
  DeliveryHeaders input = Input(&custom);
  EXPECT_OK(MakeDeliveryHeaders(input));
  input.event = {{"ce-id", "msg_1"}};
  EXPECT_THAT(MakeDeliveryHeaders(input),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition, Not(HasSubstr("mine"))));
  input.custom = nullptr;
  ASSERT_OK_AND_ASSIGN(const HttpHeaders headers, MakeDeliveryHeaders(input));
  EXPECT_EQ(headers.back(), (HttpHeaders::value_type{"ce-id", "msg_1"}));
}

TEST(HeadersTest, RefusesAnEmptySignature) {
  DeliveryHeaders input = Input();
  input.signature = "";
  EXPECT_THAT(MakeDeliveryHeaders(input), tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                                                          HasSubstr("webhook-signature")));
}

}  // namespace
}  // namespace postrider::delivery
