#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace postrider::embedded_log_internal {

// The directory of one embedded log: of a known version, and held by one process at a time. The
// lock is the system's: it ends with the process in whatever way that dies.
class LogDirectory {
 public:
  // What this binary writes, and the newest that it reads.
  static constexpr int kVersion = 1;

  // Makes it if it is missing (its parent exists). kFailedPrecondition: another running process
  // holds it, a newer version of us has written it, or it holds files that are not ours; nothing
  // was touched. kUnavailable: it cannot be made or written; kResourceExhausted: the disk is full.
  static absl::StatusOr<std::unique_ptr<LogDirectory>> Acquire(const std::string& path);
  // The same of one that is there, without changing anything in it; others may look at it too, and
  // none may acquire it meanwhile. kNotFound: there is no log.
  static absl::StatusOr<std::unique_ptr<LogDirectory>> Look(const std::string& path);
  // Look() without the lock: of one that a service may hold at the same time.
  static absl::StatusOr<std::unique_ptr<LogDirectory>> LookBeside(const std::string& path);
  // Look() for one that copies it: no second one may at the same time, in whatever process, though
  // a service may run. kFailedPrecondition: another does.
  static absl::StatusOr<std::unique_ptr<LogDirectory>> HoldCopy(const std::string& path);
  // From now on nobody acquires it, until the file `exported` in it is removed. `where` is said to
  // whoever tries.
  static absl::Status MarkExported(const std::string& path, const std::string& where);
  ~LogDirectory();
  LogDirectory(const LogDirectory&) = delete;
  LogDirectory& operator=(const LogDirectory&) = delete;

  // Where the database goes.
  std::string database() const;
  // A copy of the database's entries.
  std::string entries() const { return path_ + "/entries"; }
  // How far it was acknowledged.
  std::string acknowledged() const { return path_ + "/acknowledged"; }

 private:
  LogDirectory(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  const std::string path_;
  const int lock_fd_;
};

}  // namespace postrider::embedded_log_internal
