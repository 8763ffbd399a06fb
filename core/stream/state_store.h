#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider {

// Writes that a store takes together or not at all, in this order. Reused: Clear() keeps its
// memory.
class StateBatch {
 public:
  enum class Kind : uint8_t { kPut, kDelete, kDeletePrefix };

  void Put(absl::string_view key, absl::string_view value) { Add(Kind::kPut, key, value); }
  // Of a key that is not there: nothing happens.
  void Delete(absl::string_view key) { Add(Kind::kDelete, key, {}); }
  // Every key that begins with `prefix`, which is not empty. Dearer than a Delete() for a store on
  // disk, and it slows later reads there: for whole queues, not for single entries.
  void DeletePrefix(absl::string_view prefix) { Add(Kind::kDeletePrefix, prefix, {}); }

  void Clear() {
    data_.clear();
    writes_.clear();
    put_bytes_ = 0;
  }
  bool empty() const { return writes_.empty(); }
  size_t size() const { return writes_.size(); }
  // Keys and values of all writes, and of the puts alone.
  size_t bytes() const { return data_.size(); }
  size_t put_bytes() const { return put_bytes_; }

  // visit(Kind, key, value), in the order of the calls.
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    absl::string_view rest = data_;
    for (const Write& write : writes_) {
      visit(write.kind, rest.substr(0, write.key_bytes),
            rest.substr(write.key_bytes, write.value_bytes));
      rest.remove_prefix(write.key_bytes + write.value_bytes);
    }
  }

 private:
  struct Write {
    Kind kind;
    size_t key_bytes;
    size_t value_bytes;
  };
  void Add(Kind kind, absl::string_view key, absl::string_view value) {
    data_.append(key.data(), key.size());
    data_.append(value.data(), value.size());
    writes_.push_back(Write{kind, key.size(), value.size()});
    if (kind == Kind::kPut) put_bytes_ += key.size() + value.size();
  }

  std::string data_;
  std::vector<Write> writes_;
  size_t put_bytes_ = 0;
};

// The lowest byte string above all that begin with `prefix`; empty when there is none (0xff only).
inline std::string PrefixEnd(absl::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (!end.empty()) end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

// A stretch of keys that is scanned again and again (a queue, the due times) and where its live
// part begins. On an LSM tree what was deleted at the head of a queue lies in the way of each scan
// that starts there: one over 300,000 fresh tombstones took up to 0.4 s. So a store scans by a
// range only, and never looks below its head.
//
// Its owner keeps it for as long as the keys live, and tells it of each key that is put: a key that
// was put below the head and not told is never found. A scan moves the head to the first key that
// it finds.
class StateRange {
 public:
  // The keys that begin with `prefix`, which has a byte below 0xff.
  explicit StateRange(absl::string_view prefix)
      : head_(prefix), end_(PrefixEnd(prefix)), prefix_bytes_(prefix.size()) {}

  absl::string_view head() const { return head_; }
  absl::string_view end() const { return end_; }
  // Of what all its keys begin with.
  size_t prefix_bytes() const { return prefix_bytes_; }
  // `key` of this range was put, or will be.
  void Include(absl::string_view key) {
    if (key < head_) head_ = std::string(key);
  }
  // Nothing below `key` is live any more.
  void MoveHead(absl::string_view key) {
    if (key > head_) head_ = std::string(key);
  }
  // `key` and all below it are gone.
  void MoveHeadPast(absl::string_view key) {
    if (key < head_) return;
    head_ = std::string(key);
    head_.push_back('\0');
  }

 private:
  std::string head_;
  std::string end_;
  size_t prefix_bytes_;
};

struct ScanLimits {
  size_t keys_max = 1'000;
  size_t bytes_max = 1 << 20;  // of keys and values; the first key is given whatever its size
};
enum class ScanEnd {
  kRangeEnd,  // there is nothing more in the range
  kLimit,     // a limit was reached or the visitor stopped: go on from after the last key
};
struct StoreFigures {
  uint64_t memory_bytes = 0;
  uint64_t disk_bytes = 0;
  uint64_t keys = 0;  // estimated, for a store on disk
  // Deleted keys that scans had to step over, since the store was made: near 0 when heads are kept.
  uint64_t tombstones_skipped = 0;
  // Much was deleted, and it is being compacted as a whole or will be as soon as it may: what it
  // has on disk says little of what lives. Never for what was only put.
  bool may_shrink = false;
};

// The local store of one task: ordered byte keys to byte values. It is a spill file of its process,
// empty when it is made; the changelog rebuilds it, nothing here outlives the process.
// core/state has two: heap and RocksDB; both pass tests/contract/state_store_contract.h.
//
// Errors:  kDataLoss (it cannot be read or written any more: the task is to be restored into a new
//          one) from any call; kResourceExhausted from Apply() only, which of a store that is
//          opened late also says why it cannot be.
// Threads: owned by one task.
class StateStore {
 public:
  virtual ~StateStore() = default;

  // All of it or nothing. kResourceExhausted: the store is at its bound (batches of deletes alone
  // are still taken), or its disk cannot follow; nothing was applied and it may be tried again.
  virtual absl::Status Apply(const StateBatch& batch) = 0;

  // Whether the key is there; its value replaces `value` then, which is untouched otherwise.
  virtual absl::StatusOr<bool> Get(absl::string_view key, std::string& value) const = 0;

  // Passes the live keys of `range` in ascending order, from its head or from `from`, whichever is
  // higher, until a limit is reached or the visitor returns false. The views are valid during
  // the visitor's call only, and it makes no call on this store.
  using Visitor = absl::FunctionRef<bool(absl::string_view key, absl::string_view value)>;
  virtual absl::StatusOr<ScanEnd> Scan(StateRange& range, absl::string_view from,
                                       const ScanLimits& limits, Visitor visit) const = 0;
  absl::StatusOr<ScanEnd> Scan(StateRange& range, const ScanLimits& limits, Visitor visit) const {
    return Scan(range, absl::string_view(), limits, visit);
  }

  // Everything is gone; the store can be used like a new one.
  virtual absl::Status Clear() = 0;
  virtual StoreFigures figures() const = 0;
};

}  // namespace postrider
