#include "delivery/backlog_levels.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace postrider::delivery {

using subscriptions::CustomerId;

uint64_t LevelOf(std::vector<uint64_t> sizes, uint64_t bytes_max) {
  std::sort(sizes.begin(), sizes.end());
  uint64_t left = bytes_max;
  for (size_t i = 0; i < sizes.size(); ++i) {
    // The level if all from here on are cut.
    const uint64_t level = left / (sizes.size() - i);
    if (sizes[i] > level) return level;
    left -= sizes[i];
  }
  return UINT64_MAX;
}

uint64_t BacklogLevels::Levels::Of(CustomerId customer) const {
  const auto found = of_customers.find(customer);
  return found == of_customers.end() ? of_all : std::min(of_all, found->second);
}

BacklogLevels::BacklogLevels(uint64_t customer_bytes_max)
    : customer_bytes_max_(customer_bytes_max), levels_(std::make_shared<const Levels>()) {}

void BacklogLevels::Tell(const void* function, Sizes sizes) {
  const auto sum = [](const std::vector<uint64_t>& of_endpoints) {
    return std::accumulate(of_endpoints.begin(), of_endpoints.end(), uint64_t{0});
  };
  absl::MutexLock lock(&mutex_);
  absl::flat_hash_set<CustomerId> touched;
  const auto before = told_.find(function);
  if (before != told_.end()) {
    for (const auto& [customer, of_endpoints] : before->second) {
      touched.insert(customer);
      totals_[customer] -= sum(of_endpoints);
      held_ -= sum(of_endpoints);
    }
  }
  for (const auto& [customer, of_endpoints] : sizes) {
    touched.insert(customer);
    totals_[customer] += sum(of_endpoints);
    held_ += sum(of_endpoints);
  }
  if (sizes.empty()) {
    told_.erase(function);
  } else {
    told_[function] = std::move(sizes);
  }

  Levels next = *levels_;
  for (const CustomerId customer : touched) {
    const uint64_t total = totals_[customer];
    if (total == 0) totals_.erase(customer);
    if (total <= customer_bytes_max_) {
      next.of_customers.erase(customer);
    } else {
      next.of_customers[customer] = LevelOfCustomer(customer);
    }
  }
  next.of_all = LevelOfAll();
  Set(std::move(next));
}

void BacklogLevels::SetBytesMax(uint64_t bytes_max) {
  absl::MutexLock lock(&mutex_);
  bytes_max_ = bytes_max;
  Levels next = *levels_;
  next.of_all = LevelOfAll();
  Set(std::move(next));
}

void BacklogLevels::Set(Levels next) {
  if (next.of_all == levels_->of_all && next.of_customers == levels_->of_customers) return;
  levels_ = std::make_shared<const Levels>(std::move(next));
}

uint64_t BacklogLevels::LevelOfCustomer(CustomerId customer) const {
  std::vector<uint64_t> all;
  for (const auto& [function, sizes] : told_) {
    const auto found = sizes.find(customer);
    if (found == sizes.end()) continue;
    all.insert(all.end(), found->second.begin(), found->second.end());
  }
  return LevelOf(std::move(all), customer_bytes_max_);
}

uint64_t BacklogLevels::LevelOfAll() const {
  if (held_ <= bytes_max_) return UINT64_MAX;
  std::vector<uint64_t> all;
  for (const auto& [function, sizes] : told_) {
    for (const auto& [customer, of_endpoints] : sizes) {
      all.insert(all.end(), of_endpoints.begin(), of_endpoints.end());
    }
  }
  return LevelOf(std::move(all), bytes_max_);
}

uint64_t BacklogLevels::held() const {
  absl::MutexLock lock(&mutex_);
  return held_;
}

std::shared_ptr<const BacklogLevels::Levels> BacklogLevels::levels() const {
  absl::MutexLock lock(&mutex_);
  return levels_;
}

}  // namespace postrider::delivery
