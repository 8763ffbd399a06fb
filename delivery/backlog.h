#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/id.h"
#include "core/stream/function.h"
#include "core/stream/keyed_state.h"
#include "delivery/backlog_state.h"
#include "delivery/batch.h"
#include "delivery/delivery_metrics.h"

namespace postrider::delivery {

// The durable part of one key group's backlog: entries, the compositions and attempts of batches
// that were tried, and has_backlog of each endpoint. It decides nothing: endpoint_function does.
//
// A push that finds no room is refused. What must not be refused (removals, attempts) waits in line
// and is written in its order when there is room; until then pushes are refused too.
//
// A fault of the state fails the task; what was asked for is answered like a refusal.
//
// Threads: the shard's. Bounds: what waits in line is at most what ends while there is no room.
class Backlog {
 public:
  struct Events {
    // The record at this offset is an entry now, and durable.
    std::function<void(int64_t offset)> parked;
    // EnsureFlag() will say yes.
    std::function<void(const std::string& key)> flagged;
    // A removal that had to wait has been made: until here the entry was seen by scans.
    std::function<void(const std::string& key, const IdBytes& digest)> removed;
  };
  Backlog(TaskContext& ctx, DeliveryMetrics& metrics, Events events);
  ~Backlog();

  void OnRestored(size_t changelog);
  // Everything that predecessors had parked is known.
  bool restored() const { return restored_; }
  // Writes what waits in line. False: there is still no room.
  bool OnRoom();

  // has_backlog. An endpoint without it has no entries, also while the backlog is being restored.
  enum class Flag : uint8_t { kNone, kSetting, kSet };
  Flag ReadFlag(absl::string_view key);
  // Whether entries may be pushed; otherwise it is being set (Events::flagged follows), or there
  // was no room for that (`flag` stays kNone).
  bool EnsureFlag(const std::string& key, Flag& flag);
  // Clears it when all that was written until now is durable, if there is no entry then.
  // `cleared` tells whether it was.
  void ClearFlagWhenEmpty(const std::string& key, std::function<bool()> still_set);

  // Makes a message an entry. `encoded` is copied once, into the write. False: no room, nothing was
  // taken.
  [[nodiscard]] bool Push(absl::string_view key, uint64_t order, const IdBytes& digest,
                          absl::string_view encoded);
  // False: it has to wait (Events::removed follows). `place`: as a scan has shown the entry, if it
  // is still there for sure; then it is not looked up.
  bool Remove(absl::string_view key, const IdBytes& digest,
              const absl::optional<ListState::Place>& place = absl::nullopt);
  // Exactly there: the same identity pushed at another place is not found.
  bool Has(absl::string_view key, uint64_t order, const IdBytes& digest);
  // Calls `done` when all that was written until now is durable; at once if it is.
  void WhenDurable(std::function<void()> done);

  // Reads back the contents of those that have none; `messages` ascend by their order. Those that
  // are not there are taken out, as are those that cannot be read, which `damaged` is told of.
  // Returns how many were taken out; no value: the state has failed.
  struct Damaged {
    uint64_t order = 0;
    IdBytes digest{};
    std::string encoded;
  };
  absl::optional<size_t> Load(absl::string_view key, std::vector<Message>& messages,
                              std::vector<Damaged>& damaged);
  // Entries from `from` on, until the visitor returns false. Returns whether the end was reached.
  bool Scan(absl::string_view key, uint64_t from,
            absl::FunctionRef<bool(uint64_t order, const IdBytes& digest, absl::string_view encoded,
                                   const ListState::Place& place)>
                visit);
  bool Scan(
      absl::string_view key, uint64_t from,
      absl::FunctionRef<bool(uint64_t order, const IdBytes& digest, absl::string_view encoded)>
          visit);

  // Composition and attempts. False: no room, nothing was taken.
  [[nodiscard]] bool PutBatch(absl::string_view key, const IdBytes& batch,
                              const std::vector<BatchMember>& members);
  void PutAttempts(absl::string_view key, const IdBytes& batch, const BatchAttempts& attempts);
  void RemoveBatch(absl::string_view key, const IdBytes& batch);
  struct StoredBatch {
    IdBytes key{};
    std::vector<BatchMember> members;
    absl::optional<BatchAttempts> attempts;
  };
  // Those of `key` from the batch `from` on (empty: the first), at most so many. `from` becomes
  // where to go on, empty at the end.
  std::vector<StoredBatch> Batches(absl::string_view key, std::string& from, size_t batches_max);
  // Removes batches and attempts of endpoints without entries, left by a predecessor that ended
  // between the removal of their last entry and theirs; not of those that are in_use(). True: there
  // are no more; else to be called again, with `after` as it was left (first: empty).
  bool RemoveOrphans(absl::FunctionRef<bool(absl::string_view key)> in_use, std::string& after);
  // The members of one; none when there is no such batch. No value: the state has failed.
  absl::optional<std::vector<BatchMember>> Members(absl::string_view key, const IdBytes& batch);

  uint64_t size(absl::string_view key) const { return entries_.size(key); }
  uint64_t bytes(absl::string_view key) const { return entries_.bytes(key); }
  uint64_t size() const { return entries_.size(); }
  // What waits in line for room.
  size_t deferred() const { return deferred_.size(); }
  // Something was parked by predecessors.
  bool inherited() const { return inherited_; }
  // The endpoints that have entries.
  std::vector<std::string> Keys() const;

 private:
  using Write = absl::AnyInvocable<bool()>;
  bool RemoveNow(absl::string_view key, const IdBytes& digest,
                 const absl::optional<ListState::Place>& place);
  void RemoveRecords(const std::string& key);
  void Do(Write write);
  void Fail(absl::Status why);
  void Account();

  TaskContext& ctx_;
  DeliveryMetrics& metrics_;
  Events events_;
  ValueState<bool> has_backlog_;
  ListState entries_;
  MapState<std::vector<BatchMember>> batches_;
  MapState<BatchAttempts> attempts_;
  std::deque<Write> deferred_;
  bool restored_ = false;
  bool inherited_ = false;
  uint64_t messages_ = 0;  // as the metrics have them
  uint64_t bytes_ = 0;
};

}  // namespace postrider::delivery
