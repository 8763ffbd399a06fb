#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/id.h"

namespace postrider {

// The last 16,384 exact 128-bit identities of one task with the lowest offset at which each was
// met, so that what a producer wrote twice (a crash between its write and its commit) is dropped. A
// record that comes again at its own offset is not a repeat: it is re-read.
//
// Identities are digests, so their bits serve as their hash. Each message asks once, of memory that
// no cache holds: so the places are small, and the one who is forgotten is found by its number.
//
// Threads: owned by one task. Bounds: kBytesMax, half a megabyte.
class RecentIdentities {
 public:
  static constexpr size_t kIdentitiesMax = 16'384;
  // Once it is full: 24 bytes for each identity, and two places of four.
  static constexpr size_t kBytesMax = kIdentitiesMax * (24 + 2 * 4);

  // Whether `identity` was met at a lower offset. Otherwise it is remembered with `offset` from now
  // on and the oldest is forgotten. Records that are skipped since they are complete already pass
  // through here too.
  bool SeenBefore(const IdBytes& identity, int64_t offset) {
    const Entry entry = EntryOf(identity, offset);
    if (Entry* const found = Find(entry); found != nullptr) {
      if (found->offset < offset) return true;
      found->offset = offset;
      return false;
    }
    if (entries_.size() < kIdentitiesMax) {
      if (2 * (entries_.size() + 1) > places_.size()) Grow();
      entries_.push_back(entry);
      Put(entries_.size() - 1);
    } else {
      Erase(oldest_);
      entries_[oldest_] = entry;
      Put(oldest_);
      oldest_ = (oldest_ + 1) % kIdentitiesMax;
    }
    return false;
  }
  size_t size() const { return entries_.size(); }
  size_t memory_bytes() const {
    return entries_.capacity() * sizeof(Entry) + places_.capacity() * sizeof(Place);
  }

 private:
  struct Entry {
    uint64_t high = 0;
    uint64_t low = 0;
    int64_t offset = 0;
  };
  // Of a table with linear probing, at most half of which is used.
  struct Place {
    uint16_t number = 0;  // of an entry, from 1; 0: free
    uint16_t hash = 0;    // of its identity
  };
  static constexpr size_t kPlacesMin = 64;
  static_assert(sizeof(Entry) == 24 && sizeof(Place) == 4);
  static_assert(kIdentitiesMax < UINT16_MAX && 2 * kIdentitiesMax <= UINT16_MAX + 1);

  static Entry EntryOf(const IdBytes& bytes, int64_t offset) {
    Entry entry;
    std::memcpy(&entry.high, bytes.data(), 8);
    std::memcpy(&entry.low, bytes.data() + 8, 8);
    entry.offset = offset;
    return entry;
  }
  static uint16_t HashOf(const Entry& entry) {
    return static_cast<uint16_t>(entry.high ^ entry.low);
  }

  size_t Next(size_t place) const { return (place + 1) & (places_.size() - 1); }
  size_t Home(uint16_t hash) const { return hash & (places_.size() - 1); }

  Entry* Find(const Entry& wanted) {
    if (places_.empty()) return nullptr;
    const uint16_t hash = HashOf(wanted);
    for (size_t at = Home(hash); places_[at].number != 0; at = Next(at)) {
      if (places_[at].hash != hash) continue;
      Entry& entry = entries_[places_[at].number - 1U];
      if (entry.high == wanted.high && entry.low == wanted.low) return &entry;
    }
    return nullptr;
  }

  void Put(size_t index) {
    const uint16_t hash = HashOf(entries_[index]);
    size_t at = Home(hash);
    while (places_[at].number != 0) at = Next(at);
    places_[at] = {static_cast<uint16_t>(index + 1), hash};
  }

  // Those behind it move up, so that none is cut off from its home.
  void Erase(size_t index) {
    size_t hole = Home(HashOf(entries_[index]));
    while (places_[hole].number != index + 1) hole = Next(hole);
    for (size_t at = Next(hole); places_[at].number != 0; at = Next(at)) {
      const size_t mask = places_.size() - 1;
      const size_t from_home = (at - Home(places_[at].hash)) & mask;
      if (from_home < ((at - hole) & mask)) continue;
      places_[hole] = places_[at];
      hole = at;
    }
    places_[hole] = Place();
  }

  void Grow() {
    places_.assign(std::max(kPlacesMin, 2 * places_.size()), Place());
    for (size_t i = 0; i < entries_.size(); ++i) Put(i);
  }

  std::vector<Entry> entries_;
  std::vector<Place> places_;  // a power of two
  size_t oldest_ = 0;          // once all entries are in use
};

}  // namespace postrider
