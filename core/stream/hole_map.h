#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/id.h"

namespace postrider {

// A set of offsets as sorted, disjoint, non-adjacent ranges [begin, end).
class OffsetSet {
 public:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };

  // `begin` >= the end of the last range; an empty range is ignored, an adjacent one is joined.
  void Append(int64_t begin, int64_t end);
  bool Contains(int64_t offset) const;
  // Forgets everything below `offset`.
  void DropBelow(int64_t offset);
  int64_t size() const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }
  friend bool operator==(const OffsetSet&, const OffsetSet&) = default;

 private:
  std::vector<Range> ranges_;
};

// What stands in the metadata of a committed offset: who wrote it, in which epoch, which
// incarnation the partition has, and the completed set above the offset.
struct CommitMetadata {
  IdBytes writer{};
  uint64_t epoch = 0;
  int64_t incarnation_ms = 0;
  OffsetSet completed;
  friend bool operator==(const CommitMetadata&, const CommitMetadata&) = default;
};

struct EncodedMetadata {
  std::string text;
  // Completed offsets that did not fit: after a crash now they would be repeated.
  int64_t forgotten = 0;
};

inline constexpr size_t kCommitMetadataTextMax = 3'500;

// Base64 of: a version byte, the fields, the set as run lengths or as a bitmap, whichever is
// shorter, relative to `watermark`, and a checksum. Never longer than kCommitMetadataTextMax: what
// does not fit is left out from the highest offsets down.
EncodedMetadata EncodeCommitMetadata(const CommitMetadata& metadata, int64_t watermark);

// No value for anything that EncodeCommitMetadata would not have written, or of another version:
// the map is then to be ignored, since the watermark alone is the truth.
absl::optional<CommitMetadata> DecodeCommitMetadata(absl::string_view text, int64_t watermark);

}  // namespace postrider
