#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace postrider::embedded_log_internal {

// How far the database was acknowledged as being on the disk: its sequence number, in a small file
// that is written over after each sync. It is not synced itself. So after a power loss it may say
// less than what was acknowledged, never more; and whatever the database has less than that is
// lost, though the end of its write-ahead log may look as if a crash had torn it.
//
// A file that cannot be written or read tells nothing, which is no fault. Threads: owned by one.
class AcknowledgedMark {
 public:
  enum class Access { kRead, kWrite };
  AcknowledgedMark(const std::string& path, Access access);
  ~AcknowledgedMark();
  AcknowledgedMark(const AcknowledgedMark&) = delete;
  AcknowledgedMark& operator=(const AcknowledgedMark&) = delete;

  // 0: nothing is known.
  uint64_t sequence() const { return sequence_; }
  void Set(uint64_t sequence);

 private:
  int fd_;
  uint64_t sequence_ = 0;
};

}  // namespace postrider::embedded_log_internal
