#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace postrider::internal {

// A directory that one store of one running process owns: held by a lock on a file in it, which
// the system lets go when the process ends in whatever way.
class StateDirectory {
 public:
  // kFailedPrecondition: somebody holds it, or it is neither empty nor one of ours; nothing was
  // touched. kUnavailable: it cannot be made or read.
  // The directory above it is made again when somebody has removed it under the running process,
  // unless it must be there.
  enum class Parent { kMadeAgain, kMustExist };
  static absl::StatusOr<std::unique_ptr<StateDirectory>> Acquire(
      const std::string& path, Parent parent = Parent::kMadeAgain);
  // The same for a directory whose files are left alone, whoever made them. By a lock of its own,
  // so that it never passes for one that may be wiped.
  static absl::StatusOr<std::unique_ptr<StateDirectory>> Lock(const std::string& path);
  ~StateDirectory();
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  // Removes everything in it but the lock.
  absl::Status Wipe() const;
  // Where the database goes.
  std::string database() const { return path_ + "/db"; }

 private:
  StateDirectory(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  const std::string path_;
  const int lock_fd_;
};

}  // namespace postrider::internal
