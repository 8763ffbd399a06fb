#include "core/state/heap_store.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/check.h"

namespace postrider {
namespace {

constexpr size_t kEntryBytes = 64;

class HeapStore final : public StateStore {
 public:
  explicit HeapStore(const HeapStoreOptions& options) : options_(options) {}

  absl::Status Apply(const StateBatch& batch) override {
    const size_t at_most =
        bytes_ + batch.put_bytes() + (batch.put_bytes() > 0 ? batch.size() * kEntryBytes : 0);
    if (batch.put_bytes() == 0 || at_most <= options_.bytes_max) {
      Write(batch, nullptr);
      return absl::OkStatus();
    }
    // It may fit all the same, by what it overwrites and deletes: try, and take it back.
    std::vector<Before> undo;
    Write(batch, &undo);
    if (bytes_ <= options_.bytes_max) return absl::OkStatus();
    while (!undo.empty()) {
      Before& before = undo.back();
      if (before.value) {
        PutOne(before.key, *before.value);
      } else {
        DeleteOne(before.key);
      }
      undo.pop_back();
    }
    return absl::ResourceExhaustedError(
        absl::StrCat("state: the heap store is at its bound of ", options_.bytes_max, " bytes"));
  }

  absl::StatusOr<bool> Get(absl::string_view key, std::string& value) const override {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return false;
    value = found->second;
    return true;
  }

  absl::StatusOr<ScanEnd> Scan(StateRange& range, absl::string_view from, const ScanLimits& limits,
                               Visitor visit) const override {
    const bool from_head = from <= range.head();
    size_t keys = 0;
    size_t bytes = 0;
    for (auto entry = entries_.lower_bound(from_head ? range.head() : from);
         entry != entries_.end() && absl::string_view(entry->first) < range.end(); ++entry) {
      if (keys == 0 && from_head) range.MoveHead(entry->first);
      const size_t entry_bytes = entry->first.size() + entry->second.size();
      if (keys >= limits.keys_max || (keys > 0 && bytes + entry_bytes > limits.bytes_max)) {
        return ScanEnd::kLimit;
      }
      ++keys;
      bytes += entry_bytes;
      if (!visit(entry->first, entry->second)) return ScanEnd::kLimit;
    }
    return ScanEnd::kRangeEnd;
  }

  absl::Status Clear() override {
    entries_.clear();
    bytes_ = 0;
    return absl::OkStatus();
  }

  StoreFigures figures() const override {
    StoreFigures figures;
    figures.memory_bytes = bytes_;
    figures.keys = entries_.size();
    return figures;
  }

 private:
  using Entries = absl::btree_map<std::string, std::string>;
  struct Before {
    std::string key;
    absl::optional<std::string> value;
  };

  void Write(const StateBatch& batch, std::vector<Before>* undo) {
    batch.ForEach([&](StateBatch::Kind kind, absl::string_view key, absl::string_view value) {
      switch (kind) {
        case StateBatch::Kind::kPut:
          if (undo != nullptr) Remember(key, *undo);
          PutOne(key, value);
          break;
        case StateBatch::Kind::kDelete:
          if (undo != nullptr) Remember(key, *undo);
          DeleteOne(key);
          break;
        case StateBatch::Kind::kDeletePrefix:
          DeletePrefix(key, undo);
          break;
      }
    });
  }
  void Remember(absl::string_view key, std::vector<Before>& undo) const {
    const auto found = entries_.find(key);
    undo.push_back(Before{std::string(key), found == entries_.end()
                                                ? absl::nullopt
                                                : absl::make_optional(found->second)});
  }
  void PutOne(absl::string_view key, absl::string_view value) {
    const auto found = entries_.lower_bound(key);
    if (found != entries_.end() && found->first == key) {
      bytes_ = bytes_ - found->second.size() + value.size();
      found->second.assign(value.data(), value.size());
      return;
    }
    entries_.emplace_hint(found, std::string(key), std::string(value));
    bytes_ += Cost(key, value);
  }
  void DeleteOne(absl::string_view key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    bytes_ -= Cost(found->first, found->second);
    entries_.erase(found);
  }
  void DeletePrefix(absl::string_view prefix, std::vector<Before>* undo) {
    POSTRIDER_CHECK(!prefix.empty());
    const auto begin = entries_.lower_bound(prefix);
    auto end = begin;
    for (;
         end != entries_.end() && absl::string_view(end->first).substr(0, prefix.size()) == prefix;
         ++end) {
      bytes_ -= Cost(end->first, end->second);
      if (undo != nullptr) undo->push_back(Before{end->first, std::move(end->second)});
    }
    entries_.erase(begin, end);
  }
  static size_t Cost(absl::string_view key, absl::string_view value) {
    return key.size() + value.size() + kEntryBytes;
  }

  const HeapStoreOptions options_;
  Entries entries_;
  size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<StateStore> MakeHeapStore(const HeapStoreOptions& options) {
  return std::make_unique<HeapStore>(options);
}

}  // namespace postrider
