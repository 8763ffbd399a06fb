#include "core/stream/internal/timers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace postrider::internal {
namespace {

int64_t Number(MonotonicTime time) { return time.time_since_epoch().count(); }
MonotonicTime Time(int64_t number) { return MonotonicTime(Duration(number)); }

}  // namespace

Timers::Owned Timers::Make(absl::string_view key, uint32_t tag) {
  void* const memory = ::operator new(sizeof(Timer) + key.size());
  Owned timer(new (memory) Timer{0, static_cast<uint32_t>(HashName()(Name{key, tag})), tag,
                                 static_cast<uint32_t>(key.size())});
  if (!key.empty()) std::memcpy(static_cast<void*>(timer.get() + 1), key.data(), key.size());
  return timer;
}

void Timers::Up(size_t at, const Place& place) {
  Place* const heap = heap_.data();
  while (at > 0) {
    const size_t parent = (at - 1) / kChildren;
    if (!Before(place, heap[parent])) break;
    heap[at] = heap[parent];
    heap[at].timer->place = static_cast<uint32_t>(at);
    at = parent;
  }
  heap[at] = place;
  place.timer->place = static_cast<uint32_t>(at);
}

void Timers::Down(size_t at, const Place& place) {
  Place* const heap = heap_.data();
  const size_t size = heap_.size();
  while (true) {
    const size_t first = at * kChildren + 1;
    if (first >= size) break;
    const size_t end = first + kChildren < size ? first + kChildren : size;
    size_t least = first;
    for (size_t child = first + 1; child < end; ++child) {
      if (Before(heap[child], heap[least])) least = child;
    }
    if (!Before(heap[least], place)) break;
    heap[at] = heap[least];
    heap[at].timer->place = static_cast<uint32_t>(at);
    at = least;
  }
  heap[at] = place;
  place.timer->place = static_cast<uint32_t>(at);
}

void Timers::Settle(size_t at, const Place& place) {
  if (at > 0 && Before(place, heap_[(at - 1) / kChildren])) {
    Up(at, place);
  } else {
    Down(at, place);
  }
}

void Timers::Remove(size_t at) {
  const Place last = heap_.back();
  heap_.pop_back();
  if (at < heap_.size()) Settle(at, last);
  // What a burst took is given back.
  if (heap_.capacity() > 1'024 && heap_.size() < heap_.capacity() / 4) {
    std::vector<Place> smaller;
    smaller.reserve(heap_.capacity() / 2);
    smaller.assign(heap_.begin(), heap_.end());
    heap_.swap(smaller);
  }
}

void Timers::Set(absl::string_view key, uint32_t tag, MonotonicTime time) {
  const auto found = by_key_.find(Name{key, tag});
  if (found != by_key_.end()) {
    Timer* const timer = found->get();
    return Settle(timer->place, Place{Number(time), next_++, timer});
  }
  Timer* const timer = by_key_.insert(Make(key, tag)).first->get();
  key_bytes_ += key.size();
  POSTRIDER_CHECK(heap_.size() < UINT32_MAX);
  heap_.emplace_back();
  Up(heap_.size() - 1, Place{Number(time), next_++, timer});
}

void Timers::Cancel(absl::string_view key, uint32_t tag) {
  const auto found = by_key_.find(Name{key, tag});
  if (found == by_key_.end()) return;
  key_bytes_ -= (*found)->key_bytes;
  Remove((*found)->place);
  by_key_.erase(found);
}

absl::optional<MonotonicTime> Timers::TimeOf(absl::string_view key, uint32_t tag) const {
  const auto found = by_key_.find(Name{key, tag});
  if (found == by_key_.end()) return absl::nullopt;
  return Time(heap_[(*found)->place].time);
}

absl::optional<MonotonicTime> Timers::Earliest() const {
  if (heap_.empty()) return absl::nullopt;
  return Time(heap_.front().time);
}

absl::optional<Timers::Due> Timers::PopDue(MonotonicTime now, uint64_t mark) {
  if (heap_.empty() || heap_[0].time > Number(now)) return absl::nullopt;
  if (heap_[0].order < mark) return Pop(0);
  // One of those that have only such above them as were set too late.
  constexpr size_t kNone = ~size_t{0};
  size_t first = kNone;
  std::vector<size_t> open = {0};
  while (!open.empty()) {
    const size_t at = open.back();
    open.pop_back();
    const Place& place = heap_[at];
    if (place.time > Number(now) || (first != kNone && !Before(place, heap_[first]))) continue;
    if (place.order < mark) {
      first = at;
      continue;
    }
    const size_t end = std::min(at * kChildren + 1 + kChildren, heap_.size());
    for (size_t child = at * kChildren + 1; child < end; ++child) open.push_back(child);
  }
  if (first == kNone) return absl::nullopt;
  return Pop(first);
}

Timers::Due Timers::Pop(size_t at) {
  const Timer& timer = *heap_[at].timer;
  Due due{std::string(timer.key()), timer.tag, Time(heap_[at].time)};
  key_bytes_ -= timer.key_bytes;
  const auto found = by_key_.find(Name{timer.key(), timer.tag});
  POSTRIDER_CHECK(found != by_key_.end());
  Remove(at);
  by_key_.erase(found);
  return due;
}

void Timers::Clear() {
  heap_.clear();
  by_key_.clear();
  key_bytes_ = 0;
}

}  // namespace postrider::internal
