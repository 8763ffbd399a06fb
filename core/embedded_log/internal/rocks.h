#pragma once

#include <rocksdb/cache.h>
#include <rocksdb/comparator.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>
#include <rocksdb/status.h>
#include <rocksdb/write_batch.h>
#include <rocksdb/write_buffer_manager.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/embedded_log/internal/write_set.h"

namespace postrider::embedded_log_internal {

// How the log lies in RocksDB: its column families, and the options that all who open it share.

enum Family : uint32_t { kEntries = 0, kRuns = 1 };
inline constexpr char kRunsName[] = "runs";

inline rocksdb::Slice ToSlice(absl::string_view text) {
  return rocksdb::Slice(text.data(), text.size());
}
inline absl::string_view ToView(const rocksdb::Slice& slice) {
  return absl::string_view(slice.data(), slice.size());
}

// kResourceExhausted: the disk is full; kDataLoss: it is damaged; else kUnavailable.
absl::Status ToStatus(absl::string_view what, const rocksdb::Status& status);

struct RocksSettings {
  size_t memory_bytes = 0;
  int background_threads = 0;
  rocksdb::Env* env = nullptr;  // null: the system's
  std::shared_ptr<rocksdb::Cache> cache;
  std::shared_ptr<rocksdb::WriteBufferManager> memtables;
};
rocksdb::Options MakeOptions(const RocksSettings& settings);

// The families' handles are of the database, which a WriteSet does not know: the changes are kept
// by the numbers that families have in it.
struct WriteSet::Impl {
  struct Handle final : public rocksdb::ColumnFamilyHandle {
    explicit Handle(uint32_t number) : id(number), name(number == kRuns ? kRunsName : "default") {}
    const std::string& GetName() const override { return name; }
    uint32_t GetID() const override { return id; }
    rocksdb::Status GetDescriptor(rocksdb::ColumnFamilyDescriptor*) override {
      return rocksdb::Status::NotSupported();
    }
    const rocksdb::Comparator* GetComparator() const override {
      return rocksdb::BytewiseComparator();
    }
    const uint32_t id;
    const std::string name;
  };
  rocksdb::WriteBatch batch;
  Handle runs{kRuns};
};

}  // namespace postrider::embedded_log_internal
