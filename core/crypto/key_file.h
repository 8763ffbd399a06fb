#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/crypto/key_ring.h"

namespace postrider {

// Changes of `secrets.key_file` (key_ring.h): the file is replaced whole, with its other lines and
// its owner as they were, readable by its owner only. Errors as KeyRing::Load(), and kUnavailable
// when it cannot be written, such as one that is mounted by itself: then a person edits it.
//
// A new key at the end of the file, which opens and does not seal yet; its id.
absl::StatusOr<std::string> AddMasterKey(const std::string& path);
// Its line becomes the first one: it seals from now on. NotFound: there is no such key.
absl::Status UseMasterKey(const std::string& path, absl::string_view key_id);

// Keeps a ring as its file is, while the process runs. A file that cannot be read, or is none, is
// told of once and changes nothing.
//
// Threads: one calls Look(); the ring's users need not know.
class KeyFileWatch {
 public:
  // `ring` was loaded from the file, and outlives this.
  KeyFileWatch(std::string path, KeyRing& ring) : path_(std::move(path)), ring_(ring) {}

  // Cheap when nothing has changed: to be called every second or so. True: the ring has other keys
  // now.
  bool Look();

 private:
  struct Stamp {
    int64_t modified_ns = 0;
    uint64_t inode = 0;
    int64_t bytes = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };

  const std::string path_;
  KeyRing& ring_;
  Stamp seen_;
  std::string told_;  // the fault that was told last
};

}  // namespace postrider
