#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider {

// The records of a changelog: a compacted partition per key group, from which durable keyed state
// is rebuilt. They name identities (an encoded StateKey), never positions.
//
// Compaction keeps the last record of each record key and knows nothing of epochs. So the record
// key is the identity and the *epoch of its writer*: what a worker writes late, after it has lost
// its key group, never replaces a record of its successor.
enum class ChangelogKind : uint8_t {
  kPut = 1,     // the identity has this value
  kClear = 2,   // it has none; for values that change in place, ignored like a put when it is late
  kDelete = 3,  // it is finished: removes what any epoch had put before, and counts however late
  kMarker = 4,  // an owner of this epoch has begun: later puts and clears of lower ones are ignored
  kErase = 5,   // a record without a value: removes the record of exactly this key, for compaction
  kFinish = 6,  // the upgrade of a state to a version is finished: belongs to no owner and no epoch
};

struct ChangelogRecord {
  ChangelogKind kind = ChangelogKind::kPut;
  uint64_t epoch = 0;    // the writer's; for kErase, of the record that is removed; 0 for kFinish
  std::string identity;  // empty for kMarker; the state's name for kFinish
  std::string payload;   // for kPut only
  uint32_t version = 0;  // for kFinish only, where it is not 0
  friend bool operator==(const ChangelogRecord&, const ChangelogRecord&) = default;
};

struct EncodedChangelogRecord {
  std::string key;
  std::string value;  // empty: no value, a tombstone
  bool put = false;   // of kind kPut
};

// The record key of what `epoch` writes of `identity`.
std::string ChangelogRecordKey(absl::string_view identity, uint64_t epoch);
// A version byte, the kind, the payload, and a checksum over the key and all of it.
EncodedChangelogRecord EncodeChangelogRecord(const ChangelogRecord& record);
// kFailedPrecondition: a newer version wrote it; kDataLoss: EncodeChangelogRecord() did not.
absl::StatusOr<ChangelogRecord> DecodeChangelogRecord(absl::string_view key,
                                                      absl::string_view value);

// The record that finishes an upgrade: written into each partition by whoever says so, at any time
// and as often as one likes; the highest version counts. CHECKed: a name, a version above 0.
EncodedChangelogRecord FinishRecord(absl::string_view state_name, uint32_t version);

// How many epochs' markers are kept; an owner erases the one that is so much older than its own.
inline constexpr uint64_t kChangelogMarkersKept = 100;

// Turns the records of one changelog partition, in offset order, into what a store is to hold,
// while the task may already write. It does no I/O: its owner reads, applies the steps, and tells
// of its own writes.
//
//   - a put or clear behind a marker of a higher epoch is ignored; a delete counts
//   - an identity that was written or removed live meanwhile is left alone: live wins; of an entry
//     that was put live it is told that it had been put before, for it keeps its first place
//   - records that nothing will need are listed, to be erased from the log
//
// Why an owner re-asserts: a late write of epoch e is ignored, but compaction may have dropped the
// good record of the same identity *and epoch* for it. Values that change in place are therefore
// put again under the owner's epoch when they were restored (Reassert below), and so is an entry
// whose input record is read again. Entries that are put once per epoch need nothing.
//
// Threads: owned by one task. Bounds: the identities in the partition, about 100 bytes each.
class ChangelogReplay {
 public:
  // Whether records of an identity replace each other (values, maps) or it is put once (entries).
  enum class Rule { kInPlace, kOnce };
  using RuleOf = Rule (*)(absl::string_view identity);

  ChangelogReplay(uint64_t own_epoch, RuleOf rule_of) : own_epoch_(own_epoch), rule_of_(rule_of) {}

  enum class Effect {
    kNone,
    kPut,        // the identity has `payload` now, put by `epoch`
    kRemove,     // the identity has no value now
    kPutBefore,  // this task has put it; earlier on `epoch` had, with `payload` (Rule::kOnce)
  };
  struct Step {
    Effect effect = Effect::kNone;
    uint64_t epoch = 0;
    std::string identity;
    std::string payload;
    // With kNone: the upgrade of the state of this name was finished with this version.
    std::string finished_state;
    uint32_t finished_version = 0;
  };
  // The next record. Errors as of DecodeChangelogRecord(): the restore has failed.
  absl::StatusOr<Step> Read(absl::string_view key, absl::string_view value);

  // This task has put or cleared the identity, or removed it, under its own epoch (the write has
  // been given to the changelog). From now on nothing that is read changes it.
  void OnLivePut(absl::string_view identity) { OnLive(identity, true); }
  void OnLiveRemove(absl::string_view identity) { OnLive(identity, false); }
  bool IsLive(absl::string_view identity) const;

  // After the last record: identities whose value an earlier epoch had put, to be put again; and
  // those of kPutBefore.
  std::vector<std::string> Reassert() const;
  // After the last record, and after Reassert() was written: the record keys to erase, in this
  // order.
  std::vector<std::string> TakeErasable();

  uint64_t fence() const { return fence_; }
  // The highest epoch below this task's that has a marker: of the owner before. 0: there is none.
  uint64_t owner_before() const { return owner_before_; }
  uint64_t fenced() const { return fenced_; }  // records that were ignored behind a marker
  size_t identities() const { return known_.size(); }
  // What it holds, about.
  size_t memory_bytes() const {
    return known_.capacity() * kKnownBytes + identity_bytes_ + erasable_bytes_;
  }

 private:
  struct Known {
    bool live = false;  // written by this task: what is read is of no account
    bool live_put = false;
    bool put_before = false;  // with live_put
    bool has_value = false;
    bool shadowed = false;           // a late record has its key: compaction will drop the good one
    absl::optional<uint64_t> epoch;  // of the record that rules, if there is one
  };
  void OnLive(absl::string_view identity, bool put);
  void Erasable(absl::string_view identity, uint64_t epoch);
  bool Rules(absl::string_view record_key) const;
  void Supersede(absl::string_view identity, Known& known, uint64_t epoch);

  const uint64_t own_epoch_;
  const RuleOf rule_of_;
  static constexpr size_t kKnownBytes = sizeof(std::string) + sizeof(Known) + 1;

  Known& KnownOf(absl::string_view identity);

  absl::flat_hash_map<std::string, Known> known_;
  size_t identity_bytes_ = 0;
  std::vector<std::string> erasable_;
  size_t erasable_bytes_ = 0;
  uint64_t fence_ = 0;
  uint64_t owner_before_ = 0;
  uint64_t fenced_ = 0;
};

}  // namespace postrider
