#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider {

// A file that appears under its name when it is whole and on the disk, and not before: it is
// written under a temporary name, flushed and renamed. Without Commit() nothing stays.
class DurableFile {
 public:
  static absl::StatusOr<std::unique_ptr<DurableFile>> Create(const std::string& directory,
                                                             const std::string& name);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  absl::Status Append(absl::string_view bytes);
  absl::Status Commit();

 private:
  DurableFile(std::string directory, std::string name, int fd);
  std::string TemporaryPath() const;

  const std::string directory_;
  const std::string name_;
  int fd_;
};

// A file without a name, for what does not fit into memory: written once, then read. Gone with it.
class SpoolFile {
 public:
  static absl::StatusOr<std::unique_ptr<SpoolFile>> Create(const std::string& directory);
  ~SpoolFile();
  SpoolFile(const SpoolFile&) = delete;
  SpoolFile& operator=(const SpoolFile&) = delete;

  absl::Status Append(absl::string_view bytes);
  // All that was appended, in pieces; stops when `visit` fails. Appending is over then.
  absl::Status ReadAll(absl::FunctionRef<absl::Status(absl::string_view)> visit);

 private:
  explicit SpoolFile(int fd) : fd_(fd) {}
  absl::Status Write();
  const int fd_;
  std::string buffer_;
};

// The bytes of a file in pieces. kNotFound: there is none.
absl::Status ReadFile(const std::string& path,
                      absl::FunctionRef<absl::Status(absl::string_view)> visit);
// Of a small one.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t bytes_max);

// Makes the directory if there is none. kFailedPrecondition: it holds something.
absl::Status MakeEmptyDirectory(const std::string& path);

}  // namespace postrider
