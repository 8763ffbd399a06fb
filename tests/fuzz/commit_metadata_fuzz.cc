#include <zlib.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/stream/hole_map.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

constexpr int64_t kOffsetMax = std::numeric_limits<int64_t>::max();

OffsetSet Between(const OffsetSet& set, int64_t begin, int64_t end) {
  OffsetSet part;
  for (const OffsetSet::Range& range : set.ranges()) {
    part.Append(std::max(range.begin, begin), std::min(range.end, end));
  }
  return part;
}

// What decodes is what we would have written.
void DecodeText(absl::string_view text, int64_t watermark) {
  const absl::optional<CommitMetadata> decoded = DecodeCommitMetadata(text, watermark);
  if (!decoded) return;
  const EncodedMetadata again = EncodeCommitMetadata(*decoded, watermark);
  POSTRIDER_CHECK(again.text == text);
  POSTRIDER_CHECK(again.forgotten == 0);
  POSTRIDER_CHECK(decoded->completed.empty() ||
                  decoded->completed.ranges().front().begin >= watermark);
}

// The same behind the checksum, which random bytes hardly ever pass.
void DecodeBody(absl::string_view body, int64_t watermark) {
  ByteWriter out;
  out.Raw(body);
  out.U32(static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()))));
  DecodeText(absl::Base64Escape(out.bytes()), watermark);
}

void EncodeAndDecode(Input in, int64_t watermark) {
  CommitMetadata metadata;
  metadata.writer = in.Id();
  metadata.epoch = in.Number();
  metadata.incarnation_ms = in.Signed();
  int64_t end = in.Flag() ? 0 : watermark;
  while (!in.empty() && end < kOffsetMax) {
    // Short ranges close together mostly, as completion makes them.
    const bool wide = in.Byte() == 0;
    const int64_t begin =
        end + in.Between(0, wide ? kOffsetMax - end : std::min<int64_t>(40, kOffsetMax - end));
    end = begin + in.Between(0, std::min<int64_t>(wide ? 100'000 : 20, kOffsetMax - begin));
    metadata.completed.Append(begin, end);
  }
  const EncodedMetadata encoded = EncodeCommitMetadata(metadata, watermark);
  POSTRIDER_CHECK(encoded.text.size() <= kCommitMetadataTextMax);
  const absl::optional<CommitMetadata> decoded = DecodeCommitMetadata(encoded.text, watermark);
  POSTRIDER_CHECK(decoded.has_value());
  POSTRIDER_CHECK(decoded->writer == metadata.writer);
  POSTRIDER_CHECK(decoded->epoch == metadata.epoch);
  POSTRIDER_CHECK(decoded->incarnation_ms == metadata.incarnation_ms);
  // Everything, or everything below some offset.
  const OffsetSet all = Between(metadata.completed, watermark, kOffsetMax);
  const OffsetSet& kept = decoded->completed;
  POSTRIDER_CHECK(encoded.forgotten == all.size() - kept.size());
  POSTRIDER_CHECK(kept == Between(all, watermark, kept.empty() ? 0 : kept.ranges().back().end));
}

// OffsetSet against a set of numbers.
void CompareWithSet(Input in) {
  OffsetSet ranges;
  std::set<int64_t> numbers;
  int64_t end = 0;
  while (!in.empty() && end < 1'000) {
    if (in.Byte() % 8 == 7) {
      const int64_t below = in.Between(0, 1'000);
      ranges.DropBelow(below);
      numbers.erase(numbers.begin(), numbers.lower_bound(below));
      continue;
    }
    const int64_t begin = end + in.Between(0, 5);
    end = begin + in.Between(0, 5);
    ranges.Append(begin, end);
    for (int64_t offset = begin; offset < end; ++offset) numbers.insert(offset);
  }
  POSTRIDER_CHECK(ranges.size() == static_cast<int64_t>(numbers.size()));
  for (int64_t offset = -1; offset <= end; ++offset) {
    POSTRIDER_CHECK(ranges.Contains(offset) == numbers.contains(offset));
  }
  int64_t last = -1;
  for (const OffsetSet::Range& range : ranges.ranges()) {
    POSTRIDER_CHECK(range.begin > last && range.begin < range.end);
    last = range.end;
  }
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Input in(data, size);
  const int64_t watermark = in.Between(0, INT64_MAX - 1);
  DecodeText(View(data, size), 0);
  DecodeText(in.rest(), watermark);
  DecodeBody(in.rest(), watermark);
  EncodeAndDecode(in, watermark);
  CompareWithSet(in);
  return 0;
}
