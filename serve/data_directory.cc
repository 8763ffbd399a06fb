#include "serve/data_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace postrider {
namespace {

absl::Status Fault(const ProgramOptions& options, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("option data_dir: \"", options.data_dir, "\" ",
                                                 what, ": ", std::strerror(errno)));
}

}  // namespace

absl::Status MakeDataDirectory(const ProgramOptions& options) {
  const char* dir = options.data_dir.c_str();
  struct stat status = {};
  if (::mkdir(dir, 0700) != 0 && errno != EEXIST) return Fault(options, "cannot be made");
  if (::stat(dir, &status) != 0) return Fault(options, "cannot be looked at");
  if (!S_ISDIR(status.st_mode)) {
    errno = ENOTDIR;
    return Fault(options, "cannot be used");
  }
  if (::access(dir, R_OK | W_OK | X_OK) != 0) return Fault(options, "cannot be written to");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ProcessDirectory>> OwnDataDirectory(const ProgramOptions& options) {
  absl::StatusOr<std::unique_ptr<ProcessDirectory>> owned =
      ProcessDirectory::Acquire(options.data_dir, ProcessDirectory::Contents::kKept);
  if (absl::IsFailedPrecondition(owned.status()) && options.log.embedded()) {
    return WithOption("data_dir", absl::FailedPreconditionError(absl::StrCat(
                                      owned.status().message(),
                                      "; with the embedded log one process is all there is: for "
                                      "more use Apache Kafka (log.kind: kafka)")));
  }
  if (!owned.ok()) return WithOption("data_dir", owned.status());
  return owned;
}

absl::Status WithOption(absl::string_view option, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("option ", option, ": ", status.message()));
}

}  // namespace postrider
