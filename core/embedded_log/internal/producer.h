#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "core/base/event_loop.h"
#include "core/embedded_log/internal/core.h"
#include "core/embedded_log/internal/writer.h"
#include "core/stream/log.h"

namespace postrider::embedded_log_internal {

// What waits for the writer's answer, in the order of the calls. `linger` is not looked at: what is
// written together is what came while the group before it was written.
class Producer final : public LogProducer {
 public:
  Producer(Core& core, Writer& writer, EventLoop& loop, const ProducerOptions& options);
  ~Producer() override;
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;

  // kResourceExhausted: there is no descriptor left.
  absl::Status Start();

  bool Append(AppendRecord&& record, AppendDone&& done) override;
  void SetRoomCallback(absl::AnyInvocable<void()> room) override { room_ = std::move(room); }
  size_t pending() const override { return queue_.size(); }
  void Poll() override;
  void Flush() override {}

 private:
  struct Pending {
    AppendDone done;
    int64_t bytes;
  };

  Core& core_;
  Writer& writer_;
  EventLoop& loop_;
  const ProducerOptions options_;
  std::shared_ptr<AnswerBox> box_;
  std::deque<Pending> queue_;
  int64_t queue_bytes_ = 0;
  bool wants_room_ = false;
  bool watched_ = false;
  absl::AnyInvocable<void()> room_;
};

}  // namespace postrider::embedded_log_internal
