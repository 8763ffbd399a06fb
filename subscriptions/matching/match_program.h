#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "core/stream/function.h"
#include "subscriptions/matching/decoder/json_decoder.h"
#include "subscriptions/matching/index.h"
#include "subscriptions/matching/match_metrics.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::subscriptions {

class MatchFunction;

struct MatchProgramOptions {
  std::string dispatch_topic;
  int32_t key_groups = 64;  // partitions of the dispatch topic
  std::string rejected_topic;
  // The source topic that is ours (own_events.h); empty: there is none.
  std::string operational_topic;
  // An event with so many hops (kHopsHeader) is rejected.
  uint32_t hops_max = 3;
  // A snapshot that was confirmed longer ago matches nothing; events wait for a newer one.
  std::chrono::milliseconds snapshot_age_max{std::chrono::hours(24)};
};

// What the match functions of one shard share: the snapshot with its index, and the decoder.
//
// Threads: the shard's.
class MatchProgram final : public ShardProgram {
 public:
  // `metrics` outlives it.
  MatchProgram(MatchProgramOptions options, std::unique_ptr<JsonDecoder> decoder,
               MatchMetrics& metrics);
  ~MatchProgram() override;

  std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition& tp) override;

  // `index` was built from a snapshot of the same contents as `snapshot`, which may have been
  // confirmed later.
  void SetSnapshot(std::shared_ptr<const Snapshot> snapshot,
                   std::shared_ptr<const MatchIndex> index);

  // For the functions.
  const MatchProgramOptions& options() const { return options_; }
  JsonDecoder& decoder() { return *decoder_; }
  // For the events of options().operational_topic, whose fields are all headers.
  JsonDecoder& operational_decoder() { return *operational_decoder_; }
  MatchMetrics& metrics() { return metrics_; }
  // Null: there is none yet. `snapshot_number` changes with each SetSnapshot().
  const MatchIndex* index() const { return index_.get(); }
  uint64_t snapshot_number() const { return snapshot_number_; }
  bool MayMatchAt(WallTime now) const {
    return index_ != nullptr && now - snapshot_->confirmed_at() <= options_.snapshot_age_max;
  }

 private:
  friend class MatchFunction;

  const MatchProgramOptions options_;
  std::unique_ptr<JsonDecoder> decoder_;
  std::unique_ptr<JsonDecoder> operational_decoder_;
  MatchMetrics& metrics_;
  std::shared_ptr<const Snapshot> snapshot_;
  std::shared_ptr<const MatchIndex> index_;
  uint64_t snapshot_number_ = 0;
  absl::flat_hash_set<MatchFunction*> open_;
};

}  // namespace postrider::subscriptions
