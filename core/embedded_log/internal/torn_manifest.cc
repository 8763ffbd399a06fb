#include "core/embedded_log/internal/torn_manifest.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/embedded_log/internal/wal_check.h"

namespace postrider::embedded_log_internal {
namespace {

std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace

// The list is written as a write-ahead log is, by the same code of RocksDB.
std::unique_ptr<TornManifest> TornManifest::Cut(const std::string& database) {
  std::string name = ReadWhole(database + "/CURRENT");
  if (name.empty() || name.back() != '\n' || name.find('/') != std::string::npos) return nullptr;
  name.pop_back();
  std::string path = database + "/" + name;
  const std::string bytes = ReadWhole(path);
  WalScanner scanner;
  for (size_t at = 0; at < bytes.size(); at += kWalBlockBytes) {
    scanner.TakeBlock(absl::string_view(bytes).substr(at, kWalBlockBytes));
  }
  const WalScan scan = std::move(scanner).Finish();
  if (!scan.torn.has_value() || !scan.damaged.empty() || *scan.torn >= bytes.size()) return nullptr;
  std::error_code error;
  std::filesystem::resize_file(path, *scan.torn, error);
  if (error) return nullptr;
  return std::unique_ptr<TornManifest>(
      new TornManifest(std::move(path), *scan.torn, bytes.substr(*scan.torn)));
}

void TornManifest::Restore() {
  std::ofstream out(path_, std::ios::binary | std::ios::in | std::ios::out);
  out.seekp(static_cast<std::streamoff>(at_));
  out << bytes_;
}

}  // namespace postrider::embedded_log_internal
