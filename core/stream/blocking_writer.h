#pragma once

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider {

struct BlockingWriterOptions {
  // So long nothing is acknowledged, and the log is taken to be away.
  std::chrono::milliseconds silence_max{30'000};
  ProducerOptions producer;
};

// Appends records on a loop of its own: for the command line, never on a shard's loop. The order of
// the calls is kept for each partition.
//
// Threads: owned by one. Bounds: the producer's.
class BlockingWriter {
 public:
  static absl::StatusOr<std::unique_ptr<BlockingWriter>> Open(Log& log, const Clock& clock,
                                                              const BlockingWriterOptions& options);
  ~BlockingWriter();
  BlockingWriter(const BlockingWriter&) = delete;
  BlockingWriter& operator=(const BlockingWriter&) = delete;

  // Waits for room only. After a fault every call returns it: what was appended before may be
  // written or not.
  absl::Status Append(AppendRecord&& record);
  // Waits until all that was appended is acknowledged.
  absl::Status Flush();

 private:
  struct Impl;
  explicit BlockingWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
