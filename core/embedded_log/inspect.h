#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider {

// An embedded log, looked at without changing anything: its directory stays as it is to the byte,
// damage too, but for MarkExported().
//
// Threads: owned by one; all calls block on the disk.
// Bounds:  the memory of a few blocks, and of what is in the write-ahead logs (128 MB).
class LogInspector {
 public:
  // Of a log that no service has open, whole.
  // kNotFound: there is no log. kFailedPrecondition: a service has it open (none can open it
  // until this ends), or a newer version wrote it. kDataLoss: only a start of the service, which
  // puts together anew what it can, makes it readable.
  static absl::StatusOr<std::unique_ptr<LogInspector>> Open(const std::string& directory);
  // Of a log that a service writes meanwhile: as of the last CatchUp(), and only what was
  // acknowledged. What is being moved from one file to another, or is damaged, may be missing, so
  // Read() gives nothing behind a gap. Errors as Open()'s, and kUnavailable: try again.
  static absl::StatusOr<std::unique_ptr<LogInspector>> OpenBeside(const std::string& directory);
  // Beside a service; kUnavailable: drop this one and open another.
  absl::Status CatchUp();
  ~LogInspector();
  LogInspector(const LogInspector&) = delete;
  LogInspector& operator=(const LogInspector&) = delete;

  struct PartitionState {
    int64_t begin = 0;
    int64_t end = 0;     // the offset that the next record would get
    uint64_t bytes = 0;  // of the runs that are there
    WallTime oldest;     // of the first record; the epoch: there is none
    WallTime newest;     // the latest of any
  };
  struct TopicState {
    std::string name;
    WallTime created;
    bool frozen = false;
    bool compacted = false;  // by key, so that offsets may be missing
    // A tombstone stays so long at least after what it removes was to be read last; a year at most
    // is said.
    std::chrono::milliseconds tombstones_stay{0};
    std::vector<std::pair<std::string, std::string>> settings;
    std::vector<PartitionState> partitions;
  };
  // By name.
  std::vector<TopicState> Topics() const;

  struct GroupPosition {
    std::string group;
    TopicPartition tp;
    CommittedPosition position;
  };
  // By group and partition.
  std::vector<GroupPosition> Positions() const;

  // The records from `from` on in their order, until `visit` says false. What cannot be read is
  // passed over; beside a service it ends there with kUnavailable, and so it does where offsets are
  // missing that were not compacted away. kNotFound: no such partition.
  absl::Status Read(const TopicPartition& tp, int64_t from,
                    absl::FunctionRef<bool(const LogRecord&)> visit);

  struct Damage {
    std::string place;
    std::string meaning;
  };
  struct VerifyReport {
    uint64_t partitions = 0;
    uint64_t records = 0;
    uint64_t tables = 0;
    std::vector<Damage> damages;  // at most kDamagesMax
  };
  static constexpr size_t kDamagesMax = 10'000;
  // Reads all that there is.
  absl::StatusOr<VerifyReport> Verify();

  // Held by one who copies the log, so that no second one does at the same time, in whatever
  // process; a service may run. kFailedPrecondition: another does; kNotFound: there is no log.
  class CopyHold {
   public:
    virtual ~CopyHold() = default;
  };
  static absl::StatusOr<std::unique_ptr<CopyHold>> HoldCopy(const std::string& directory);

  // A log that was exported: no service opens it again, for that would go on with what goes on
  // elsewhere, until the file `exported` in it is removed. `where` is said to whoever tries.
  static absl::Status MarkExported(const std::string& directory, const std::string& where);

  // Another one after each time that a service has opened the log.
  std::string Opening() const;

  // Bytes made of its topics, where partitions begin and end and what groups have committed: two
  // logs with the same ones hold the same.
  std::string Outline() const;

 private:
  struct Impl;
  explicit LogInspector(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
