#pragma once

#include <cstddef>

#include "core/base/wake_fd.h"
#include "core/embedded_log/internal/core.h"
#include "core/embedded_log/internal/cursor_set.h"
#include "core/embedded_log/internal/fetcher.h"
#include "core/stream/log.h"

namespace postrider::embedded_log_internal {

class EmbeddedReader final : public PartitionReader {
 public:
  EmbeddedReader(Core& core, Fetcher& fetcher, WakeFd wake, const ReaderOptions& options,
                 ReadHandler& handler);
  EmbeddedReader(const EmbeddedReader&) = delete;
  EmbeddedReader& operator=(const EmbeddedReader&) = delete;

  int wake_fd() const override { return cursors_.wake_fd(); }
  size_t Poll(size_t records_max) override;
  void Add(const StartPosition& position) override;
  void Remove(const TopicPartition& tp) override;

 private:
  Core& core_;
  ReadHandler& handler_;
  CursorSet cursors_;
};

}  // namespace postrider::embedded_log_internal
