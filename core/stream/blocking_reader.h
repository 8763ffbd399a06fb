#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider {

struct BlockingReaderOptions {
  // So long nothing comes, and the log is taken to be away.
  std::chrono::milliseconds silence_max{30'000};
  int64_t prefetch_bytes = 16 << 20;
};

// Reads partitions from their start to an end, one after the other, on a loop of its own: for the
// command line, never on a shard's loop.
//
// Threads: owned by one.
class BlockingReader {
 public:
  static absl::StatusOr<std::unique_ptr<BlockingReader>> Open(Log& log, const Clock& clock,
                                                              const BlockingReaderOptions& options);
  ~BlockingReader();
  BlockingReader(const BlockingReader&) = delete;
  BlockingReader& operator=(const BlockingReader&) = delete;

  // Passes every record below `end` in offset order, until `visit` fails: its status is returned.
  // kDeadlineExceeded: the log was silent for too long.
  absl::Status Read(const TopicPartition& tp, int64_t end,
                    absl::FunctionRef<absl::Status(const LogRecord&)> visit);
  // The same from `begin` on, or from the log's start if that is behind it.
  absl::Status ReadFrom(const TopicPartition& tp, int64_t begin, int64_t end,
                        absl::FunctionRef<absl::Status(const LogRecord&)> visit);
  // All up to the end as it is now.
  absl::Status ReadAll(const TopicPartition& tp,
                       absl::FunctionRef<absl::Status(const LogRecord&)> visit);

 private:
  struct Impl;
  explicit BlockingReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
