#include "delivery/fair_queue.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/base/check.h"

namespace postrider::delivery {
namespace {

// Of what is remembered without need, so many are kept before they are looked for.
constexpr size_t kIdleKept = 64;
constexpr size_t kSlotsPart = 10;

}  // namespace

FairQueue::Customer& FairQueue::Of(subscriptions::CustomerId id) {
  std::unique_ptr<Customer>& customer = customers_[id];
  if (customer == nullptr) {
    customer = std::make_unique<Customer>();
    customer->tag = now_;
  }
  return *customer;
}

void FairQueue::Join(Customer& customer) {
  if (customer.in_line || customer.endpoints.empty()) return;
  if (customer.slots == 0) ++with_work_;
  customer.in_line = true;
  customer.place = {std::max(customer.tag, now_), arrivals_++};
  line_.emplace(customer.place, &customer);
}

void FairQueue::Enqueue(subscriptions::CustomerId id, EndpointFunction* function,
                        absl::string_view key) {
  if (serving_ != nullptr && serving_->first == function && serving_->second == key) {
    again_ = true;
    return;
  }
  if (customers_.size() > 2 * with_work_ + kIdleKept) ForgetIdle();
  Customer& customer = Of(id);
  Insert(customer, Owner(function, key));
  Join(customer);
}

void FairQueue::Insert(Customer& customer, Owner owner) {
  const auto tag = customer.tags.find(owner);
  const uint64_t start =
      tag == customer.tags.end() ? customer.now : std::max(tag->second, customer.now);
  customer.endpoints.emplace(Place(start, arrivals_++), std::move(owner));
  ++size_;
}

bool FairQueue::AtCap(const Customer& customer) const {
  return customer.slots >= std::max(slots_ / kSlotsPart, slots_ / std::max<size_t>(with_work_, 1));
}

// Who is at its cap is passed over, unless all are.
FairQueue::Customer& FairQueue::PickNext() {
  for (const auto& [place, customer] : line_) {
    if (!AtCap(*customer)) return *customer;
  }
  return *line_.begin()->second;
}

uint64_t FairQueue::Serve(
    absl::FunctionRef<size_t(EndpointFunction* function, const std::string& key)> serve) {
  if (line_.empty()) return 0;
  Customer& customer = PickNext();
  const uint64_t start = customer.place.first;
  now_ = std::max(now_, start);
  line_.erase(customer.place);  // but `in_line` until its turn is over
  const auto first = customer.endpoints.begin();
  customer.now = first->first.first;
  Owner owner = std::move(first->second);
  customer.endpoints.erase(first);
  --size_;

  serving_ = &owner;
  again_ = false;
  const size_t bytes = serve(owner.first, owner.second);
  serving_ = nullptr;

  const uint64_t cost = bytes == 0 ? 1 : kTurnCost + bytes;
  customer.tags[owner] = customer.now + cost;
  customer.tag = start + cost;
  if (again_) Insert(customer, std::move(owner));
  if (customer.tags.size() > 2 * customer.endpoints.size() + kIdleKept) {
    absl::erase_if(customer.tags,
                   [&customer](const auto& one) { return one.second <= customer.now; });
  }
  customer.in_line = false;
  if (customer.slots == 0) --with_work_;
  Join(customer);
  return cost;
}

void FairQueue::Forget(EndpointFunction* function) {
  for (auto& [id, customer] : customers_) {
    size_ -= std::erase_if(customer->endpoints,
                           [function](const auto& one) { return one.second.first == function; });
    absl::erase_if(customer->tags,
                   [function](const auto& one) { return one.first.first == function; });
    if (!customer->in_line || !customer->endpoints.empty()) continue;
    line_.erase(customer->place);
    customer->in_line = false;
    if (customer->slots == 0) --with_work_;
  }
}

void FairQueue::TakeSlot(subscriptions::CustomerId id) {
  Customer& customer = Of(id);
  if (customer.slots == 0 && !customer.in_line) ++with_work_;
  customer.slots += 1;
  slots_used_ += 1;
}

void FairQueue::GiveSlot(subscriptions::CustomerId id) {
  const auto customer = customers_.find(id);
  POSTRIDER_CHECK(customer != customers_.end() && customer->second->slots > 0);
  customer->second->slots -= 1;
  slots_used_ -= 1;
  if (customer->second->slots == 0 && !customer->second->in_line) --with_work_;
}

void FairQueue::ForgetIdle() {
  absl::erase_if(customers_, [this](const auto& one) {
    return !one.second->in_line && one.second->slots == 0 && one.second->tag <= now_;
  });
}

}  // namespace postrider::delivery
