#include "core/state/heap_store.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/stream/byte_map.h"

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
    const Entries::Entry* const found = entries_.Find(key);
    if (found == nullptr) return false;
    value = found->value;
    return true;
  }

  absl::StatusOr<ScanEnd> Scan(StateRange& range, absl::string_view from, const ScanLimits& limits,
                               Visitor visit) const override {
    const bool from_head = from <= range.head();
    size_t keys = 0;
    size_t bytes = 0;
    for (Entries::Cursor at = entries_.LowerBound(from_head ? range.head() : from, range.end());
         at.entry() != nullptr; at.Next()) {
      const absl::string_view key = at.entry()->key();
      const std::string& value = at.entry()->value;
      if (keys == 0 && from_head) range.MoveHead(key);
      const size_t entry_bytes = key.size() + value.size();
      if (keys >= limits.keys_max || (keys > 0 && bytes + entry_bytes > limits.bytes_max)) {
        return ScanEnd::kLimit;
      }
      ++keys;
      bytes += entry_bytes;
      if (!visit(key, value)) return ScanEnd::kLimit;
    }
    return ScanEnd::kRangeEnd;
  }

  absl::Status Clear() override {
    entries_.Clear();
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
  using Entries = ByteMap<std::string>;
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
    const Entries::Entry* const found = entries_.Find(key);
    undo.push_back(Before{std::string(key),
                          found == nullptr ? absl::nullopt : absl::make_optional(found->value)});
  }
  void PutOne(absl::string_view key, absl::string_view value) {
    const size_t entries_before = entries_.size();
    Entries::Entry& entry = entries_.FindOrInsert(key);
    if (entries_.size() > entries_before) bytes_ += Cost(key, {});
    bytes_ = bytes_ - entry.value.size() + value.size();
    entry.value.assign(value.data(), value.size());
  }
  void DeleteOne(absl::string_view key) {
    Entries::Entry* const found = entries_.Find(key);
    if (found == nullptr) return;
    bytes_ -= Cost(key, found->value);
    entries_.Erase(*found);
  }
  void DeletePrefix(absl::string_view prefix, std::vector<Before>* undo) {
    POSTRIDER_CHECK(!prefix.empty());
    std::vector<Entries::Entry*> found;
    const std::string prefix_end = PrefixEnd(prefix);
    for (Entries::Cursor at = entries_.LowerBound(prefix, prefix_end); at.entry() != nullptr;
         at.Next()) {
      found.push_back(at.entry());
    }
    for (Entries::Entry* const entry : found) {
      bytes_ -= Cost(entry->key(), entry->value);
      if (undo != nullptr) {
        undo->push_back(Before{std::string(entry->key()), std::move(entry->value)});
      }
      entries_.Erase(*entry);
    }
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
