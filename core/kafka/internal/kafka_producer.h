#pragma once

#include <librdkafka/rdkafka.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/kafka/internal/client.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::kafka_internal {

// An idempotent client of its own. librdkafka gives up an instance whose sequence can no longer be
// proven (a fatal error); then everything without an answer goes, in its order, to a new instance:
// a record may come twice, none is lost, the order of each partition stays.
//
// Threads: the loop's.
class KafkaProducer final : public LogProducer {
 public:
  static absl::StatusOr<std::unique_ptr<KafkaProducer>> Create(const ClientConfig& config,
                                                               EventLoop& loop,
                                                               KafkaMetrics& metrics,
                                                               const ProducerOptions& options);
  ~KafkaProducer() override;

  [[nodiscard]] bool Append(AppendRecord&& record, AppendDone&& done) override;
  void SetRoomCallback(absl::AnyInvocable<void()> room) override { room_ = std::move(room); }
  size_t pending() const override { return static_cast<size_t>(pending_records_); }
  void Poll() override;
  void Flush() override;

  // For tests: what librdkafka raises when it can no longer prove its sequence.
  void RaiseFatalError();

 private:
  // One append without an answer. It goes through librdkafka as the message's opaque pointer.
  struct Pending {
    AppendDone done;
    uint64_t sequence = 0;  // order of the calls
    int64_t bytes = 0;
  };
  struct Answer {
    Pending* pending;
    absl::StatusOr<int64_t> result;
  };
  // What the old instance gave back and the new one has not taken yet.
  struct Resend {
    Pending* pending;
    AppendRecord record;
  };

  KafkaProducer(const ClientConfig& config, EventLoop& loop, KafkaMetrics& metrics,
                const ProducerOptions& options);
  absl::Status MakeInstance();
  void DropInstance();
  void Restart();
  void RestartSoon();
  void PumpResends();
  void RunAnswers();

  enum class Produced { kTaken, kFull, kAnswered };
  Produced Produce(const AppendRecord& record, Pending* pending);
  rd_kafka_topic_t* TopicHandle(const std::string& topic);
  void OnDelivered(const rd_kafka_message_t& message);

  Pending* Take();
  void GiveBack(Pending* pending);

  static void DeliveredCallback(rd_kafka_t* client, const rd_kafka_message_t* message,
                                void* opaque);
  static void ErrorCallback(rd_kafka_t* client, int err, const char* reason, void* opaque);

  const ClientConfig config_;
  EventLoop& loop_;
  KafkaMetrics& metrics_;
  const ProducerOptions options_;
  std::unique_ptr<WakeFd> wake_;
  ClientPtr client_;
  absl::flat_hash_map<std::string, TopicPtr> topics_;
  absl::AnyInvocable<void()> room_;

  std::vector<std::unique_ptr<Pending>> pool_;
  std::vector<Pending*> free_;
  uint64_t next_sequence_ = 1;
  int64_t pending_records_ = 0;
  int64_t pending_bytes_ = 0;
  int64_t in_client_ = 0;
  bool refused_ = false;
  bool closing_ = false;
  bool instance_broken_ = false;
  TimerId restart_timer_ = 0;
  MonotonicTime restarted_at_;

  std::vector<Answer> answers_;
  std::vector<Answer> running_answers_;
  std::vector<Resend> given_back_;
  std::deque<Resend> resends_;
  std::vector<rd_kafka_vu_t> arguments_;
};

}  // namespace postrider::kafka_internal
