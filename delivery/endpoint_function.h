#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/http/http_sink.h"
#include "core/stream/function.h"
#include "core/stream/keyed_state.h"
#include "core/stream/recent_identities.h"
#include "delivery/outcome.h"
#include "delivery/prepared_endpoint.h"
#include "delivery/retry_policy.h"
#include "delivery/window.h"
#include "dlq/letters/dead_letter_record.h"
#include "dlq/reports/report_record.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/registry/ids.h"

namespace postrider::delivery {

class DeliveryProgram;

// Delivers one key group's messages: groups them by endpoint into batches, sends these, and sees
// each message to one of its ends: delivered, dead letter, withheld or discarded. State is
// replayable: what is here is pending in the log. A batch goes
//
//   open --full or due--> ready --its turn--> in flight --outcome--> done
//                           ^                    |  \--------------> dead letter
//                           '--- due <-- waiting-'
//
// An open batch that is due but finds no slot free goes on gathering until it is full.
//
// Threads: the shard's. Bounds: those of the shard's pending records; an endpoint without any is
// forgotten after a while.
class EndpointFunction final : public KeyedProcessFunction {
 public:
  // `program` outlives it.
  explicit EndpointFunction(DeliveryProgram& program);
  ~EndpointFunction() override;

  absl::Status Open(TaskContext& ctx) override;
  void OnElement(TaskContext& ctx, const LogRecord& record) override;
  void OnSkipped(TaskContext& ctx, const LogRecord& record) override;
  void OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag, MonotonicTime time) override;
  void OnPartitionEnd(TaskContext& ctx, int64_t next) override;
  void OnRoom(TaskContext& ctx) override;
  void OnResume(TaskContext& ctx) override;
  void OnPressure(TaskContext& ctx) override;
  void OnDrain(TaskContext& ctx, Drain kind) override;
  size_t in_flight() const override;
  void Close(TaskContext& ctx, CloseReason reason) override;

  // From the program: this endpoint's turn, and a new snapshot.
  void SendNext(const std::string& key);
  void OnSnapshot();

  // Endpoints that it remembers, and those whose late batch waits for the partition's end.
  size_t endpoints() const { return endpoints_.size(); }
  size_t waiting_for_partition_end() const { return late_.size(); }

 private:
  struct Message {
    int64_t offset = 0;
    size_t bytes = 0;
    IdBytes digest{};
    std::string message_id;
    subscriptions::DispatchRecord record;
  };
  struct Batch {
    std::vector<std::unique_ptr<Message>> messages;
    size_t bytes = 0;  // of its body, at most
    int attempts = 0;  // charged ones
    int tries = 0;     // all of them
    absl::optional<MonotonicTime> first_try;
    Outcome last;
  };
  struct Flight {
    Batch batch;
    HttpRequestId request = 0;
    MonotonicTime started;
  };
  struct EndpointState {
    std::string key;
    subscriptions::EndpointId id;
    bool streaming = false;
    int64_t events_max = 1000;
    int64_t bytes_max = 1 << 20;
    Duration wait_max = std::chrono::seconds(1);
    RetryPolicy retry;

    Batch open;
    bool open_due = false;
    bool open_late = false;  // was due on arrival: see StartOpen()
    MonotonicTime open_since;
    std::deque<Batch> ready;
    std::map<uint64_t, Flight> flights;
    std::multimap<MonotonicTime, Batch> waiting;  // by the time of their next try

    Window window{32};
    MonotonicTime hold_until{};  // nothing is sent before
    int fresh_in_a_row = 0;      // sent while a retry was due
    bool in_line = false;
    bool listed_late = false;  // stands in late_
    bool awaits_snapshot = false;
    size_t messages = 0;
    size_t bytes = 0;
    MonotonicTime last_used;  // had a message or a result
    std::unique_ptr<PreparedEndpoint> prepared;
  };
  struct Output {
    AppendRecord record;
    int64_t offset = 0;  // complete when it is acknowledged
  };
  enum class Admission { kSend, kDrop, kWait };

  EndpointState& StateOf(absl::string_view key);
  void ReadSettings(EndpointState& state);
  static bool Fits(const EndpointState& state, const Batch& batch);
  void CutUntried(EndpointState& state);
  void Add(EndpointState& state, std::unique_ptr<Message> message);
  void CloseOpen(EndpointState& state);
  void StartOpen(EndpointState& state, const Message& first);
  void Sweep();
  bool Sendable(const EndpointState& state) const;
  bool OpenMayGo(const EndpointState& state) const;
  void Schedule(EndpointState& state);
  absl::optional<Batch> TakeNext(EndpointState& state);
  void Send(EndpointState& state, Batch batch);
  Admission Admit(EndpointState& state, Batch& batch);
  const PreparedEndpoint* Prepared(EndpointState& state, absl::Status* why);
  absl::StatusOr<HttpRequest> MakeRequest(EndpointState& state, Batch& batch,
                                          const PreparedEndpoint& prepared);
  void OnHttpResult(const std::string& key, uint64_t flight, HttpResult result);
  void Settle(EndpointState& state, Batch batch, const Outcome& outcome);
  void GiveUpBatch(EndpointState& state, Batch batch, dlq::DeadReason reason);
  void GiveUp(EndpointState& state, const Message& message, dlq::DeadReason reason,
              const Batch& batch);
  void Refuse(EndpointState& state, const Message& message, dlq::RefusalReason reason);
  void Finish(EndpointState& state, const Message& message);
  void Emit(Output output);
  void DrainOutputs();
  bool HasFailedOrHanging(const EndpointState& state) const;
  void GiveUpOldest(EndpointState& state, size_t share);

  DeliveryProgram& program_;
  TaskContext* ctx_ = nullptr;
  ReplayableValueState<EndpointState> endpoints_;
  RecentIdentities recent_;
  std::deque<Output> outputs_;         // refused by the producer; in order
  std::vector<std::string> late_;      // each endpoint once
  std::vector<std::string> awaiting_;  // each endpoint once
  uint64_t contents_read_ = 0;         // of the snapshot whose settings were read last
  bool sweeping_ = false;
  bool at_partition_end_ = false;
  bool flushing_ = false;
  uint64_t next_flight_ = 1;
  size_t flights_ = 0;
  size_t in_line_ = 0;
  // Handed weakly to callbacks of the sink: gone when this is closed.
  std::shared_ptr<EndpointFunction*> self_;
};

}  // namespace postrider::delivery
