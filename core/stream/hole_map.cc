#include "core/stream/hole_map.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/stream/checksum.h"

namespace postrider {
namespace {

constexpr uint8_t kVersion = 1;
enum Form : uint8_t { kRuns = 0, kBitmap = 1 };

// Four characters of base64 stand for three bytes.
constexpr size_t kBinaryMax = kCommitMetadataTextMax / 4 * 3;
constexpr int64_t kOffsetMax = std::numeric_limits<int64_t>::max();

// Offsets are not negative, so differences of them fit.
uint64_t Distance(int64_t from, int64_t to) { return static_cast<uint64_t>(to - from); }

void WriteRun(const OffsetSet::Range& range, int64_t previous_end, ByteWriter& out) {
  out.Varint(Distance(previous_end, range.begin));
  out.Varint(Distance(range.begin, range.end));
}

// The first whole ranges of `set` whose runs take at most `bytes_max`.
OffsetSet PrefixOfRuns(const OffsetSet& set, int64_t watermark, size_t bytes_max) {
  OffsetSet prefix;
  ByteWriter runs;
  int64_t previous_end = watermark;
  for (const OffsetSet::Range& range : set.ranges()) {
    WriteRun(range, previous_end, runs);
    if (runs.bytes().size() > bytes_max) break;
    prefix.Append(range.begin, range.end);
    previous_end = range.end;
  }
  return prefix;
}

// What of `set` a bitmap of at most `bytes_max` can name.
OffsetSet PrefixOfBits(const OffsetSet& set, int64_t watermark, size_t bytes_max) {
  OffsetSet prefix;
  const uint64_t bits = bytes_max * 8;
  for (const OffsetSet::Range& range : set.ranges()) {
    if (Distance(watermark, range.begin) >= bits) break;
    const int64_t end =
        Distance(watermark, range.end) > bits ? watermark + static_cast<int64_t>(bits) : range.end;
    prefix.Append(range.begin, end);
  }
  return prefix;
}

std::string EncodeRuns(const OffsetSet& set, int64_t watermark) {
  ByteWriter runs;
  int64_t previous_end = watermark;
  for (const OffsetSet::Range& range : set.ranges()) {
    WriteRun(range, previous_end, runs);
    previous_end = range.end;
  }
  return runs.Take();
}

// `set` is not empty and reaches no further than a bitmap may.
std::string EncodeBitmap(const OffsetSet& set, int64_t watermark) {
  const uint64_t bits = Distance(watermark, set.ranges().back().end);
  std::string bitmap(static_cast<size_t>((bits + 7) / 8), '\0');
  for (const OffsetSet::Range& range : set.ranges()) {
    for (int64_t offset = range.begin; offset < range.end; ++offset) {
      const uint64_t bit = Distance(watermark, offset);
      char& byte = bitmap[static_cast<size_t>(bit / 8)];
      byte = static_cast<char>(static_cast<uint8_t>(byte) | (1u << (bit % 8)));
    }
  }
  return bitmap;
}

bool DecodeRuns(absl::string_view bytes, int64_t watermark, OffsetSet& set) {
  ByteReader reader(bytes);
  int64_t previous_end = watermark;
  while (!reader.rest().empty()) {
    const uint64_t gap = reader.Varint();
    const uint64_t length = reader.Varint();
    if (!reader.ok() || length == 0 || gap > Distance(previous_end, kOffsetMax)) return false;
    const int64_t begin = previous_end + static_cast<int64_t>(gap);
    if (length > Distance(begin, kOffsetMax)) return false;
    const int64_t end = begin + static_cast<int64_t>(length);
    set.Append(begin, end);
    previous_end = end;
  }
  return true;
}

bool DecodeBitmap(absl::string_view bytes, int64_t watermark, OffsetSet& set) {
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    if (((static_cast<uint8_t>(bytes[bit / 8]) >> (bit % 8)) & 1) == 0) continue;
    if (bit >= Distance(watermark, kOffsetMax)) return false;
    const int64_t offset = watermark + static_cast<int64_t>(bit);
    set.Append(offset, offset + 1);
  }
  return true;
}

}  // namespace

void OffsetSet::Append(int64_t begin, int64_t end) {
  if (begin >= end) return;
  POSTRIDER_CHECK(ranges_.empty() || begin >= ranges_.back().end);
  if (!ranges_.empty() && ranges_.back().end == begin) {
    ranges_.back().end = end;
  } else {
    ranges_.push_back({begin, end});
  }
}

bool OffsetSet::Contains(int64_t offset) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), offset,
                       [](int64_t at, const Range& range) { return at < range.end; });
  return after != ranges_.end() && after->begin <= offset;
}

void OffsetSet::DropBelow(int64_t offset) {
  const auto kept = std::upper_bound(ranges_.begin(), ranges_.end(), offset,
                                     [](int64_t at, const Range& range) { return at < range.end; });
  ranges_.erase(ranges_.begin(), kept);
  if (!ranges_.empty()) ranges_.front().begin = std::max(ranges_.front().begin, offset);
}

int64_t OffsetSet::size() const {
  int64_t count = 0;
  for (const Range& range : ranges_) count += range.end - range.begin;
  return count;
}

EncodedMetadata EncodeCommitMetadata(const CommitMetadata& metadata, int64_t watermark) {
  POSTRIDER_CHECK(watermark >= 0);
  ByteWriter out;
  out.U8(kVersion);
  out.Raw(absl::string_view(reinterpret_cast<const char*>(metadata.writer.data()),
                            metadata.writer.size()));
  out.Varint(metadata.epoch);
  out.Zigzag(metadata.incarnation_ms);
  const size_t set_bytes_max = kBinaryMax - kChecksumBytes - out.bytes().size() - 1;

  OffsetSet above = metadata.completed;
  above.DropBelow(watermark);
  const int64_t all = above.size();
  OffsetSet runs = PrefixOfRuns(above, watermark, set_bytes_max);
  if (runs.size() < all) {
    OffsetSet bits = PrefixOfBits(above, watermark, set_bytes_max);
    above = bits.size() > runs.size() ? std::move(bits) : std::move(runs);
  }

  std::string body = EncodeRuns(above, watermark);
  Form form = kRuns;
  if (!above.empty() && Distance(watermark, above.ranges().back().end) <= set_bytes_max * 8) {
    std::string bitmap = EncodeBitmap(above, watermark);
    if (bitmap.size() < body.size()) {
      body = std::move(bitmap);
      form = kBitmap;
    }
  }
  out.U8(form);
  out.Raw(body);
  out.U32(Checksum(out.bytes()));

  EncodedMetadata encoded;
  encoded.text = absl::Base64Escape(out.bytes());
  encoded.forgotten = all - above.size();
  POSTRIDER_CHECK(encoded.text.size() <= kCommitMetadataTextMax);
  return encoded;
}

absl::optional<CommitMetadata> DecodeCommitMetadata(absl::string_view text, int64_t watermark) {
  std::string bytes;
  if (watermark < 0 || text.size() > kCommitMetadataTextMax ||
      !absl::Base64Unescape(text, &bytes) || bytes.size() < kChecksumBytes) {
    return absl::nullopt;
  }
  const absl::string_view all(bytes);
  const absl::string_view covered = all.substr(0, all.size() - kChecksumBytes);
  if (ByteReader(all.substr(covered.size())).U32() != Checksum(covered)) return absl::nullopt;

  ByteReader reader(covered);
  CommitMetadata metadata;
  if (reader.U8() != kVersion) return absl::nullopt;
  const absl::string_view writer = reader.Raw(metadata.writer.size());
  metadata.epoch = reader.Varint();
  metadata.incarnation_ms = reader.Zigzag();
  const uint8_t form = reader.U8();
  if (!reader.ok()) return absl::nullopt;
  std::copy(writer.begin(), writer.end(), metadata.writer.begin());
  const bool readable = form == kRuns ? DecodeRuns(reader.rest(), watermark, metadata.completed)
                        : form == kBitmap
                            ? DecodeBitmap(reader.rest(), watermark, metadata.completed)
                            : false;
  // One set has one text: what we would have written otherwise was not written by us.
  if (!readable || EncodeCommitMetadata(metadata, watermark).text != text) return absl::nullopt;
  return metadata;
}

}  // namespace postrider
