#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/state/savepoint_file.h"

namespace postrider {

// What a savepoint is of and what belongs to it. Its file is written last: a directory without it
// is no savepoint.
struct SavepointManifest {
  std::string id;
  WallTime created;
  IdBytes log_identity{};  // see control_record.h
  std::string pool;
  std::string group;
  std::string topic;                    // the dispatch topic
  std::vector<std::string> changelogs;  // topics, in the order of JobOptions::changelogs

  struct KeyGroup {
    // The committed position: every record below `offset`, and those that the metadata names, are
    // complete. Without a commit the log's start, and no metadata.
    bool committed = false;
    int64_t offset = 0;
    std::string metadata;
    std::vector<SavepointFileFigures> files;  // one for each changelog
    friend bool operator==(const KeyGroup&, const KeyGroup&) = default;
  };
  std::vector<KeyGroup> key_groups;
  friend bool operator==(const SavepointManifest&, const SavepointManifest&) = default;

  uint64_t bytes() const;
  uint64_t entries() const;
};

inline constexpr absl::string_view kSavepointManifestName = "manifest";
// "0-00012": of changelog 0, key group 12.
std::string SavepointFileName(size_t changelog, size_t key_group);

// A magic text, a version byte, the fields, a SHA-256 over all of it. Errors of decoding:
// kUnimplemented (a newer version wrote it), kDataLoss (it was never written).
std::string EncodeSavepointManifest(const SavepointManifest& manifest);
absl::StatusOr<SavepointManifest> DecodeSavepointManifest(absl::string_view encoded);

}  // namespace postrider
