#include "core/state/internal/durable_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"

namespace postrider {
namespace {

constexpr size_t kPieceBytes = 256 << 10;

absl::Status SystemFault(absl::string_view what, absl::string_view path) {
  const int fault = errno;
  const std::string text = absl::StrCat("savepoint: ", what, " ", path, ": ", std::strerror(fault));
  if (fault == ENOENT) return absl::NotFoundError(text);
  return absl::InternalError(text);
}

absl::Status WriteAll(int fd, absl::string_view bytes, absl::string_view path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      return SystemFault("cannot write", path);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPieces(int fd, absl::string_view path,
                        absl::FunctionRef<absl::Status(absl::string_view)> visit) {
  std::vector<char> piece(kPieceBytes);
  while (true) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got == 0) return absl::OkStatus();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemFault("cannot read", path);
    RETURN_IF_ERROR(visit(absl::string_view(piece.data(), static_cast<size_t>(got))));
  }
}

// So that a rename or a new directory outlives a crash of the machine.
absl::Status FlushDirectory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemFault("cannot open", path);
  const bool flushed = ::fsync(fd) == 0;
  const absl::Status status = flushed ? absl::OkStatus() : SystemFault("cannot flush", path);
  ::close(fd);
  return status;
}

}  // namespace

DurableFile::DurableFile(std::string directory, std::string name, int fd)
    : directory_(std::move(directory)), name_(std::move(name)), fd_(fd) {}

std::string DurableFile::TemporaryPath() const {
  return absl::StrCat(directory_, "/", name_, ".unfinished");
}

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::Create(const std::string& directory,
                                                                 const std::string& name) {
  std::unique_ptr<DurableFile> file(new DurableFile(directory, name, -1));
  const std::string path = file->TemporaryPath();
  file->fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file->fd_ < 0) return SystemFault("cannot create", path);
  return file;
}

DurableFile::~DurableFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(TemporaryPath().c_str());
}

absl::Status DurableFile::Append(absl::string_view bytes) {
  return WriteAll(fd_, bytes, TemporaryPath());
}

absl::Status DurableFile::Commit() {
  const std::string temporary = TemporaryPath();
  if (::fsync(fd_) != 0) return SystemFault("cannot flush", temporary);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) {
    const absl::Status status = SystemFault("cannot close", temporary);
    ::unlink(temporary.c_str());
    return status;
  }
  const std::string path = absl::StrCat(directory_, "/", name_);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const absl::Status status = SystemFault("cannot rename into place", path);
    ::unlink(temporary.c_str());
    return status;
  }
  return FlushDirectory(directory_);
}

absl::StatusOr<std::unique_ptr<SpoolFile>> SpoolFile::Create(const std::string& directory) {
  std::string path = absl::StrCat(directory, "/spool-XXXXXX");
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return SystemFault("cannot create a temporary file in", directory);
  ::unlink(path.c_str());
  return std::unique_ptr<SpoolFile>(new SpoolFile(fd));
}

SpoolFile::~SpoolFile() { ::close(fd_); }

absl::Status SpoolFile::Write() {
  RETURN_IF_ERROR(WriteAll(fd_, buffer_, "a temporary file"));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status SpoolFile::Append(absl::string_view bytes) {
  buffer_.append(bytes.data(), bytes.size());
  return buffer_.size() < kPieceBytes ? absl::OkStatus() : Write();
}

absl::Status SpoolFile::ReadAll(absl::FunctionRef<absl::Status(absl::string_view)> visit) {
  RETURN_IF_ERROR(Write());
  if (::lseek(fd_, 0, SEEK_SET) != 0) return SystemFault("cannot read", "a temporary file");
  return ReadPieces(fd_, "a temporary file", visit);
}

absl::Status ReadFile(const std::string& path,
                      absl::FunctionRef<absl::Status(absl::string_view)> visit) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemFault("cannot open", path);
  const absl::Status status = ReadPieces(fd, path, visit);
  ::close(fd);
  return status;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t bytes_max) {
  std::string bytes;
  RETURN_IF_ERROR(ReadFile(path, [&](absl::string_view piece) {
    if (piece.size() > bytes_max - std::min(bytes_max, bytes.size())) {
      return absl::DataLossError(absl::StrCat("savepoint: ", path, " is too long"));
    }
    bytes.append(piece.data(), piece.size());
    return absl::OkStatus();
  }));
  return bytes;
}

absl::Status MakeEmptyDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return SystemFault("cannot make", path);
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return SystemFault("cannot look into", path);
  bool empty = true;
  while (const dirent* entry = ::readdir(directory)) {
    const absl::string_view name(entry->d_name);
    if (name != "." && name != "..") empty = false;
  }
  ::closedir(directory);
  if (empty) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("savepoint: ", path, " is not empty: name a new directory"));
}

}  // namespace postrider
