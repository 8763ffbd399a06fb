#include "core/embedded_log/internal/log_directory.h"

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
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"

namespace postrider::embedded_log_internal {
namespace {

constexpr char kLockName[] = "lock";
constexpr char kDatabaseName[] = "db";
constexpr char kFormatName[] = "FORMAT";
constexpr char kNewFormatName[] = "FORMAT.new";
constexpr char kFormatWord[] = "postrider-log ";
constexpr size_t kFormatBytesMax = 64;
constexpr char kExportedName[] = "exported";
constexpr size_t kExportedBytesMax = 1'024;

absl::Status Unavailable(const std::string& path, int fault) {
  std::string text =
      absl::StrCat("embedded log: directory ", path, ": ", std::generic_category().message(fault));
  if (fault == EACCES || fault == EPERM || fault == EROFS) {
    text += "; let the user that Postrider runs as write there, or name another directory";
  }
  if (fault == ENOSPC || fault == EDQUOT) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

// An open file, closed with it.
class File {
 public:
  File(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// -1: it was never locked.
absl::StatusOr<int> ShareLock(const std::string& path) {
  File file(absl::StrCat(path, "/", kLockName), O_RDONLY);
  if (file.get() < 0 && errno == ENOENT) return -1;
  if (file.get() < 0) return Unavailable(path, errno);
  if (flock(file.get(), LOCK_SH | LOCK_NB) == 0) return file.Release();
  if (errno != EWOULDBLOCK) return Unavailable(path, errno);
  return absl::FailedPreconditionError(absl::StrCat(
      "embedded log: ", path, " is in use by another process; stop the service first"));
}

absl::StatusOr<int> TakeLock(const std::string& path) {
  File file(absl::StrCat(path, "/", kLockName), O_RDWR | O_CREAT);
  if (file.get() < 0) return Unavailable(path, errno);
  if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file.Release();
  if (errno != EWOULDBLOCK) return Unavailable(path, errno);
  return absl::FailedPreconditionError(absl::StrCat(
      "embedded log: ", path,
      " is in use by another process; it serves one process only. Stop the other one, or name "
      "another directory; where several processes or workers are wanted, use Apache Kafka"));
}

// FORMAT is there, never replaced and not what a service locks; it need not be writable.
absl::StatusOr<int> LockCopy(const std::string& path) {
  File file(absl::StrCat(path, "/", kFormatName), O_RDONLY);
  if (file.get() < 0) return Unavailable(path, errno);
  if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file.Release();
  if (errno != EWOULDBLOCK) return Unavailable(path, errno);
  return absl::FailedPreconditionError(
      absl::StrCat("embedded log: ", path, " is being copied by another process already"));
}

// kNotFound: there is no such file.
absl::StatusOr<std::string> ReadSmall(const std::string& path, const char* name, size_t bytes_max) {
  const File file(absl::StrCat(path, "/", name), O_RDONLY);
  if (file.get() < 0) {
    return errno == ENOENT ? absl::NotFoundError("") : Unavailable(path, errno);
  }
  std::string text(bytes_max, '\0');
  const ssize_t got = read(file.get(), text.data(), text.size());
  if (got < 0) return Unavailable(path, errno);
  text.resize(static_cast<size_t>(got));
  return text;
}

absl::StatusOr<std::string> ReadFormat(const std::string& path) {
  return ReadSmall(path, kFormatName, kFormatBytesMax);
}

// What was made, renamed or removed in it is so after a power loss too.
absl::Status SyncEntries(const std::string& path) {
  const File directory(path, O_RDONLY | O_DIRECTORY);
  if (directory.get() < 0 || fsync(directory.get()) != 0) return Unavailable(path, errno);
  return absl::OkStatus();
}

// Whole or not at all.
absl::Status WriteSmall(const std::string& path, const char* name, const std::string& text) {
  const std::string fresh = absl::StrCat(path, "/", name, ".new");
  const File file(fresh, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.get() < 0) return Unavailable(path, errno);
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Unavailable(path, errno != 0 ? errno : ENOSPC);
  }
  if (fsync(file.get()) != 0) return Unavailable(path, errno);
  if (rename(fresh.c_str(), absl::StrCat(path, "/", name).c_str()) != 0) {
    return Unavailable(path, errno);
  }
  return SyncEntries(path);
}

absl::Status CheckVersion(const std::string& path, absl::string_view text) {
  int version = 0;
  if (!absl::ConsumePrefix(&text, kFormatWord) || !absl::ConsumeSuffix(&text, "\n") ||
      !absl::SimpleAtoi(text, &version) || version < 1) {
    return absl::FailedPreconditionError(absl::StrCat("embedded log: ", path, "/", kFormatName,
                                                      " is damaged: it should read \"", kFormatWord,
                                                      LogDirectory::kVersion, "\""));
  }
  if (version > LogDirectory::kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("embedded log: ", path, " was written by a newer Postrider (format ", version,
                     ", this one knows ", LogDirectory::kVersion, "); start the newer one"));
  }
  return absl::OkStatus();
}

absl::Status CheckNotExported(const std::string& path) {
  const absl::StatusOr<std::string> where = ReadSmall(path, kExportedName, kExportedBytesMax);
  if (absl::IsNotFound(where.status())) return absl::OkStatus();
  RETURN_IF_ERROR(where.status());
  return absl::FailedPreconditionError(absl::StrCat(
      "embedded log: ", path, " was exported to Apache Kafka (", *where,
      "): start the service with log.kind: kafka. To go on here all the same, of which Kafka does "
      "not learn, remove ",
      path, "/", kExportedName));
}

absl::Status CheckThere(const std::string& path) {
  const absl::StatusOr<std::string> format = ReadFormat(path);
  if (absl::IsNotFound(format.status())) {
    return absl::NotFoundError(absl::StrCat("embedded log: there is none in ", path));
  }
  RETURN_IF_ERROR(format.status());
  return CheckVersion(path, *format);
}

absl::Status CheckFormat(const std::string& path) {
  absl::StatusOr<std::string> format = ReadFormat(path);
  if (absl::IsNotFound(format.status())) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      const std::string name = entry.path().filename().string();
      if (name == kLockName || name == kNewFormatName) continue;
      if (name == kDatabaseName && std::filesystem::is_empty(entry.path(), error)) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("embedded log: ", path, " holds ", name, ", which is not ours, and no file ",
                       kFormatName, "; name a directory of its own"));
    }
    if (error) return Unavailable(path, error.value());
    // RocksDB syncs what it makes in it, not that it is there.
    std::filesystem::create_directory(absl::StrCat(path, "/", kDatabaseName), error);
    if (error) return Unavailable(path, error.value());
    return WriteSmall(path, kFormatName, absl::StrCat(kFormatWord, LogDirectory::kVersion, "\n"));
  }
  RETURN_IF_ERROR(format.status());
  return CheckVersion(path, *format);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LogDirectory>> LogDirectory::Acquire(const std::string& path) {
  std::error_code error;
  const bool made = std::filesystem::create_directory(path, error);
  if (error) return Unavailable(path, error.value());
  if (made) RETURN_IF_ERROR(SyncEntries(absl::StrCat(path, "/..")));
  ASSIGN_OR_RETURN(const int lock_fd, TakeLock(path));
  std::unique_ptr<LogDirectory> directory(new LogDirectory(path, lock_fd));
  RETURN_IF_ERROR(CheckFormat(path));
  RETURN_IF_ERROR(CheckNotExported(path));
  return directory;
}

absl::Status LogDirectory::MarkExported(const std::string& path, const std::string& where) {
  return WriteSmall(path, kExportedName, where);
}

absl::StatusOr<std::unique_ptr<LogDirectory>> LogDirectory::Look(const std::string& path) {
  RETURN_IF_ERROR(CheckThere(path));
  ASSIGN_OR_RETURN(const int lock_fd, ShareLock(path));
  return std::unique_ptr<LogDirectory>(new LogDirectory(path, lock_fd));
}

absl::StatusOr<std::unique_ptr<LogDirectory>> LogDirectory::LookBeside(const std::string& path) {
  RETURN_IF_ERROR(CheckThere(path));
  return std::unique_ptr<LogDirectory>(new LogDirectory(path, -1));
}

absl::StatusOr<std::unique_ptr<LogDirectory>> LogDirectory::HoldCopy(const std::string& path) {
  RETURN_IF_ERROR(CheckThere(path));
  ASSIGN_OR_RETURN(const int lock_fd, LockCopy(path));
  return std::unique_ptr<LogDirectory>(new LogDirectory(path, lock_fd));
}

std::string LogDirectory::database() const { return absl::StrCat(path_, "/", kDatabaseName); }

LogDirectory::~LogDirectory() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

}  // namespace postrider::embedded_log_internal
