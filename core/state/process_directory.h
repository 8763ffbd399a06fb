#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace postrider {

// A directory that belongs to one running process, for as long as the object lives. The lock is the
// system's, on a file in the directory: it ends with the process in whatever way that dies.
class ProcessDirectory {
 public:
  enum class Contents {
    kKept,   // whatever is in it stays
    kWiped,  // all in it is removed; refused when it holds files and was never locked like this
  };
  // Makes it if it is missing (its parent exists). kFailedPrecondition: another running process
  // owns it, or it holds something that is not ours; nothing was touched. kUnavailable: it cannot
  // be made or written.
  static absl::StatusOr<std::unique_ptr<ProcessDirectory>> Acquire(const std::string& path,
                                                                   Contents contents);
  virtual ~ProcessDirectory() = default;

  virtual const std::string& path() const = 0;
};

}  // namespace postrider
