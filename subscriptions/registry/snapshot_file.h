#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::subscriptions {

// A snapshot as bytes: versioned, with a SHA-256 at the end; secrets as sealed as they were.
std::string EncodeSnapshot(const Snapshot& snapshot);
// Also those of the version before this one, with defaults for what it did not have. kDataLoss:
// cut, changed, or of another version. Reads untrusted bytes safely.
absl::StatusOr<std::shared_ptr<const Snapshot>> DecodeSnapshot(absl::string_view bytes);

// Writes a new file beside `path` (mode 0600), flushes it and renames it into place: a crash leaves
// the old one or the new one. Blocks on the disk. kUnavailable: another process is writing it at
// this moment (`path`.lock, which stays, is held while writing).
absl::Status WriteSnapshotFile(const std::string& path, const Snapshot& snapshot);
// kNotFound: there is none. kDataLoss: damaged.
absl::StatusOr<std::shared_ptr<const Snapshot>> ReadSnapshotFile(const std::string& path);

}  // namespace postrider::subscriptions
