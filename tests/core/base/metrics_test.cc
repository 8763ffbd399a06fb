#include "core/base/metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

using ::testing::HasSubstr;

TEST(MetricsTest, ExposesACounterInPrometheusText) {
  Metrics metrics;
  Counter& counter = metrics.AddCounter("postrider_test_events_total", "Events.", {{"kind", "a"}});
  counter.Increment();
  counter.Add(2);
  EXPECT_EQ(counter.value(), 3);
  const std::string text = metrics.Expose();
  EXPECT_THAT(text, HasSubstr("# HELP postrider_test_events_total Events.\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE postrider_test_events_total counter\n"));
  EXPECT_THAT(text, HasSubstr("postrider_test_events_total{kind=\"a\"} 3\n"));
}

TEST(MetricsTest, GivesOneSeriesForOneNameAndLabelSet) {
  Metrics metrics;
  Counter& first = metrics.AddCounter("postrider_test_total", "T.", {{"a", "1"}, {"b", "2"}});
  Counter& same = metrics.AddCounter("postrider_test_total", "T.", {{"b", "2"}, {"a", "1"}});
  Counter& other = metrics.AddCounter("postrider_test_total", "T.", {{"a", "1"}, {"b", "3"}});
  EXPECT_EQ(&first, &same);
  EXPECT_NE(&first, &other);
  first.Increment();
  EXPECT_EQ(other.value(), 0);
}

TEST(MetricsTest, SetsAndMovesAGauge) {
  Metrics metrics;
  Gauge& gauge = metrics.AddGauge("postrider_test_bytes", "Bytes.");
  gauge.Set(10);
  gauge.Add(-4);
  EXPECT_EQ(gauge.value(), 6);
  EXPECT_THAT(metrics.Expose(), HasSubstr("postrider_test_bytes 6\n"));
}

TEST(MetricsTest, CountsObservationsUpToTheirBucketsBound) {
  Metrics metrics;
  Histogram& histogram = metrics.AddHistogram("postrider_test_seconds", "Time.", {0.5, 1});
  EXPECT_EQ(&histogram, &metrics.AddHistogram("postrider_test_seconds", "Time.", {0.5, 1}));
  histogram.Observe(0.5);
  histogram.Observe(0.75);
  histogram.Observe(2);
  const std::string text = metrics.Expose();
  EXPECT_THAT(text, HasSubstr("postrider_test_seconds_bucket{le=\"0.5\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("postrider_test_seconds_bucket{le=\"1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("postrider_test_seconds_bucket{le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("postrider_test_seconds_sum 3.25\n"));
}

TEST(MetricsDeathTest, RefusesANameOfTwoKinds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Metrics metrics;
  metrics.AddCounter("postrider_test_total", "T.");
  EXPECT_DEATH(metrics.AddGauge("postrider_test_total", "T."), "check failed");
}

TEST(MetricsDeathTest, RefusesANameThatPrometheusCannotRead) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Metrics metrics;
  EXPECT_DEATH(metrics.AddCounter("postrider-test", "T."), "check failed");
  EXPECT_DEATH(metrics.AddCounter("postrider_test", "T.", {{"a b", "1"}}), "check failed");
}

}  // namespace
}  // namespace postrider
