#pragma once

#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace postrider::tests {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// A Status or StatusOr that is OK.
MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << "whose status is " << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("endpoint")));
MATCHER_P2(StatusIs, code, message, "has the status code and message") {
  *result_listener << "whose status is " << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         ::testing::Matches(message)(std::string(StatusOf(arg).message()));
}
template <typename Code>
auto StatusIs(Code code) {
  return StatusIs(code, ::testing::_);
}

// A StatusOr that is OK and whose value matches.
MATCHER_P(IsOkAndHolds, value, "is OK and holds the value") {
  *result_listener << "whose status is " << StatusOf(arg).ToString();
  return arg.ok() && ::testing::ExplainMatchResult(value, *arg, result_listener);
}

}  // namespace postrider::tests

#define EXPECT_OK(expression) EXPECT_THAT(expression, ::postrider::tests::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT(expression, ::postrider::tests::IsOk())

// ASSERT_OK_AND_ASSIGN(Type name, StatusOrExpression);
#define ASSERT_OK_AND_ASSIGN(lhs, expression) \
  ASSERT_OK_AND_ASSIGN_INNER(POSTRIDER_CONCAT(status_or_, __LINE__), lhs, expression)
#define ASSERT_OK_AND_ASSIGN_INNER(result, lhs, expression) \
  auto result = (expression);                               \
  ASSERT_TRUE(result.ok()) << result.status().ToString();   \
  lhs = *std::move(result)
