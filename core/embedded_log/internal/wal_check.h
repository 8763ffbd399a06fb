#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider::embedded_log_internal {

struct WalDamage {
  std::string text;  // names the file and the place
};

inline constexpr size_t kWalBlockBytes = 32'768;

// What there is to say of one write-ahead log.
struct WalScan {
  bool begins = false;            // an entry begins in it
  std::vector<uint64_t> damaged;  // places that cannot be read, before one where an entry begins
  absl::optional<uint64_t> torn;  // such a place with none behind it
};

// Reads it block by block. Threads: owned by one.
class WalScanner {
 public:
  // The next kWalBlockBytes, of the last block what there is.
  void TakeBlock(absl::string_view block);
  WalScan Finish() &&;

 private:
  void Bad(uint64_t at);
  void Begins();

  WalScan scan_;
  bool open_ = false;  // an entry has begun and not ended
  uint64_t base_ = 0;
};

// Looks through the write-ahead logs of a RocksDB that is not open for places that are damaged,
// which RocksDB passes over in silence. The torn end of what was being written at a crash is none:
// the writer begins an entry only when the one before is on the disk, so a damaged place is damage
// if another entry, or another file, begins behind it. Files that cannot be read are left to
// RocksDB.
//
// The format: https://github.com/facebook/rocksdb/wiki/Write-Ahead-Log-File-Format
std::vector<WalDamage> CheckWals(const std::string& directory);

}  // namespace postrider::embedded_log_internal
