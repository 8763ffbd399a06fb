#include "core/state/internal/state_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace postrider::internal {
namespace {

constexpr char kLockName[] = "postrider.lock";
constexpr char kKeptLockName[] = "process.lock";

absl::Status Unavailable(const std::string& path, const std::error_code& error) {
  const std::string text = absl::StrCat("state: directory ", path, ": ", error.message());
  const bool full = error == std::errc::no_space_on_device ||
                    error == std::error_condition(EDQUOT, std::generic_category());
  return full ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

absl::Status Make(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directory(path, error);
  return error ? Unavailable(path, error) : absl::OkStatus();
}

// With the file by which the next process may wipe it. What fails shows when `path` is made.
void MakeParentAgain(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (parent.empty() || !std::filesystem::create_directory(parent, error)) return;
  const int fd = open((parent / kLockName).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
}

absl::Status CheckOurs(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path + "/" + kLockName, error)) return absl::OkStatus();
  const bool empty = std::filesystem::is_empty(path, error);
  if (error) return Unavailable(path, error);
  if (empty) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("state: directory ", path, " holds files that are not ours; it is not wiped"));
}

// The file's descriptor, which holds the lock until it is closed.
absl::StatusOr<int> LockFile(const std::string& path, const char* name) {
  const std::string lock = absl::StrCat(path, "/", name);
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Unavailable(path, std::error_code(errno, std::generic_category()));
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int fault = errno;
  close(fd);
  if (fault != EWOULDBLOCK) {
    return Unavailable(path, std::error_code(fault, std::generic_category()));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("state: directory ", path, " is owned by another running process or store"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::Acquire(const std::string& path,
                                                                        Parent parent) {
  if (parent == Parent::kMadeAgain) MakeParentAgain(path);
  RETURN_IF_ERROR(Make(path));
  RETURN_IF_ERROR(CheckOurs(path));
  ASSIGN_OR_RETURN(const int fd, LockFile(path, kLockName));
  return std::unique_ptr<StateDirectory>(new StateDirectory(path, fd));
}

absl::StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::Lock(const std::string& path) {
  RETURN_IF_ERROR(Make(path));
  ASSIGN_OR_RETURN(const int fd, LockFile(path, kKeptLockName));
  return std::unique_ptr<StateDirectory>(new StateDirectory(path, fd));
}

StateDirectory::~StateDirectory() { close(lock_fd_); }

absl::Status StateDirectory::Wipe() const {
  std::error_code error;
  std::filesystem::directory_iterator entries(path_, error);
  if (error) return Unavailable(path_, error);
  for (; entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    if (error) return Unavailable(path_, error);
    if (entries->path().filename() == kLockName) continue;
    std::filesystem::remove_all(entries->path(), error);
    if (error) return Unavailable(path_, error);
  }
  return absl::OkStatus();
}

}  // namespace postrider::internal
