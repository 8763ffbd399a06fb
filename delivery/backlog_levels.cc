#include "delivery/backlog_levels.h"

#include <algorithm>
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
  absl::MutexLock lock(&mutex_);
  absl::flat_hash_set<CustomerId> touched;
  for (const auto& [customer, of_endpoints] : sizes) touched.insert(customer);
  Count(sizes, Change::kAdd);
  const auto before = told_.find(function);
  if (before != told_.end()) {
    for (const auto& [customer, of_endpoints] : before->second) touched.insert(customer);
    Count(before->second, Change::kRemove);
  }
  if (sizes.empty()) {
    told_.erase(function);
  } else {
    told_[function] = std::move(sizes);
  }

  Levels next = *levels_;
  for (const CustomerId customer : touched) {
    const auto counts = of_customers_.find(customer);
    const uint64_t level = counts == of_customers_.end()
                               ? UINT64_MAX
                               : counts->second.LevelWithin(customer_bytes_max_).bytes;
    if (level == UINT64_MAX) {
      next.of_customers.erase(customer);
    } else {
      next.of_customers[customer] = level;
    }
  }
  next.of_all = of_all_.LevelWithin(bytes_max_).bytes;
  Set(std::move(next));
}

void BacklogLevels::Count(const Sizes& sizes, Change change) {
  for (const auto& [customer, of_endpoints] : sizes) {
    SizeCounts& of_customer = of_customers_[customer];
    for (const uint64_t size : of_endpoints) {
      for (SizeCounts* counts : {&of_customer, &of_all_}) {
        change == Change::kAdd ? counts->Add(size) : counts->Remove(size);
      }
    }
    if (of_customer.empty()) of_customers_.erase(customer);
  }
}

void BacklogLevels::SetBytesMax(uint64_t bytes_max) {
  absl::MutexLock lock(&mutex_);
  bytes_max_ = bytes_max;
  Levels next = *levels_;
  next.of_all = of_all_.LevelWithin(bytes_max_).bytes;
  Set(std::move(next));
}

void BacklogLevels::Set(Levels next) {
  if (next.of_all == levels_->of_all && next.of_customers == levels_->of_customers) return;
  levels_ = std::make_shared<const Levels>(std::move(next));
}

uint64_t BacklogLevels::held() const {
  absl::MutexLock lock(&mutex_);
  return of_all_.total();
}

std::shared_ptr<const BacklogLevels::Levels> BacklogLevels::levels() const {
  absl::MutexLock lock(&mutex_);
  return levels_;
}

}  // namespace postrider::delivery
