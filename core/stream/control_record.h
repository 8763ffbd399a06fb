#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/stream/log.h"

namespace postrider {

// The control topic: one compacted partition in which the command line tells every process of an
// installation what holds for a pool. Its readers ignore keys that they do not know.

// `<prefix>control`.
std::string ControlTopicName(absl::string_view prefix);
TopicSpec ControlTopic(absl::string_view prefix, int16_t replication);

// A savepoint needs the records of `topic` from these offsets on (the n-th is of partition n): the
// owner of each partition trims no further until the hold is dropped or has expired.
struct SavepointHold {
  std::string pool;
  std::string id;
  std::string group;
  std::string topic;
  WallTime created;
  WallTime expires;
  std::vector<int64_t> offsets;
  friend bool operator==(const SavepointHold&, const SavepointHold&) = default;
};

// A pool is being restored: no worker of it may start. It stays until the restore has come to its
// end, over a crash of it too.
struct RestoreMark {
  std::string pool;
  std::string savepoint;
  WallTime began;
  uint64_t repeated_max = 0;  // messages, as it was before anything was changed
  friend bool operator==(const RestoreMark&, const RestoreMark&) = default;
};

// Which topics a pool works on, and how a change of its number of key groups stands.
//
//   steady --a command begins--> draining --all is parked--> moving --all is moved--> steady
//     ^                             |                                       (next generation)
//     '-- given up, or lease over --'
struct PoolRecord {
  enum class Phase : uint8_t {
    kSteady = 0,
    // Matchers are stopped, workers park what they have. Counts until the lease is over.
    kDraining = 1,
    // Nobody works on the pool's topics. Stays until a command has come to its end: the topics of
    // the generation may be closed for good.
    kMoving = 2,
  };
  std::string pool;
  Phase phase = Phase::kSteady;
  uint64_t generation = 1;  // 1: the topics that the first start makes
  int32_t key_groups = 1;
  // The command that holds the lease, random; what it makes of it.
  IdBytes holder{};
  WallTime lease_until;
  int32_t key_groups_next = 0;
  // Generations up to this one were tried: their topics may exist and are never used again.
  uint64_t generation_tried = 1;
  // An earlier one whose topics are still to be removed; 0: none.
  uint64_t generation_left = 0;
  friend bool operator==(const PoolRecord&, const PoolRecord&) = default;
};
// What the topics of a pool are called by: its name, from the second generation on with `.g<n>`.
std::string GenerationName(absl::string_view pool, uint64_t generation);
// Whether a pool may be called so: not empty, without '/', and not like another one's generation.
bool IsPoolName(absl::string_view pool);

// What stands under one key.
struct ControlKey {
  enum class Kind { kUnknown, kSavepointHold, kRestoreMark, kLogIdentity, kPool };
  Kind kind = Kind::kUnknown;
  std::string pool;
  std::string id;  // of a hold
};
// Pools and ids have no '/'.
std::string SavepointHoldKey(absl::string_view pool, absl::string_view id);
std::string RestoreMarkKey(absl::string_view pool);
std::string LogIdentityKey();
std::string PoolKey(absl::string_view pool);
ControlKey ParseControlKey(absl::string_view key);

// A version byte, the fields, a checksum. Errors of decoding: kUnimplemented (a newer version wrote
// it), kDataLoss (it was never written).
std::string EncodeSavepointHold(const SavepointHold& hold);
absl::StatusOr<SavepointHold> DecodeSavepointHold(absl::string_view encoded);
std::string EncodeRestoreMark(const RestoreMark& mark);
absl::StatusOr<RestoreMark> DecodeRestoreMark(absl::string_view encoded);
// What tells this log from another one whose topics have the same names.
std::string EncodeLogIdentity(const IdBytes& identity);
absl::StatusOr<IdBytes> DecodeLogIdentity(absl::string_view encoded);
std::string EncodePoolRecord(const PoolRecord& record);
absl::StatusOr<PoolRecord> DecodePoolRecord(absl::string_view encoded);

}  // namespace postrider
