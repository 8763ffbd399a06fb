#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "subscriptions/registry/ids.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::subscriptions {

// An endpoint that gets an event. The two numbers are the changed_xid of the rows that said so.
struct Match {
  uint32_t endpoint_index = 0;  // in the snapshot
  EndpointId endpoint;
  CustomerId customer;
  uint64_t endpoint_xid = 0;
  uint64_t grants_xid = 0;
  int parallelism = 1;  // the parts that the endpoint is spread over
};

// Which endpoints get an event. Made from a snapshot, which it keeps; immutable.
//
// Everything is looked up by hash on (pattern, tenant) or (pattern, customer), where the patterns
// of an event type are the type itself, "a.*" for each of its dots, and "*": a prefix costs an
// event one more look-up and nothing is spread over the types that it covers. Grants are part of
// every answer: a subscription to a listed tenant that is not granted is not in the index at all.
//
// Threads: any. Size: 8 bytes and a hash slot (about 20 bytes) for each pattern and tenant of a
// subscription; one with many of both is kept once per tenant instead, and its patterns are then
// looked at one by one.
class MatchIndex {
 public:
  static std::shared_ptr<const MatchIndex> Build(std::shared_ptr<const Snapshot> snapshot);

  // The patterns that an event type fits, as numbers of this index. Made once per type and index,
  // for a topic's events have one type.
  class TypePatterns {
   public:
    bool empty() const { return numbers_.empty(); }

   private:
    friend class MatchIndex;
    std::vector<StringId> numbers_;  // sorted
  };
  // kLeftOut: "*" does not stand for this type.
  enum class EveryType { kFits, kLeftOut };
  TypePatterns PatternsOf(absl::string_view type, EveryType every = EveryType::kFits) const;

  // Whether an event of these patterns and tenant may match at all, whatever its department; cheap,
  // and right when it says no.
  bool MayMatch(const TypePatterns& patterns, absl::string_view tenant) const;

  // Every endpoint that gets the event, once each, in the order of their ids; `matches` is
  // overwritten.
  void Find(const TypePatterns& patterns, absl::string_view tenant,
            absl::optional<absl::string_view> department, std::vector<Match>* matches) const;

  const Snapshot& snapshot() const { return *snapshot_; }
  // About how much memory it holds beside the snapshot, in bytes.
  size_t memory_bytes() const;

 private:
  // One subscription in a place where it is looked up. Entries with one key lie side by side.
  struct Entry {
    uint32_t endpoint = 0;
    uint32_t subscription = 0;
  };
  struct Span {
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  struct Building;

  explicit MatchIndex(std::shared_ptr<const Snapshot> snapshot) : snapshot_(std::move(snapshot)) {}
  absl::Span<const Entry> At(uint64_t key) const;
  bool AnyGranted(StringId pattern, StringId tenant) const;
  template <typename Visitor>
  void VisitGranted(StringId pattern, StringId tenant, Visitor&& visit) const;
  void Add(const Entry& entry, StringId tenant, absl::optional<StringId> department,
           std::vector<Match>* matches) const;

  std::shared_ptr<const Snapshot> snapshot_;
  std::vector<Entry> entries_;
  absl::flat_hash_map<uint64_t, Span> spans_;
  // The customers (by index, ascending) with a subscription of scope `granted` to a pattern.
  absl::flat_hash_map<StringId, std::vector<uint32_t>> granted_customers_;
};

}  // namespace postrider::subscriptions
