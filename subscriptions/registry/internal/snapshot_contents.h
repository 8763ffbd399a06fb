#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::subscriptions {
namespace internal {

// Each distinct string once, numbered from 0. A copy has the same strings under the same numbers,
// shares their bytes and goes on from there; the bytes live as long as any of them.
class StringTable {
 public:
  StringTable() = default;
  StringTable(const StringTable& other);
  StringTable& operator=(const StringTable&) = delete;
  StringTable(StringTable&&) noexcept = default;
  StringTable& operator=(StringTable&&) noexcept = default;

  StringId Intern(absl::string_view text);
  absl::optional<StringId> Find(absl::string_view text) const;
  absl::string_view Get(StringId id) const { return texts_[id]; }
  size_t size() const { return texts_.size(); }
  size_t memory_bytes() const;

 private:
  static constexpr size_t kBlockBytesFirst = 1024;
  static constexpr size_t kBlockBytesLast = 64 * 1024;

  std::vector<std::shared_ptr<char[]>> blocks_;
  size_t next_block_ = kBlockBytesFirst;
  size_t block_bytes_ = 0;  // of all blocks
  size_t used_ = 0;         // of the last one
  size_t capacity_ = 0;     // of the last one
  std::vector<absl::string_view> texts_;
  absl::flat_hash_map<absl::string_view, StringId> ids_;
};

}  // namespace internal

struct Snapshot::Contents {
  uint64_t version = 0;
  internal::StringTable strings;
  std::vector<CustomerEntry> customers;  // sorted by id
  absl::flat_hash_map<CustomerId, uint32_t> customer_index;
  std::vector<std::shared_ptr<const Endpoint>> endpoints;  // sorted by id
  absl::flat_hash_map<EndpointId, uint32_t> endpoint_index;
  std::vector<SubscriptionEntry> subscriptions;  // sorted by id
  std::vector<StringId> references;              // of the subscriptions
  std::vector<std::string> event_types;          // sorted
  std::shared_ptr<const Erasures> erasures = std::make_shared<const Erasures>();
  absl::flat_hash_set<EndpointId> dead_lettered;

  // The grants of customer i: tenants and xids from grants_begin[i] to grants_begin[i + 1], by
  // tenant.
  std::vector<uint32_t> grants_begin;
  std::vector<StringId> grant_tenants;
  std::vector<uint64_t> grant_xids;
  // The customers of tenant t: from holders_begin[t] to holders_begin[t + 1]. Strings past the
  // last tenant have no entry.
  std::vector<uint32_t> holders_begin;
  std::vector<uint32_t> holders;
};

}  // namespace postrider::subscriptions
