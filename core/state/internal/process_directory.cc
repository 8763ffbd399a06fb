#include "core/state/process_directory.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/state/internal/state_directory.h"

namespace postrider {
namespace {

class LockedDirectory final : public ProcessDirectory {
 public:
  LockedDirectory(std::string path, std::unique_ptr<internal::StateDirectory> lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  const std::string& path() const override { return path_; }

 private:
  const std::string path_;
  const std::unique_ptr<internal::StateDirectory> lock_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessDirectory>> ProcessDirectory::Acquire(const std::string& path,
                                                                            Contents contents) {
  std::unique_ptr<internal::StateDirectory> lock;
  if (contents == Contents::kKept) {
    ASSIGN_OR_RETURN(lock, internal::StateDirectory::Lock(path));
  } else {
    ASSIGN_OR_RETURN(lock, internal::StateDirectory::Acquire(
                               path, internal::StateDirectory::Parent::kMustExist));
    RETURN_IF_ERROR(lock->Wipe());
  }
  return std::unique_ptr<ProcessDirectory>(
      std::make_unique<LockedDirectory>(path, std::move(lock)));
}

}  // namespace postrider
