#pragma once

#include <librdkafka/rdkafka.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/kafka/internal/client.h"
#include "core/kafka/internal/control_thread.h"
#include "core/kafka/internal/range_lookup.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::kafka_internal {

// One member of a group, by plain polls of a client of its own.
//
// Threads: the loop's; librdkafka and the control thread only put things into its queues and write
// to the wake fd.
class KafkaConsumer final : public GroupConsumer {
 public:
  // `admin` is a client that outlives `control`'s jobs.
  static absl::StatusOr<std::unique_ptr<KafkaConsumer>> Create(
      const ClientConfig& config, const Clock& clock, ControlThread& control, rd_kafka_t* admin,
      EventLoop& loop, KafkaMetrics& metrics, const GroupOptions& options, GroupHandler& handler);
  // Without Leave() the group learns of it by the session timeout.
  ~KafkaConsumer() override;

  int wake_fd() const override { return wake_->fd(); }
  size_t Poll(size_t records_max) override;
  void Start(std::vector<StartPosition> positions) override;
  void Restart(const TopicPartition& tp, int64_t offset) override;
  void Release() override;
  void Commit(std::vector<CommitEntry> entries, CommitDone done) override;
  MonotonicTime LeaseUntil() const override;
  void Leave(absl::AnyInvocable<void() &&> done) override;

 private:
  // kIdle --assigned by the group--> kAsking (for what is committed) --answer, OnAssigned()-->
  // kOffered --Start()--> kReading --revoked, lost or Leave()--> kRevoking --Release()-->
  // kReleasing --outstanding commits answered--> kIdle, or kClosing after Leave() --> kClosed
  enum class State { kIdle, kAsking, kOffered, kReading, kRevoking, kReleasing, kClosing, kClosed };

  // Where one assigned partition is read.
  struct Position {
    TopicPartition tp;
    bool reading = false;
    bool restarting = false;  // to be assigned anew at `next`: nothing that still comes counts
    // -1 while it is not known: the log's start or end was asked for and nothing has come.
    int64_t next = -1;
    int64_t start = RD_KAFKA_OFFSET_INVALID;  // an offset or a logical one, until `next` is known
  };
  struct OutstandingCommit;

  KafkaConsumer(const Clock& clock, EventLoop& loop, KafkaMetrics& metrics,
                const GroupOptions& options, GroupHandler& handler);
  absl::Status Open(const ClientConfig& config, ControlThread& control, rd_kafka_t* admin);

  static void RebalanceCallback(rd_kafka_t* client, rd_kafka_resp_err_t err,
                                rd_kafka_topic_partition_list_t* partitions, void* opaque);
  static void ErrorCallback(rd_kafka_t* client, int err, const char* reason, void* opaque);
  static void CommitCallback(rd_kafka_t* client, rd_kafka_resp_err_t err,
                             rd_kafka_topic_partition_list_t* offsets, void* commit_opaque);

  void OnRebalance(rd_kafka_resp_err_t err, const rd_kafka_topic_partition_list_t& partitions);
  void HandleSignals();
  void HandleRevoked();
  void AskCommitted();
  void AskCommittedLater();
  void HandleEvents();
  void HandleCommitted(const rd_kafka_event_t& event);
  void Offer();
  void HandleMessage(const rd_kafka_message_t& message, size_t* records);
  void HandlePartitionError(const rd_kafka_message_t& message);
  void HandleLogStarts();
  void HandleCommitAnswer(OutstandingCommit& commit, rd_kafka_resp_err_t err,
                          const rd_kafka_topic_partition_list_t* offsets);
  void RunCommitDones();
  void FinishRelease();
  void BeginClose();
  void FinishClose();
  void AssignReading();
  void MaybeAssign();
  void SetReachable(bool reachable);
  Position* Find(const rd_kafka_message_t& message);

  const Clock& clock_;
  EventLoop& loop_;
  KafkaMetrics& metrics_;
  const GroupOptions options_;
  GroupHandler& handler_;

  std::unique_ptr<WakeFd> wake_;
  ClientPtr client_;
  QueuePtr consumer_queue_;
  QueuePtr answers_queue_;  // of admin calls
  QueuePtr closing_queue_;
  // Its tickets are assignments.
  std::unique_ptr<RangeLookup> log_starts_;

  State state_ = State::kIdle;
  // Raised by each assignment, so that late answers to an older one are told apart.
  uint64_t assignment_ = 0;
  absl::node_hash_map<TopicPartition, Position> positions_;
  absl::flat_hash_map<std::pair<const void*, int32_t>, Position*> by_handle_;
  std::vector<RecordHeader> headers_;

  std::vector<AssignedPartition> asked_;  // while kAsking
  bool asking_whole_group_ = false;
  TimerId ask_timer_ = 0;

  bool revoked_signal_ = false;
  bool lost_signal_ = false;
  bool down_signal_ = false;
  bool up_signal_ = false;
  bool client_awaits_unassign_ = false;
  bool client_awaits_assign_ = false;
  bool assign_wanted_ = false;    // by Restart()
  bool assign_settling_ = false;  // nothing has come yet from the assignment made last
  bool fenced_ = false;
  bool reachable_ = true;
  // What waits in the queue was fetched before the brokers went away: no proof that they are back.
  bool queue_is_older_ = false;

  std::vector<std::unique_ptr<OutstandingCommit>> outstanding_;
  std::vector<std::pair<CommitDone, std::vector<absl::Status>>> answered_;
  absl::optional<MonotonicTime> lease_from_;

  bool leaving_ = false;
  absl::AnyInvocable<void() &&> leave_done_;
  TimerId close_timer_ = 0;
  TimerId release_timer_ = 0;
};

}  // namespace postrider::kafka_internal
