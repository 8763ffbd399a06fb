#include "core/embedded_log/internal/positions.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/embedded_log/internal/partition.h"

namespace postrider::embedded_log_internal {

absl::Status CheckPosition(const CommittedPosition& position) {
  if (position.offset < 0) return absl::InvalidArgumentError("embedded log: a negative position");
  if (position.metadata.size() > kCommitMetadataBytesMax) {
    return absl::InvalidArgumentError("embedded log: the metadata is too large");
  }
  return absl::OkStatus();
}

absl::AnyInvocable<absl::Status(WriteSet&)> WritePositions(const std::string& group,
                                                           std::vector<CommitEntry> entries) {
  return [group, entries = std::move(entries)](WriteSet& set) {
    for (const CommitEntry& entry : entries) {
      ByteWriter out(entry.position.metadata.size() + 10);
      out.Zigzag(entry.position.offset);
      out.Raw(entry.position.metadata);
      set.PutEntry(PositionKey(group, entry.tp), out.bytes());
    }
    return absl::OkStatus();
  };
}

bool DecodePosition(absl::string_view bytes, CommittedPosition* position) {
  ByteReader in(bytes);
  position->offset = in.Zigzag();
  position->metadata = std::string(in.rest());
  return in.ok() && CheckPosition(*position).ok();
}

}  // namespace postrider::embedded_log_internal
