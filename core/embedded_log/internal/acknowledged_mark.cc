#include "core/embedded_log/internal/acknowledged_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "core/base/bytes.h"

namespace postrider::embedded_log_internal {
namespace {

// The number and its complement: the file is one write of a few bytes, whole or damaged.
constexpr size_t kBytes = 16;

}  // namespace

AcknowledgedMark::AcknowledgedMark(const std::string& path, Access access)
    : fd_(open(path.c_str(), O_CLOEXEC | (access == Access::kRead ? O_RDONLY : O_RDWR | O_CREAT),
               0600)) {
  std::string bytes(kBytes + 1, '\0');
  if (fd_ < 0 || pread(fd_, bytes.data(), bytes.size(), 0) != kBytes) return;
  bytes.resize(kBytes);
  ByteReader in(bytes);
  const uint64_t sequence = in.U64();
  if (in.U64() == ~sequence) sequence_ = sequence;
}

AcknowledgedMark::~AcknowledgedMark() {
  if (fd_ >= 0) close(fd_);
}

void AcknowledgedMark::Set(uint64_t sequence) {
  if (fd_ < 0 || sequence == sequence_) return;
  sequence_ = sequence;
  ByteWriter out(kBytes);
  out.U64(sequence);
  out.U64(~sequence);
  [[maybe_unused]] const ssize_t written = pwrite(fd_, out.bytes().data(), kBytes, 0);
}

}  // namespace postrider::embedded_log_internal
