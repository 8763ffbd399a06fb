#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "core/embedded_log/internal/run.h"
#include "core/embedded_log/internal/run_key.h"

namespace postrider::embedded_log_internal {

// Changes that are made together or not at all. Threads: owned by one.
class WriteSet {
 public:
  WriteSet();
  ~WriteSet();
  WriteSet(const WriteSet&) = delete;
  WriteSet& operator=(const WriteSet&) = delete;

  void PutRun(PartitionId id, const Run& run);
  void DeleteRun(PartitionId id, int64_t base);
  // The runs whose base is in [from, to).
  void DeleteRuns(PartitionId id, int64_t from, int64_t to);
  void DeletePartition(PartitionId id);
  void PutEntry(absl::string_view key, absl::string_view value);
  void DeleteEntry(absl::string_view key);
  void Clear();
  bool empty() const;
  size_t bytes() const;

  struct Impl;  // rocks.h
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider::embedded_log_internal
