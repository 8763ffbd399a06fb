#include "core/stream/inherited_operations.h"

#include <algorithm>
#include <utility>

namespace postrider {

void InheritedOperations::Add(std::vector<Operation> operations, const Clock& clock) {
  const MonotonicTime now = clock.Now();
  const int64_t wall = MillisSinceEpoch(clock.Wall());
  constexpr int64_t kMillisMax =
      std::chrono::duration_cast<std::chrono::milliseconds>(kDeadlineMax).count();
  for (Operation& operation : operations) {
    const int64_t deadline = MillisSinceEpoch(operation.deadline);
    // Both may be any number: their difference is not.
    int64_t left = 0;
    if (__builtin_sub_overflow(deadline, wall, &left)) left = deadline < wall ? 0 : kMillisMax;
    left = std::clamp<int64_t>(left, 0, kMillisMax);
    for (const int64_t offset : operation.offsets) carrying_[offset] = operation.id;
    Awaited& awaited = operations_[operation.id];
    awaited.deadline = now + std::chrono::milliseconds(left);
    awaited.operation = std::move(operation);
  }
}

const Operation* InheritedOperations::Carrying(int64_t offset) const {
  if (carrying_.empty()) return nullptr;
  const auto found = carrying_.find(offset);
  return found == carrying_.end() ? nullptr : Find(found->second);
}

const Operation* InheritedOperations::Find(const IdBytes& id) const {
  const auto found = operations_.find(id);
  return found == operations_.end() ? nullptr : &found->second.operation;
}

MonotonicTime InheritedOperations::DeadlineOf(const IdBytes& id) const {
  const auto found = operations_.find(id);
  return found == operations_.end() ? MonotonicTime() : found->second.deadline;
}

bool InheritedOperations::Remove(const IdBytes& id) {
  const auto found = operations_.extract(id);
  if (found.empty()) return false;
  for (const int64_t offset : found.mapped().operation.offsets) {
    const auto carrying = carrying_.find(offset);
    if (carrying != carrying_.end() && carrying->second == id) carrying_.erase(carrying);
  }
  return true;
}

std::vector<Operation> InheritedOperations::TakeLapsed(MonotonicTime now) {
  std::vector<Operation> lapsed;
  for (const auto& [id, awaited] : operations_) {
    if (LapseOf(awaited) <= now) lapsed.push_back(awaited.operation);
  }
  for (const Operation& operation : lapsed) Remove(operation.id);
  // Not in a hash map's order.
  std::sort(lapsed.begin(), lapsed.end(),
            [](const Operation& a, const Operation& b) { return a.id < b.id; });
  return lapsed;
}

absl::optional<MonotonicTime> InheritedOperations::NextLapse() const {
  absl::optional<MonotonicTime> next;
  for (const auto& [id, awaited] : operations_) {
    const MonotonicTime lapse = LapseOf(awaited);
    if (!next || lapse < *next) next = lapse;
  }
  return next;
}

std::vector<Operation> InheritedOperations::All() const {
  std::vector<Operation> all;
  all.reserve(operations_.size());
  for (const auto& [id, awaited] : operations_) all.push_back(awaited.operation);
  return all;
}

}  // namespace postrider
