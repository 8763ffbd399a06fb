#include "core/base/status_macros.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::IsOk;
using tests::IsOkAndHolds;
using tests::StatusIs;

absl::StatusOr<int> HalfOf(absl::StatusOr<int> number) {
  ASSIGN_OR_RETURN(const int value, std::move(number));
  return value / 2;
}

absl::Status Twice(const absl::Status& first, int* reached) {
  RETURN_IF_ERROR(first);
  ++*reached;
  return absl::OkStatus();
}

TEST(StatusMacrosTest, AssignsTheValueOrReturnsTheError) {
  EXPECT_THAT(HalfOf(8), IsOkAndHolds(4));
  EXPECT_THAT(HalfOf(absl::NotFoundError("no number")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no number")));
}

TEST(StatusMacrosTest, ReturnsAtTheFirstErrorOnly) {
  int reached = 0;
  EXPECT_OK(Twice(absl::OkStatus(), &reached));
  EXPECT_EQ(reached, 1);
  EXPECT_THAT(Twice(absl::AbortedError("stop"), &reached), Not(IsOk()));
  EXPECT_EQ(reached, 1);
}

TEST(StatusMatchersTest, TakeTheValueOutOfAResult) {
  absl::StatusOr<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_OK(result);
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<int> value, std::move(result));
  EXPECT_EQ(*value, 5);
}

TEST(StatusMatchersTest, TellCodesAndMessagesApart) {
  const absl::Status status = absl::NotFoundError("endpoint 7");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(status, Not(StatusIs(absl::StatusCode::kAborted)));
  EXPECT_THAT(status, Not(StatusIs(absl::StatusCode::kNotFound, "endpoint 8")));
  EXPECT_THAT(HalfOf(8), Not(IsOkAndHolds(5)));
}

}  // namespace
}  // namespace postrider
