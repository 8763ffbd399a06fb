#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/embedded_log/internal/wal_check.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using embedded_log_internal::kWalBlockBytes;
using embedded_log_internal::WalScan;
using embedded_log_internal::WalScanner;

constexpr size_t kHeaderBytes = 7;

WalScan Scan(absl::string_view bytes) {
  WalScanner scanner;
  while (!bytes.empty()) {
    scanner.TakeBlock(bytes.substr(0, kWalBlockBytes));
    bytes.remove_prefix(std::min(bytes.size(), kWalBlockBytes));
  }
  return std::move(scanner).Finish();
}

void CheckPlaces(const WalScan& scan, size_t size) {
  POSTRIDER_CHECK(std::is_sorted(scan.damaged.begin(), scan.damaged.end()));
  for (const uint64_t at : scan.damaged) POSTRIDER_CHECK(at < size);
  if (scan.torn.has_value()) POSTRIDER_CHECK(*scan.torn <= size);
}

// CRC-32C bit by bit, masked as RocksDB stores it.
uint32_t Checksum(absl::string_view bytes) {
  uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
  }
  crc ^= 0xffffffffU;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

// A write-ahead log as RocksDB writes it: an entry is cut where a block ends, and no part of one
// begins in a block's last six bytes.
void Append(std::string& wal, absl::string_view entry) {
  bool first = true;
  do {
    const size_t left = kWalBlockBytes - wal.size() % kWalBlockBytes;
    if (left < kHeaderBytes) wal.append(left, '\0');
    const size_t room = kWalBlockBytes - wal.size() % kWalBlockBytes - kHeaderBytes;
    const absl::string_view part = entry.substr(0, room);
    entry.remove_prefix(part.size());
    const bool last = entry.empty();
    std::string typed(1, static_cast<char>(first ? (last ? 1 : 2) : (last ? 4 : 3)));
    typed.append(part.data(), part.size());
    const uint32_t crc = Checksum(typed);
    for (int shift = 0; shift < 32; shift += 8) wal.push_back(static_cast<char>(crc >> shift));
    wal.push_back(static_cast<char>(part.size()));
    wal.push_back(static_cast<char>(part.size() >> 8));
    wal += typed;
    first = false;
  } while (!entry.empty());
}

void WriteAndRead(Input in) {
  std::string wal;
  std::vector<size_t> begins;
  for (int left = 1 + in.Byte() % 6; left > 0; --left) {
    begins.push_back(wal.size());
    // Some cross blocks.
    std::string entry(in.Flag() ? in.UpTo(70'000) : 1 + in.UpTo(200), static_cast<char>(in.Byte()));
    Append(wal, entry);
  }
  const WalScan whole = Scan(wal);
  POSTRIDER_CHECK(whole.begins && whole.damaged.empty() && !whole.torn.has_value());
  // A crash may tear its end: that is none of what is told of as damage.
  const size_t cut = static_cast<size_t>(in.UpTo(wal.size() - 1));
  const WalScan torn = Scan(absl::string_view(wal).substr(0, cut));
  POSTRIDER_CHECK(torn.damaged.empty());
  // A changed byte is found, though not always told from a torn end.
  const size_t at = static_cast<size_t>(in.UpTo(wal.size() - 1));
  wal[at] = static_cast<char>(static_cast<uint8_t>(wal[at]) ^ (1U << in.UpTo(7)));
  const WalScan changed = Scan(wal);
  CheckPlaces(changed, wal.size());
  const size_t in_block = at % kWalBlockBytes;
  const size_t block_begins = at - in_block;
  // Behind the block another entry begins, and the byte is no filling of a block's end.
  const bool filling = in_block >= kWalBlockBytes - kHeaderBytes + 1;
  const bool begins_behind = std::any_of(begins.begin(), begins.end(), [&](size_t begin) {
    return begin >= block_begins + kWalBlockBytes;
  });
  if (filling) return;
  POSTRIDER_CHECK(!changed.damaged.empty() || changed.torn.has_value());
  if (begins_behind) POSTRIDER_CHECK(!changed.damaged.empty());
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  CheckPlaces(Scan(View(data, size)), size);
  WriteAndRead(Input(data, size));
  return 0;
}
