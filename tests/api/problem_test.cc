#include "api/problem.h"

#include <string>

#include "core/json/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace postrider::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string RetryAfter(const Response& response) {
  for (const auto& [name, value] : response.headers) {
    if (name == "retry-after") return value;
  }
  return "";
}

TEST(ProblemTest, MapsEachStatusToItsAnswer) {
  using Code = absl::StatusCode;
  const std::pair<Code, int> table[] = {
      {Code::kInvalidArgument, 400},  {Code::kUnauthenticated, 401},
      {Code::kPermissionDenied, 403}, {Code::kNotFound, 404},
      {Code::kAlreadyExists, 409},    {Code::kFailedPrecondition, 409},
      {Code::kOutOfRange, 409},       {Code::kUnavailable, 503},
      {Code::kDeadlineExceeded, 503}, {Code::kResourceExhausted, 503},
      {Code::kAborted, 503},          {Code::kCancelled, 503},
      {Code::kInternal, 500},         {Code::kDataLoss, 500},
      {Code::kUnknown, 500},          {Code::kUnimplemented, 500}};
  for (const auto& [code, status] : table) {
    const Response response = ProblemFromStatus(absl::Status(code, "text"));
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.content_type, "application/problem+json");
    EXPECT_EQ(RetryAfter(response), status == 503 ? "1" : "");
    const auto document = JsonValue::Parse(response.body);
    ASSERT_TRUE(document.ok());
    EXPECT_EQ(document->Find("status")->integer(), status);
    EXPECT_EQ(*document->Find("title")->string(), std::string(StatusTitle(status)));
  }
}

TEST(ProblemTest, TellsNothingOfOurOwnFaults) {
  for (const auto code : {absl::StatusCode::kInternal, absl::StatusCode::kUnavailable,
                          absl::StatusCode::kNotFound, absl::StatusCode::kFailedPrecondition}) {
    EXPECT_THAT(ProblemFromStatus(absl::Status(code, "host=10.1.2.3")).body,
                Not(HasSubstr("10.1.2.3")));
  }
}

TEST(ProblemTest, ListsEveryFaultWithItsPointer) {
  const Response response = ProblemFromFaults({{"/url", "a \"b\""}, {"/batch/events_max", "c"}});
  EXPECT_EQ(response.status, 422);
  EXPECT_THAT(response.body,
              HasSubstr("\"errors\":[{\"pointer\":\"/url\",\"detail\":\"a \\\"b\\\"\"},"
                        "{\"pointer\":\"/batch/events_max\",\"detail\":\"c\"}]"));
  EXPECT_THAT(ProblemFromParameters({{"limit", "x"}}).body,
              HasSubstr("{\"parameter\":\"limit\",\"detail\":\"x\"}"));
}

TEST(ProblemTest, ListsAHundredFaultsAtMost) {
  const auto count = [](size_t faults) {
    const std::string body =
        ProblemFromFaults(subscriptions::FieldFaults(faults, {"/x", "no"})).body;
    size_t found = 0;
    for (size_t at = 0; (at = body.find("\"/x\"", at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count(99), 99U);
  EXPECT_EQ(count(100), 100U);
  EXPECT_EQ(count(100'000), 100U);
}

}  // namespace
}  // namespace postrider::api
