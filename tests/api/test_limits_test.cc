#include "api/internal/test_limits.h"

#include <chrono>
#include <string>

#include "gtest/gtest.h"

namespace postrider::api {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

template <typename Id>
Id Make(int number) {
  IdBytes bytes{};
  bytes[14] = static_cast<uint8_t>(number >> 8);
  bytes[15] = static_cast<uint8_t>(number & 0xff);
  return Id(bytes);
}
constexpr auto kCustomer = Make<subscriptions::CustomerId>;
constexpr auto kEndpoint = Make<subscriptions::EndpointId>;

class TestLimitsTest : public ::testing::Test {
 protected:
  // 0: it was let through.
  int64_t Wait(int customer, int endpoint) {
    const auto wait = limits_.Begin(kCustomer(customer), kEndpoint(endpoint), now_);
    return wait ? wait->count() : 0;
  }
  bool Once(int customer, int endpoint) {
    if (Wait(customer, endpoint) != 0) return false;
    limits_.End(kCustomer(customer));
    return true;
  }

  TestLimits limits_;
  MonotonicTime now_{std::chrono::hours(1)};
};

TEST_F(TestLimitsTest, TestsAnEndpointOnceInTenSeconds) {
  EXPECT_TRUE(Once(1, 1));
  EXPECT_EQ(Wait(1, 1), 10);
  EXPECT_TRUE(Once(1, 2));
  now_ += milliseconds(9'999);
  EXPECT_EQ(Wait(1, 1), 1);
  now_ += milliseconds(1);
  EXPECT_TRUE(Once(1, 1));
}

TEST_F(TestLimitsTest, ACustomerHasFourAtOnceAndThirtyAMinute) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Wait(1, i), 0);
  EXPECT_EQ(Wait(1, 4), 1);
  EXPECT_TRUE(Once(2, 100)) << "another customer's";
  for (int i = 0; i < 4; ++i) limits_.End(kCustomer(1));
  for (int i = 4; i < 30; ++i) EXPECT_TRUE(Once(1, i)) << i;
  EXPECT_EQ(Wait(1, 30), 60);
  now_ += milliseconds(59'999);
  EXPECT_EQ(Wait(1, 30), 1);
  now_ += milliseconds(1);
  EXPECT_TRUE(Once(1, 30));
}

TEST_F(TestLimitsTest, LetsThirtyTwoThroughAtOnce) {
  for (int i = 0; i < 32; ++i) EXPECT_EQ(Wait(i, i), 0);
  EXPECT_EQ(Wait(50, 50), 1);
  limits_.End(kCustomer(7));
  EXPECT_EQ(Wait(50, 50), 0);
}

TEST_F(TestLimitsTest, ForgetsWhatIsOverWhenItKnowsTooMany) {
  int endpoint = 0;
  for (; endpoint < static_cast<int>(TestLimits::kKnownMax); ++endpoint) {
    ASSERT_TRUE(Once(endpoint, endpoint)) << endpoint;
  }
  EXPECT_EQ(Wait(1, endpoint), 1) << "it knows no more than it may";
  now_ += seconds(60);
  EXPECT_TRUE(Once(1, endpoint));
  EXPECT_EQ(Wait(1, endpoint), 10);
}

}  // namespace
}  // namespace postrider::api
