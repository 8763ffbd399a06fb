#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace postrider {

// Handles to one time series each. They live as long as their Metrics. Threads: any.
class Counter {
 public:
  virtual ~Counter() = default;
  virtual void Add(double value) = 0;
  void Increment() { Add(1); }
  virtual double value() const = 0;
};
class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void Set(double value) = 0;
  virtual void Add(double value) = 0;
  virtual double value() const = 0;
};
class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void Observe(double value) = 0;
};

using MetricLabels = std::initializer_list<std::pair<absl::string_view, absl::string_view>>;

// The process's metrics, in Prometheus' text format. Passed down, never global. Asking twice for
// one name and label set gives the same series. Names: `postrider_<folder>_<thing>_<unit>`,
// `_total` on counters; labels are small closed sets and never a customer, tenant or endpoint.
// Threads: any; look handles up once, not on the event path.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  Counter& AddCounter(absl::string_view name, absl::string_view help, MetricLabels labels = {});
  Gauge& AddGauge(absl::string_view name, absl::string_view help, MetricLabels labels = {});
  // `bounds`: upper bounds of the buckets, ascending; the same for every series of a name.
  Histogram& AddHistogram(absl::string_view name, absl::string_view help,
                          const std::vector<double>& bounds, MetricLabels labels = {});

  // The exposition text of everything.
  std::string Expose() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
