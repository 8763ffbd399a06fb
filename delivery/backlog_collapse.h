#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "core/base/id.h"
#include "core/json/reader.h"
#include "delivery/batch.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {

// One run over a backlog that keeps the newest message of each key: first all entries are shown to
// it in their order, then again, when it tells which of them a newer one has overtaken.
//
// An event without the key's value (a string, number, boolean or null) is kept.
//
// Threads: owned by one. Bounds: kKeysMax keys, 24 bytes each and what a map takes; messages of the
// keys beyond are kept.
class BacklogCollapse {
 public:
  static constexpr size_t kKeysMax = 100'000;

  explicit BacklogCollapse(const subscriptions::BacklogSettings& settings);

  enum class Phase : uint8_t { kLooking, kTaking };
  Phase phase() const { return phase_; }
  void BeginTaking() {
    phase_ = Phase::kTaking;
    from_ = 0;
  }
  // Where the next look begins: behind the entries that were shown.
  uint64_t from() const { return from_; }
  // Shows the entry at `order`. Whether it is to be taken out, which is only said while kTaking.
  bool Show(uint64_t order, const MessageContent& content);
  void Pass(uint64_t order) { from_ = order + 1; }

 private:
  absl::optional<IdBytes> KeyOf(const MessageContent& content);

  absl::optional<JsonPointer> pointer_;  // none: the tenant
  bool broken_ = false;                  // the pointer is; nothing has a key
  PointerReader reader_;
  Phase phase_ = Phase::kLooking;
  uint64_t from_ = 0;
  absl::flat_hash_map<IdBytes, uint64_t> newest_;
};

}  // namespace postrider::delivery
