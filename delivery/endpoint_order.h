#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "core/json/reader.h"
#include "delivery/batch.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {

// The order of one endpoint that asks for one: which keys stand still because a message of theirs
// has been sent, or waits for its next try, and has not ended; and how far the backlog was read
// past entries of such keys.
//
// A batch may be sent when no other batch has one of its keys, so that what is sent of a key always
// follows all that was sent of it before. With OrderKind::kEndpoint all messages have one key.
//
// Threads: the shard's. Bounds: a number per key of the batches that are in flight or wait.
class EndpointOrder {
 public:
  // Of a message whose content was not at hand; every other key is another number.
  static constexpr uint64_t kUnknownKey = 0;

  // `settings` asks for an order.
  explicit EndpointOrder(const subscriptions::OrderSettings& settings);

  const subscriptions::OrderSettings& settings() const { return settings_; }
  // The tenant, or the value that the pointer finds in the event, its kind counting: 1 is not "1".
  // Events without one share a key, so do those with an array or object there. Different keys may
  // get one number; then they wait for each other.
  uint64_t KeyOf(const MessageContent& content);
  // Sets the keys of those that lack one and have their content, or need none.
  void SetKeys(std::vector<Message>& messages);
  // Sets the batch's order_keys and first_order by its messages: unknown if one of theirs is.
  static void SetKeys(Batch& batch);

  // A batch that is in flight or waits. One whose keys are not known has all.
  void Block(const Batch& batch);
  void Unblock(const Batch& batch);
  // A message that was given up and whose letter is not durable yet.
  void BlockEnding(uint64_t key);
  void UnblockEnding(uint64_t key);

  bool IsBlocked(uint64_t key) const {
    return unknown_ > 0 || blocked_.contains(key) || endings_.contains(key);
  }
  bool AnyBlocked() const { return unknown_ > 0 || !blocked_.empty() || !endings_.empty(); }
  // Batches whose keys are not known.
  size_t unknown() const { return unknown_; }
  // Whether a key of this batch, which blocks them itself, is blocked by something else too.
  bool IsBlockedBeside(const Batch& batch) const;
  bool EndingBlocks(const Batch& batch) const;
  static bool Share(const Batch& a, const Batch& b);

  // Reading passed an entry of a blocked key.
  void Pass(uint64_t key, uint64_t order);
  // Where reading has to go back to, because keys of entries that were passed are free again: once.
  absl::optional<uint64_t> TakeFreed();

  // What stepping over entries has cost since it was asked last, as bytes sent would (FairQueue).
  void AddCost(size_t bytes) { cost_ += bytes; }
  size_t TakeCost() { return std::exchange(cost_, 0); }

  // Nothing of what was gathered may go, as far as was looked. Ends when anything is freed.
  bool stalled() const { return stalled_; }
  void set_stalled(bool stalled) { stalled_ = stalled; }

 private:
  bool EndpointWide() const { return settings_.kind == subscriptions::OrderKind::kEndpoint; }
  void Free(uint64_t key);

  const subscriptions::OrderSettings settings_;
  absl::optional<JsonPointer> pointer_;
  PointerReader reader_;
  absl::flat_hash_map<uint64_t, uint32_t> blocked_;  // by batches: so many
  absl::flat_hash_map<uint64_t, uint32_t> endings_;  // by messages
  size_t unknown_ = 0;
  // By key, the first entry that was passed; those of keys that were freed are looked at again.
  absl::flat_hash_map<uint64_t, uint64_t> passed_;
  std::vector<uint64_t> freed_;
  bool all_freed_ = false;
  bool stalled_ = false;
  size_t cost_ = 0;
};

}  // namespace postrider::delivery
