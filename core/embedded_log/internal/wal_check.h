#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace postrider::embedded_log_internal {

struct WalDamage {
  std::string text;  // names the file and the place
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
