#include "core/crypto/key_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/crypto/internal/key_file_text.h"
#include "core/crypto/random.h"

namespace postrider {
namespace {

using internal::KeyIdOfLine;
using internal::ReadKeyFile;
using internal::WipeText;

constexpr size_t kFileBytesMax = 16 * 1024;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status CannotWrite(const std::string& path, absl::string_view what) {
  return absl::UnavailableError(
      absl::StrCat("secrets.key_file ", path, ": ", what, ": ", std::strerror(errno)));
}

absl::Status WriteAll(int fd, absl::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return CannotWrite(path, "cannot be written");
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status Fill(int fd, absl::string_view text, const struct stat& old, const std::string& path) {
  RETURN_IF_ERROR(WriteAll(fd, text, path));
  // The owner stays the owner, whoever changes it.
  if (old.st_uid != geteuid() && fchown(fd, old.st_uid, old.st_gid) != 0) {
    return CannotWrite(path, "cannot be given to the file's owner");
  }
  return fsync(fd) == 0 ? absl::OkStatus() : CannotWrite(path, "cannot be written");
}

// In its place when it is on the disk as a whole, and not before.
absl::Status ReplaceFile(const std::string& given, absl::string_view text) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(given.c_str(), nullptr),
                                                         &std::free);
  struct stat old = {};
  if (real == nullptr || stat(real.get(), &old) != 0) return CannotWrite(given, "is not there");
  const std::string path = real.get();
  const std::string fresh = path + ".new";
  const FileDescriptor file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) return CannotWrite(fresh, "cannot be made");
  absl::Status status = Fill(file.get(), text, old, fresh);
  if (status.ok() && rename(fresh.c_str(), path.c_str()) != 0) {
    status = CannotWrite(path, "cannot be replaced");
  }
  if (!status.ok()) {
    unlink(fresh.c_str());
    return status;
  }
  const std::string folder = path.substr(0, path.find_last_of('/') + 1);
  const FileDescriptor directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0) {
    return CannotWrite(path, "its folder cannot be written");
  }
  return absl::OkStatus();
}

// `change` gets the lines, each without its end.
template <typename Change>
absl::Status ChangeLines(const std::string& path, Change change) {
  ASSIGN_OR_RETURN(std::string text, ReadKeyFile(path));
  absl::Status status = KeyRing::Parse(text).status();
  if (status.ok()) {
    std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
    if (!lines.empty() && lines.back().empty()) lines.pop_back();
    std::string added;
    added.reserve(kFileBytesMax);
    status = change(lines, added);
    std::string changed;
    changed.reserve(kFileBytesMax);
    for (const absl::string_view line : lines) absl::StrAppend(&changed, line, "\n");
    if (status.ok()) {
      status = changed.size() > kFileBytesMax
                   ? absl::InvalidArgumentError("it is full: remove keys that nothing needs")
                   : KeyRing::Parse(changed).status();
    }
    if (status.ok()) {
      status = ReplaceFile(path, changed);
      WipeText(changed);
      WipeText(added);
      WipeText(text);
      return status;
    }
    WipeText(changed);
    WipeText(added);
  }
  WipeText(text);
  return absl::Status(status.code(),
                      absl::StrCat("secrets.key_file ", path, ": ", status.message()));
}

// Its day, for people, and what keeps two of a day apart.
std::string NewKeyId() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  gmtime_r(&now, &day);
  char text[16];
  std::strftime(text, sizeof text, "k%Y%m%d", &day);
  uint16_t number = 0;
  FillRandom(&number, sizeof number);
  return absl::StrCat(text, "-", absl::Hex(number, absl::kZeroPad4));
}

}  // namespace

absl::StatusOr<std::string> AddMasterKey(const std::string& path) {
  const std::string id = NewKeyId();
  RETURN_IF_ERROR(
      ChangeLines(path, [&id](std::vector<absl::string_view>& lines, std::string& added) {
        added = KeyRing::NewKeyLine(id);
        lines.push_back(absl::StripTrailingAsciiWhitespace(added));
        return absl::OkStatus();
      }));
  return id;
}

absl::Status UseMasterKey(const std::string& path, absl::string_view key_id) {
  return ChangeLines(path, [key_id](std::vector<absl::string_view>& lines, std::string&) {
    size_t first = lines.size();
    for (size_t i = 0; i < lines.size(); ++i) {
      const absl::string_view id = KeyIdOfLine(lines[i]);
      if (id.empty()) continue;
      if (first == lines.size()) first = i;
      if (id != key_id) continue;
      const absl::string_view line = lines[i];
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(i));
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(first), line);
      return absl::OkStatus();
    }
    return absl::NotFoundError(absl::StrCat("there is no key ", key_id, " in it"));
  });
}

namespace internal {

absl::StatusOr<std::string> ReadKeyFile(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) {
    return absl::NotFoundError(absl::StrCat("secrets.key_file ", path, ": ", std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode) || status.st_size > static_cast<off_t>(kFileBytesMax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "secrets.key_file ", path, ": want a plain file of at most ", kFileBytesMax, " bytes"));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "secrets.key_file ", path, ": other users may read it; run `chmod 600 ", path, "`"));
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = read(file.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      WipeText(text);
      return absl::UnavailableError(absl::StrCat("secrets.key_file ", path, ": cannot be read"));
    }
    filled += static_cast<size_t>(got);
  }
  return text;
}

void WipeText(std::string& text) { OPENSSL_cleanse(text.data(), text.size()); }

absl::string_view KeyIdOfLine(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  if (line.empty() || line.front() == '#') return {};
  return line.substr(0, line.find(':'));
}

}  // namespace internal

bool KeyFileWatch::Look() {
  struct stat status = {};
  if (stat(path_.c_str(), &status) == 0) {
    const Stamp stamp = {int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
                         status.st_ino, status.st_size};
    if (stamp == seen_) return false;
    seen_ = stamp;
  }
  absl::StatusOr<KeyRing> fresh = KeyRing::Load(path_);
  if (!fresh.ok()) {
    // It may be about to be replaced, or to be given its mode: it is looked at again.
    seen_ = Stamp();
    if (std::exchange(told_, std::string(fresh.status().message())) != told_) {
      POSTRIDER_LOG(kWarn, "the master keys stay as they were", {"why", told_});
    }
    return false;
  }
  told_.clear();
  if (!ring_.Replace(*std::move(fresh))) return false;
  POSTRIDER_LOG(kInfo, "other master keys were read", {"seals", ring_.active_key_id()});
  return true;
}

}  // namespace postrider
