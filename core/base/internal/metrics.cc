#include "core/base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"

namespace postrider {
namespace {

class CounterHandle final : public Counter {
 public:
  explicit CounterHandle(prometheus::Counter& series) : series_(series) {}
  void Add(double value) override { series_.Increment(value); }
  double value() const override { return series_.Value(); }

 private:
  prometheus::Counter& series_;
};

class GaugeHandle final : public Gauge {
 public:
  explicit GaugeHandle(prometheus::Gauge& series) : series_(series) {}
  void Set(double value) override { series_.Set(value); }
  void Add(double value) override { series_.Increment(value); }
  double value() const override { return series_.Value(); }

 private:
  prometheus::Gauge& series_;
};

class HistogramHandle final : public Histogram {
 public:
  explicit HistogramHandle(prometheus::Histogram& series) : series_(series) {}
  void Observe(double value) override { series_.Observe(value); }

 private:
  prometheus::Histogram& series_;
};

using Labels = std::map<std::string, std::string>;

// [a-zA-Z_][a-zA-Z0-9_]*, and for names our own prefix: the library throws for less.
bool IsIdentifier(absl::string_view text) {
  if (text.empty() || absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c));
  });
}

Labels CheckedLabels(MetricLabels labels) {
  Labels result;
  for (const auto& [name, value] : labels) {
    POSTRIDER_CHECK(IsIdentifier(name) && name.substr(0, 2) != "__" && name != "le");
    POSTRIDER_CHECK(result.emplace(std::string(name), std::string(value)).second);
  }
  return result;
}

// The series of one metric name.
template <typename Series, typename Handle>
struct NamedFamily {
  prometheus::Family<Series>* family = nullptr;
  std::map<Labels, std::unique_ptr<Handle>> handles;
};

template <typename Series, typename Handle, typename Builder, typename... Bounds>
Handle& FindOrAdd(std::map<std::string, NamedFamily<Series, Handle>>& families,
                  prometheus::Registry& registry, Builder builder, absl::string_view name,
                  absl::string_view help, MetricLabels labels, const Bounds&... bounds) {
  NamedFamily<Series, Handle>& named = families[std::string(name)];
  if (named.family == nullptr) {
    named.family = &builder.Name(std::string(name)).Help(std::string(help)).Register(registry);
  }
  Labels key = CheckedLabels(labels);
  std::unique_ptr<Handle>& handle = named.handles[key];
  if (handle == nullptr) handle = std::make_unique<Handle>(named.family->Add(key, bounds...));
  return *handle;
}

}  // namespace

// A name is one kind of metric for ever, and a histogram's name has one set of bounds.
struct Metrics::Impl {
  enum class Kind { kCounter, kGauge, kHistogram };

  void Claim(absl::string_view name, Kind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    POSTRIDER_CHECK(IsIdentifier(name));
    POSTRIDER_CHECK(kinds.emplace(std::string(name), kind).first->second == kind);
  }

  prometheus::Registry registry;
  absl::Mutex mutex;
  std::map<std::string, Kind> kinds ABSL_GUARDED_BY(mutex);
  std::map<std::string, NamedFamily<prometheus::Counter, CounterHandle>> counters
      ABSL_GUARDED_BY(mutex);
  std::map<std::string, NamedFamily<prometheus::Gauge, GaugeHandle>> gauges ABSL_GUARDED_BY(mutex);
  std::map<std::string, NamedFamily<prometheus::Histogram, HistogramHandle>> histograms
      ABSL_GUARDED_BY(mutex);
  std::map<std::string, std::vector<double>> bounds ABSL_GUARDED_BY(mutex);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

Counter& Metrics::AddCounter(absl::string_view name, absl::string_view help, MetricLabels labels) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->Claim(name, Impl::Kind::kCounter);
  return FindOrAdd(impl_->counters, impl_->registry, prometheus::BuildCounter(), name, help,
                   labels);
}

Gauge& Metrics::AddGauge(absl::string_view name, absl::string_view help, MetricLabels labels) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->Claim(name, Impl::Kind::kGauge);
  return FindOrAdd(impl_->gauges, impl_->registry, prometheus::BuildGauge(), name, help, labels);
}

Histogram& Metrics::AddHistogram(absl::string_view name, absl::string_view help,
                                 const std::vector<double>& bounds, MetricLabels labels) {
  POSTRIDER_CHECK(std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<double>()) ==
                  bounds.end());
  absl::MutexLock lock(&impl_->mutex);
  impl_->Claim(name, Impl::Kind::kHistogram);
  POSTRIDER_CHECK(impl_->bounds.emplace(std::string(name), bounds).first->second == bounds);
  return FindOrAdd(impl_->histograms, impl_->registry, prometheus::BuildHistogram(), name, help,
                   labels, bounds);
}

std::string Metrics::Expose() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace postrider
