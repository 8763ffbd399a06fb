#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/stream/keyed_state.h"

namespace postrider::delivery {

// The durable states of delivery. The key of all is the endpoint id's 16 bytes. Their ids stand in
// the changelogs and are never used again for anything else; lists are odd, values and maps even.
// The changelogs' places in JobOptions::changelogs:
inline constexpr size_t kEndpointChangelog = 0;  // small, restored before records are read
inline constexpr size_t kBacklogChangelog = 1;   // large, restored beside

// Endpoint state, value: whether the endpoint may have entries in the backlog. It is durable before
// the first entry is written, and is cleared after the last removal is durable.
inline constexpr uint16_t kHasBacklogState = 2;
// Endpoint state, value: what is known of the endpoint's health (endpoint_health.h).
inline constexpr uint16_t kHealthState = 8;
// Endpoint state, value: what its customer was told of the endpoint (operational_teller.h).
inline constexpr uint16_t kOperationalState = 10;
// Endpoint state, value: what its receiver has taught (learned_record.h).
inline constexpr uint16_t kLearnedState = 12;
// Backlog, list: messages that wait. Identity: the message's digest; order: its offset in the
// dispatch log; value: its dispatch record as it stands there.
inline constexpr uint16_t kBacklogState = 1;
// Backlog, map from a batch's key to its members: written once, when a batch of theirs may have
// reached its receiver and some of them wait here.
inline constexpr uint16_t kBatchesState = 4;
// Backlog, map from a batch's key to what its tries came to: written with each.
inline constexpr uint16_t kAttemptsState = 6;

// The version of an entry of the list: whatever the dispatch record's own is.
inline constexpr uint32_t kEntryVersion = 1;

struct BatchMember {
  uint64_t order = 0;
  IdBytes digest{};
  uint32_t bytes = 0;  // of its record
  friend bool operator==(const BatchMember&, const BatchMember&) = default;
};

struct BatchAttempts {
  uint32_t attempts = 0;  // charged ones
  uint32_t tries = 0;
  WallTime first_try;
  WallTime due;               // the next one; a hint
  uint32_t last_outcome = 0;  // OutcomeKind
  int32_t last_status = 0;
  absl::optional<WallTime> set_at;  // when `due` was; from version 2 on
  friend bool operator==(const BatchAttempts&, const BatchAttempts&) = default;
};

// How long the next try has to wait yet. It is never later than was asked for when it was set,
// whatever has become of the clock since; in version 1 that is not known, and it waits until `due`.
// At most 24 h.
Duration LeftUntilDue(const BatchAttempts& attempts, WallTime now);

StateSerializer<bool> HasBacklogSerializer();
StateSerializer<std::vector<BatchMember>> BatchMembersSerializer();
StateSerializer<BatchAttempts> BatchAttemptsSerializer();

}  // namespace postrider::delivery
