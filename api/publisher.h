#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/event_loop.h"
#include "core/postgres/pool.h"
#include "core/stream/log.h"

namespace postrider::api {

struct PublishOptions {
  std::string topic_prefix = "events.";   // source.topic_prefix
  std::string own_prefix = "postrider.";  // kafka.prefix: never a target
  bool create_topics = true;              // api.create_topics
  int32_t partitions = 1;                 // source.partitions: of a topic that we create
  int16_t replication = 3;                // of the same
  size_t event_bytes_max = 512 << 10;     // event.bytes_max: of `data`
  // A request that has not been acknowledged by then gets 503.
  std::chrono::milliseconds answer_within{10'000};
  ProducerOptions producer;
};

// The way of REST's events into the log: which event types are registered, which topic has how many
// partitions, and appending.
//
// An append that takes long has the log asked whether it can be written; until it says yes again,
// what waits and what comes is refused at once.
//
// Threads: the loop's. One thread of its own asks the log, for those calls block.
// Bounds:  two producers' queues; kTopicsAskedMax questions about topics.
class Publisher {
 public:
  static constexpr std::chrono::seconds kTypeBelievedFor{2};
  static constexpr std::chrono::seconds kTopicBelievedFor{60};
  static constexpr size_t kTopicsAskedMax = 1'024;

  // All of them outlive it.
  Publisher(EventLoop& loop, Log& log, Pool& pool, PublishOptions options);
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // What waits for the log is answered kAborted, now or in the loop's next turn; everything that is
  // asked later is kUnavailable. May wait some seconds for a log that does not answer.
  void Close();

  const PublishOptions& options() const;
  // The topic of an event type; InvalidArgument for one that would be ours or too long.
  absl::StatusOr<std::string> TopicOf(absl::string_view type) const;

  // Those of `types` that are not registered; kUnavailable when Postgres does not answer.
  void FindUnregistered(std::vector<std::string> types,
                        absl::AnyInvocable<void(absl::StatusOr<std::vector<std::string>>) &&> done);
  // The number of partitions, after making the topic when it is missing and create_topics is on.
  // kNotFound: missing. Other errors: the log does not answer. `done` may run from inside the call.
  void FindPartitions(const std::string& topic,
                      absl::AnyInvocable<void(absl::StatusOr<int32_t>) &&> done);
  // As LogProducer::Append, but kUnavailable (closed, or the log takes nothing now) and
  // kResourceExhausted at once are a Status. `done` gets kUnavailable for what the log may write
  // yet, when it takes nothing for the time being.
  // A record of Batches::kOfOne goes over a producer of its own, which is opened for the first one.
  absl::Status Append(AppendRecord record, ProducerOptions::Batches batches,
                      LogProducer::AppendDone done);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider::api
