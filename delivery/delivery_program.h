#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/crypto/key_ring.h"
#include "core/http/http_sink.h"
#include "core/stream/function.h"
#include "delivery/delivery_metrics.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::delivery {

class EndpointFunction;

struct DeliveryOptions {
  std::string topic_prefix = "postrider.";
  // At the shard's bounds an endpoint that holds more than this, and has a failed or hanging
  // attempt, gives up its oldest messages.
  size_t endpoint_share_bytes = 2 << 20;
  // An attempt that is older hangs.
  Duration hanging_after = std::chrono::seconds(5);
  // A batch that is due on arrival waits so long for company (never longer than its wait_max).
  Duration late_wait = std::chrono::milliseconds(100);
  // An endpoint that had no message for so long is forgotten, its window too.
  Duration forget_after = std::chrono::minutes(10);
  // With a snapshot that was confirmed longer ago nothing is sent.
  std::chrono::milliseconds snapshot_age_max{std::chrono::hours(24)};
};

// What the endpoint functions of one shard share: the way out, the snapshot, and the line in which
// endpoints with something to send take turns, one request each.
//
// Threads: the shard's.
// Bounds:  the line holds each endpoint once; requests are bounded by the sink.
class DeliveryProgram final : public ShardProgram {
 public:
  // `keys` and `metrics` outlive it.
  DeliveryProgram(const ShardEnvironment& environment, const DeliveryOptions& options,
                  std::unique_ptr<HttpSink> sink, const KeyRing& keys, DeliveryMetrics& metrics,
                  uint64_t seed);
  ~DeliveryProgram() override;

  std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition& tp) override;
  void OnTurnEnd() override;

  void SetSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot);
  void SetAddressRules(std::shared_ptr<const AddressRules> rules);

  // For the functions.
  const subscriptions::Snapshot* snapshot() const { return snapshot_.get(); }
  bool SnapshotUsable() const;
  const DeliveryOptions& options() const { return options_; }
  HttpSink& sink() { return *sink_; }
  const KeyRing& keys() const { return keys_; }
  DeliveryMetrics& metrics() { return metrics_; }
  Random& random() { return random_; }
  // Puts an endpoint at the end of the line; the function sees to it that it stands there once.
  void Enqueue(EndpointFunction* function, std::string key);
  void Forget(EndpointFunction* function);

 private:
  EventLoop& loop_;
  DeliveryOptions options_;
  std::unique_ptr<HttpSink> sink_;
  const KeyRing& keys_;
  DeliveryMetrics& metrics_;
  Random random_;
  std::shared_ptr<const subscriptions::Snapshot> snapshot_;
  absl::flat_hash_set<EndpointFunction*> functions_;
  std::deque<std::pair<EndpointFunction*, std::string>> line_;
};

}  // namespace postrider::delivery
