#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "core/stream/state_key.h"

namespace postrider {

// Encoded state keys to values of T, found by their hash, and put in order only where somebody
// reads them in order: most keys (where the entries of a list stand) are never read so, and an
// ordered tree of long keys that begin alike costs a cache miss for each key that it compares.
//
// Keys that name one state and key (StateKeyGroupBytes()) are a group. Its entries in order are a
// tree of pointers; those that were not put at its end stand beside until the group is read.
//
// Threads: owned by one task. Bounds: its owner's; about 110 bytes for each entry beside its key.
template <typename T>
class ByteMap {
 public:
  class Entry;

 private:
  static constexpr uint32_t kInOrder = ~uint32_t{0};

  struct ByRest {
    using is_transparent = void;
    static absl::string_view Of(const Entry* entry) { return entry->rest(); }
    static absl::string_view Of(absl::string_view rest) { return rest; }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Of(a) < Of(b);
    }
  };
  struct Group {
    explicit Group(absl::string_view first_bytes) : prefix(first_bytes) {}
    const std::string prefix;
    size_t size = 0;
    absl::btree_set<Entry*, ByRest> ordered;
    std::vector<Entry*> beside;
    // Behind what was erased last. Set anew whenever `ordered` changes.
    typename absl::btree_set<Entry*, ByRest>::iterator next = ordered.end();
  };
  struct ByPrefix {
    using is_transparent = void;
    static absl::string_view Of(const Group* group) { return group->prefix; }
    static absl::string_view Of(absl::string_view prefix) { return prefix; }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Of(a) < Of(b);
    }
  };
  struct Sought {
    size_t hash;
    absl::string_view key;
  };
  // The hash stands beside, so that the table grows without a look at the entries.
  struct Slot {
    size_t hash;
    Entry* entry;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const Slot& slot) const { return slot.hash; }
    size_t operator()(const Sought& sought) const { return sought.hash; }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const Slot& a, const Slot& b) const { return a.entry == b.entry; }
    bool operator()(const Slot& a, const Sought& b) const {
      return a.hash == b.hash && a.entry->key() == b.key;
    }
    bool operator()(const Sought& a, const Slot& b) const { return (*this)(b, a); }
  };

 public:
  // Stays where it is until it is erased.
  class Entry {
   public:
    absl::string_view key() const {
      return absl::string_view(reinterpret_cast<const char*>(this + 1), key_bytes_);
    }
    T value;

   private:
    friend class ByteMap;
    Entry(Group& group, size_t key_bytes)
        : value(), group_(group), key_bytes_(static_cast<uint32_t>(key_bytes)) {}
    absl::string_view rest() const { return key().substr(group_.prefix.size()); }

    Group& group_;
    const uint32_t key_bytes_;
    uint32_t place_ = kInOrder;  // else in Group::beside
  };

  ByteMap() = default;
  ~ByteMap() { Clear(); }
  ByteMap(const ByteMap&) = delete;
  ByteMap& operator=(const ByteMap&) = delete;

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

  // Null: there is none.
  Entry* Find(absl::string_view key) const {
    const auto found = entries_.find(Sought{HashOf(key), key});
    return found == entries_.end() ? nullptr : found->entry;
  }
  // The key's entry, with a T() if it is new.
  Entry& FindOrInsert(absl::string_view key) {
    const size_t hash = HashOf(key);
    const auto found = entries_.find(Sought{hash, key});
    if (found != entries_.end()) return *found->entry;
    Group& group = GroupOf(key.substr(0, StateKeyGroupBytes(key)));
    void* const memory = ::operator new(sizeof(Entry) + key.size());
    Entry* const entry = new (memory) Entry(group, key.size());
    std::memcpy(static_cast<char*>(memory) + sizeof(Entry), key.data(), key.size());
    entries_.insert(Slot{hash, entry});
    ++group.size;
    if (group.ordered.empty() || (*group.ordered.rbegin())->rest() < entry->rest()) {
      group.ordered.insert(group.ordered.end(), entry);
      group.next = group.ordered.end();
    } else {
      entry->place_ = static_cast<uint32_t>(group.beside.size());
      group.beside.push_back(entry);
    }
    return *entry;
  }
  void Erase(Entry& entry) {
    Group& group = entry.group_;
    if (entry.place_ == kInOrder) {
      // Queues lose their entries in order.
      auto place = group.next;
      if (place == group.ordered.end() || *place != &entry) place = group.ordered.begin();
      if (*place != &entry) place = group.ordered.find(&entry);
      group.next = group.ordered.erase(place);
    } else {
      group.beside.back()->place_ = entry.place_;
      group.beside[entry.place_] = group.beside.back();
      group.beside.pop_back();
    }
    entries_.erase(entries_.find(Sought{HashOf(entry.key()), entry.key()}));
    Delete(&entry);
    if (--group.size > 0) return;
    in_order_.erase(&group);
    groups_.erase(groups_.find(absl::string_view(group.prefix)));
  }
  void Clear() {
    for (const Slot& slot : entries_) Delete(slot.entry);
    entries_.clear();
    in_order_.clear();
    groups_.clear();
  }

  // A place in the order of the keys' bytes. Good until an entry is inserted or erased.
  class Cursor {
   public:
    // Null at the end.
    Entry* entry() const { return entry_; }
    void Next() {
      ++at_;
      Settle();
    }

   private:
    friend class ByteMap;
    using Groups = typename absl::btree_set<Group*, ByPrefix>::const_iterator;
    using Entries = typename absl::btree_set<Entry*, ByRest>::const_iterator;
    Cursor(Groups group, Groups groups_end, absl::string_view end)
        : group_(group), groups_end_(groups_end), end_(end) {}
    // Groups that begin behind the end are not put in order for nothing.
    bool Enter() {
      if (group_ == groups_end_ || (!end_.empty() && (*group_)->prefix >= end_)) return false;
      Order(**group_);
      at_ = (*group_)->ordered.begin();
      return true;
    }
    void Settle() {
      entry_ = nullptr;
      while (at_ == (*group_)->ordered.end()) {
        ++group_;
        if (!Enter()) return;
      }
      if (end_.empty() || (*at_)->key() < end_) entry_ = *at_;
    }
    Groups group_;
    Groups groups_end_;
    absl::string_view end_;
    Entries at_;
    Entry* entry_ = nullptr;
  };
  // The first entry that is not below `from`, on the way to `end` (empty: to the last one), which
  // outlives the cursor. Puts the groups that it passes in order.
  Cursor LowerBound(absl::string_view from, absl::string_view end = {}) const {
    // Only the last group that does not begin above `from` can hold both sides of it.
    auto group = in_order_.upper_bound(from);
    bool within = false;
    if (group != in_order_.begin()) {
      const absl::string_view before = (*std::prev(group))->prefix;
      within = from.substr(0, before.size()) == before;
      if (within) --group;
    }
    Cursor cursor(group, in_order_.end(), end);
    if (!cursor.Enter()) return cursor;
    if (within) cursor.at_ = (*group)->ordered.lower_bound(from.substr((*group)->prefix.size()));
    cursor.Settle();
    return cursor;
  }

 private:
  static size_t HashOf(absl::string_view key) { return absl::Hash<absl::string_view>()(key); }
  static void Delete(Entry* entry) {
    entry->~Entry();
    ::operator delete(entry);
  }
  static void Order(Group& group) {
    if (group.beside.empty()) return;
    std::sort(group.beside.begin(), group.beside.end(), ByRest());
    auto hint = group.ordered.end();
    for (Entry* const entry : group.beside) {
      entry->place_ = kInOrder;
      hint = std::next(group.ordered.insert(hint, entry));
    }
    std::vector<Entry*>().swap(group.beside);
    group.next = group.ordered.end();
  }
  Group& GroupOf(absl::string_view prefix) {
    const auto found = groups_.find(prefix);
    if (found != groups_.end()) return *found->second;
    auto group = std::make_unique<Group>(prefix);
    Group& made = *group;
    groups_.emplace(made.prefix, std::move(group));
    in_order_.insert(&made);
    return made;
  }

  absl::flat_hash_set<Slot, Hash, Equal> entries_;
  absl::flat_hash_map<absl::string_view, std::unique_ptr<Group>> groups_;
  absl::btree_set<Group*, ByPrefix> in_order_;
};

}  // namespace postrider
