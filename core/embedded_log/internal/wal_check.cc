#include "core/embedded_log/internal/wal_check.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace postrider::embedded_log_internal {
namespace {

constexpr size_t kHeaderBytes = 7;
// Types of what an entry is cut into, so that none crosses a block.
constexpr uint8_t kFull = 1;
constexpr uint8_t kFirst = 2;
constexpr uint8_t kLast = 4;

using Table = std::array<std::array<uint32_t, 256>, 8>;

// CRC-32C (RFC 3720), eight bytes at a time.
constexpr Table MakeTable() {
  Table table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
    table[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (size_t t = 1; t < 8; ++t) {
      table[t][i] = (table[t - 1][i] >> 8) ^ table[0][table[t - 1][i] & 0xff];
    }
  }
  return table;
}
constexpr Table kTable = MakeTable();

uint32_t Crc32c(const unsigned char* data, size_t size) {
  uint32_t crc = 0xffffffffU;
  for (; size >= 8; size -= 8, data += 8) {
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, data, 4);
    std::memcpy(&high, data + 4, 4);
    low ^= crc;
    crc = kTable[7][low & 0xff] ^ kTable[6][(low >> 8) & 0xff] ^ kTable[5][(low >> 16) & 0xff] ^
          kTable[4][low >> 24] ^ kTable[3][high & 0xff] ^ kTable[2][(high >> 8) & 0xff] ^
          kTable[1][(high >> 16) & 0xff] ^ kTable[0][high >> 24];
  }
  for (; size > 0; --size, ++data) crc = (crc >> 8) ^ kTable[0][(crc ^ *data) & 0xff];
  return crc ^ 0xffffffffU;
}

uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

struct File {
  uint64_t number = 0;
  std::string path;
  std::string name;
};

WalScan ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> block(kWalBlockBytes);
  WalScanner scanner;
  while (in) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto got = static_cast<size_t>(in.gcount());
    if (got == 0) break;
    scanner.TakeBlock(absl::string_view(block.data(), got));
  }
  return std::move(scanner).Finish();
}

}  // namespace

void WalScanner::TakeBlock(absl::string_view block) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(block.data());
  size_t at = 0;
  while (block.size() - at >= kHeaderBytes) {
    const unsigned char* header = bytes + at;
    const uint32_t stored =
        static_cast<uint32_t>(header[0]) | static_cast<uint32_t>(header[1]) << 8 |
        static_cast<uint32_t>(header[2]) << 16 | static_cast<uint32_t>(header[3]) << 24;
    const size_t length = static_cast<size_t>(header[4]) | static_cast<size_t>(header[5]) << 8;
    const uint8_t type = header[6];
    if (type < kFull || type > kLast || at + kHeaderBytes + length > block.size() ||
        Masked(Crc32c(header + 6, length + 1)) != stored) {
      Bad(base_ + at);
      break;
    }
    if (type == kFull || type == kFirst) {
      if (open_) Bad(base_ + at);  // the end of the one before is missing
      Begins();
      open_ = type == kFirst;
    } else if (type == kLast) {
      open_ = false;
    }
    at += kHeaderBytes + length;
  }
  base_ += block.size();
}

void WalScanner::Bad(uint64_t at) {
  if (!scan_.torn.has_value()) scan_.torn = at;
}

void WalScanner::Begins() {
  if (scan_.torn.has_value()) scan_.damaged.push_back(*scan_.torn);
  scan_.torn.reset();
  scan_.begins = true;
}

WalScan WalScanner::Finish() && {
  if (open_) Bad(base_);
  return std::move(scan_);
}

std::vector<WalDamage> CheckWals(const std::string& directory) {
  std::vector<File> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    File file;
    file.path = entry.path().string();
    file.name = entry.path().filename().string();
    if (entry.path().extension() == ".log" &&
        absl::SimpleAtoi(entry.path().stem().string(), &file.number)) {
      files.push_back(std::move(file));
    }
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.number < b.number; });
  std::vector<WalDamage> found;
  const auto tell = [&found](const File& file, uint64_t at) {
    found.push_back({absl::StrCat("write-ahead log ", file.name, " at byte ", at,
                                  ": an entry cannot be read, its records are lost")});
  };
  const File* torn = nullptr;
  uint64_t torn_at = 0;
  for (const File& file : files) {
    const WalScan scan = ReadFile(file.path);
    if (scan.begins && torn != nullptr) {
      tell(*torn, torn_at);
      torn = nullptr;
    }
    for (const uint64_t at : scan.damaged) tell(file, at);
    if (scan.torn.has_value()) {
      torn = &file;
      torn_at = *scan.torn;
    }
  }
  return found;
}

}  // namespace postrider::embedded_log_internal
