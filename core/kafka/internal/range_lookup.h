#pragma once

#include <librdkafka/rdkafka.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/event_loop.h"
#include "core/kafka/internal/client.h"
#include "core/kafka/internal/control_thread.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::kafka_internal {

// Asks where partitions begin and end, on the control thread, again and again until the log
// answers.
//
// Threads: the loop's.
// Bounds:  one question per partition that its owner reads.
class RangeLookup {
 public:
  struct Question {
    TopicPartition tp;
    uint64_t ticket = 0;  // tells a late answer from the one that is waited for
  };
  struct Answer {
    Question question;
    Log::Range range;
  };

  // `wake` is signalled when TakeAnswers() has something to do; what `wanted` no longer wants is
  // not asked again. `admin` outlives the jobs of `control`.
  RangeLookup(ControlThread& control, rd_kafka_t* admin, EventLoop& loop,
              std::unique_ptr<WakeFd> wake, std::function<bool(const Question&)> wanted);
  ~RangeLookup();
  RangeLookup(const RangeLookup&) = delete;
  RangeLookup& operator=(const RangeLookup&) = delete;

  void Ask(const Question& question);
  std::vector<Answer> TakeAnswers();

 private:
  // What the control thread found out. Outlives the lookup when it must.
  struct Mailbox;

  void AskLater(const Question& question);

  ControlThread& control_;
  rd_kafka_t* const admin_;
  EventLoop& loop_;
  const std::function<bool(const Question&)> wanted_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<Question> again_;
  TimerId timer_ = 0;
};

}  // namespace postrider::kafka_internal
