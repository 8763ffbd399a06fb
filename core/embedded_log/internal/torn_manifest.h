#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace postrider::embedded_log_internal {

// The end of a database's list of tables that a crash has torn while it was written. RocksDB takes
// an entry that is cut short for none, but one that is there whole with other bytes for damage.
// Nothing was done yet on the strength of it, unless it is damage after all: whoever opens the
// database without it looks whether all is there.
class TornManifest {
 public:
  // Cuts it off. Null: the list ends well, or is damaged before its end. The database is not open.
  static std::unique_ptr<TornManifest> Cut(const std::string& database);
  // Puts it back.
  void Restore();

 private:
  TornManifest(std::string path, uint64_t at, std::string bytes)
      : path_(std::move(path)), at_(at), bytes_(std::move(bytes)) {}

  const std::string path_;
  const uint64_t at_;
  const std::string bytes_;
};

}  // namespace postrider::embedded_log_internal
