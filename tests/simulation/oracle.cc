#include "tests/simulation/oracle.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/stream/keyed_state.h"
#include "core/stream/state_key.h"

namespace postrider::simulation {
namespace {

int64_t OffsetOf(absl::string_view text) {
  int64_t offset = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), offset);
  POSTRIDER_CHECK(error == std::errc() && end == text.data() + text.size());
  return offset;
}

std::string Readable(absl::string_view identity) {
  const absl::optional<StateKey> key = DecodeStateKey(identity);
  if (!key) return absl::CHexEscape(identity);
  return absl::StrCat("state ", key->state, " key ", absl::CHexEscape(key->key), " sub-key ",
                      absl::CHexEscape(key->sub_key));
}

std::string Told(const AppendRecord& record) {
  const absl::StatusOr<ChangelogRecord> decoded = DecodeChangelogRecord(record.key, record.value);
  if (!decoded.ok()) return absl::CHexEscape(record.key);
  constexpr const char* kKinds[] = {"?", "put", "clear", "delete", "marker", "erase", "finish"};
  return absl::StrCat(kKinds[static_cast<int>(decoded->kind)], " epoch ", decoded->epoch, " ",
                      Readable(decoded->identity));
}

}  // namespace

void ChangelogModel::Append(absl::string_view key, absl::string_view value) {
  const absl::StatusOr<ChangelogRecord> record = DecodeChangelogRecord(key, value);
  POSTRIDER_CHECK(record.ok());
  switch (record->kind) {
    case ChangelogKind::kMarker:
      fence_ = std::max(fence_, record->epoch);
      at_marker_.emplace(record->epoch, values_);
      return;
    case ChangelogKind::kPut:
      if (record->epoch < fence_) return Shadow(*record);
      values_[record->identity] = Value{record->epoch, record->payload};
      return;
    case ChangelogKind::kClear:
      if (record->epoch < fence_) return Shadow(*record);
      values_.erase(record->identity);
      return;
    case ChangelogKind::kDelete:
      values_.erase(record->identity);
      return;
    case ChangelogKind::kErase: {
      const auto found = values_.find(record->identity);
      if (found != values_.end() && found->second.epoch == record->epoch) values_.erase(found);
      return;
    }
    case ChangelogKind::kFinish:
      return;
  }
}

void ChangelogModel::Shadow(const ChangelogRecord& late) {
  const auto found = values_.find(late.identity);
  if (found != values_.end() && found->second.epoch == late.epoch) found->second.shadowed = true;
}

void ChangelogModel::Compacted() {
  for (auto& [identity, value] : values_) value.may_be_missing |= value.shadowed;
  for (auto& [epoch, values] : at_marker_) {
    for (auto& [identity, value] : values) {
      const auto now = values_.find(identity);
      if (now == values_.end() || now->second.epoch != value.epoch) continue;
      value.may_be_missing |= now->second.may_be_missing;
    }
  }
}

const ChangelogModel::Values* ChangelogModel::At(uint64_t epoch) const {
  const auto found = at_marker_.find(epoch);
  return found == at_marker_.end() ? nullptr : &found->second;
}

void Oracle::Fault(std::string what) {
  if (trace) Note(absl::StrCat("FAULT ", what));
  if (!fault_) fault_ = std::move(what);
}

void Oracle::Note(absl::string_view what) const {
  if (!trace) return;
  std::fprintf(stderr, "%8lld ms  %.*s\n",
               static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                          clock_.Now().time_since_epoch())
                                          .count() -
                                      3'600'000),
               static_cast<int>(what.size()), what.data());
}

void Oracle::Appended(const AppendRecord& record) {
  if (trace) Note(absl::StrCat("append ", record.topic, "/", record.partition, " ", Told(record)));
  if (record.topic == kLetters) {
    letters_[record.partition].insert(OffsetOf(record.key));
    return;
  }
  if (record.topic != kState && record.topic != kBacklog) return;
  ChangelogModel& model = Model(record.topic, record.partition);
  model.Append(record.key, record.value);
}

bool Oracle::InBacklog(int32_t partition, int64_t offset) const {
  const auto model = models_.find({kBacklog, partition});
  if (model == models_.end()) return false;
  for (int key = 0; key < kKeys; ++key) {
    if (model->second.values().contains(
            EncodeStateKey(kBacklogId, absl::StrCat("k", key), absl::StrCat(offset)))) {
      return true;
    }
  }
  return false;
}

bool Oracle::IsDone(int32_t partition, int64_t offset) const {
  const auto letters = letters_.find(partition);
  if (letters != letters_.end() && letters->second.contains(offset)) return true;
  return deliveries(partition, offset) > 0;
}

int64_t Oracle::deliveries(int32_t partition, int64_t offset) const {
  const auto found = delivered_.find(partition);
  if (found == delivered_.end()) return 0;
  const auto count = found->second.find(offset);
  return count == found->second.end() ? 0 : count->second;
}

int64_t Oracle::records() const {
  int64_t count = 0;
  for (const auto& [partition, offsets] : records_) count += static_cast<int64_t>(offsets.size());
  return count;
}

int64_t Oracle::letters() const {
  int64_t count = 0;
  for (const auto& [partition, offsets] : letters_) count += static_cast<int64_t>(offsets.size());
  return count;
}

void Oracle::CommitStored(const CommitEntry& entry) {
  const int32_t partition = entry.tp.partition;
  const auto metadata = DecodeCommitMetadata(entry.position.metadata, entry.position.offset);
  if (!metadata)
    return Fault(absl::StrCat("a commit of ", entry.tp.ToString(), " has no metadata"));
  if (trace) {
    std::string above;
    for (const auto& range : metadata->completed.ranges()) {
      absl::StrAppend(&above, " ", range.begin, "-", range.end);
    }
    Note(absl::StrCat("commit ", entry.tp.ToString(), " at ", entry.position.offset, above,
                      " epoch ", metadata->epoch));
  }
  // What is over was looked at before.
  const std::set<int64_t>& over = over_[partition];
  for (const int64_t offset : records_[partition]) {
    if (offset >= entry.position.offset && !metadata->completed.Contains(offset)) continue;
    if (over.contains(offset) || IsDone(partition, offset) || InBacklog(partition, offset))
      continue;
    return Fault(absl::StrCat("lost: a commit of ", entry.tp.ToString(), " (watermark ",
                              entry.position.offset, ", epoch ", metadata->epoch,
                              ") covers offset ", offset, ", which is neither done nor durable"));
  }
}

void Oracle::CommitAcknowledged(const CommitEntry& entry) {
  const auto metadata = DecodeCommitMetadata(entry.position.metadata, entry.position.offset);
  if (!metadata) return;
  std::set<int64_t>& over = over_[entry.tp.partition];
  for (const int64_t offset : records_[entry.tp.partition]) {
    if (offset < entry.position.offset || metadata->completed.Contains(offset)) {
      over.insert(offset);
      completed_[entry.tp.partition].erase(offset);
    }
  }
}

void Oracle::Element(const TopicPartition& tp, int64_t offset) {
  if (trace) Note(absl::StrCat("element ", tp.ToString(), " ", offset));
  if (over_[tp.partition].contains(offset)) {
    Fault(absl::StrCat("repeat without a reason: ", tp.ToString(), " offset ", offset,
                       " is passed again, though a commit that covers it was acknowledged"));
  }
}

void Oracle::Completed(const TopicPartition& tp, int64_t offset) {
  completed_[tp.partition].emplace(offset, clock_.Now());
}

void Oracle::CheckCommitAge(Duration age_max) {
  for (const auto& [partition, offsets] : completed_) {
    for (const auto& [offset, time] : offsets) {
      if (clock_.Now() - time <= age_max) continue;
      return Fault(absl::StrCat("too much would be repeated: partition ", partition, " offset ",
                                offset, " was completed long ago, and no commit covers it"));
    }
  }
}

void Oracle::Sent(const TopicPartition& tp, uint64_t epoch, int64_t offset, MonotonicTime lease) {
  if (trace) Note(absl::StrCat("send ", tp.ToString(), " ", offset, " epoch ", epoch));
  if (clock_.Now() >= lease) {
    Fault(absl::StrCat("sent without a lease: ", tp.ToString(), " offset ", offset, " epoch ",
                       epoch));
  }
  uint64_t& last = acted_[tp.partition];
  if (epoch < last) {
    Fault(absl::StrCat("a former owner acts after its successor: ", tp.ToString(), " offset ",
                       offset, " epoch ", epoch, " after ", last));
  }
  last = std::max(last, epoch);
}

void Oracle::Delivered(int32_t partition, int64_t offset) {
  if (trace) Note(absl::StrCat("delivered ", partition, " ", offset));
  if (++delivered_[partition][offset] > 1) ++repeats_;
}

void Oracle::CheckRestored(absl::string_view topic, int32_t partition, uint64_t epoch,
                           const std::map<std::string, std::string>& shown,
                           const std::set<uint16_t>& states, const std::set<std::string>& touched,
                           WallTime wall) {
  const ChangelogModel::Values* const at = Model(topic, partition).At(epoch);
  const std::string where = absl::StrCat(topic, "/", partition, " epoch ", epoch);
  if (at == nullptr) return Fault(absl::StrCat(where, " is restored without a marker"));
  // Somebody else owns it by now, and may have replaced what is being read.
  if (Model(topic, partition).fence() > epoch) return;
  const int64_t now_ms = MillisSinceEpoch(wall);
  for (const auto& [identity, value] : *at) {
    const absl::optional<StateKey> key = DecodeStateKey(identity);
    if (!key || !states.contains(key->state) || touched.contains(identity)) continue;
    const absl::optional<StatePayload> payload = DecodeStatePayload(value.payload);
    if (!payload || (payload->expires_ms != 0 && payload->expires_ms <= now_ms)) continue;
    const auto found = shown.find(identity);
    if (value.may_be_missing) continue;
    if (found == shown.end()) {
      // Deletes count, however late.
      if (!Model(topic, partition).values().contains(identity)) continue;
      return Fault(absl::StrCat("forgotten: ", where, " does not show ", Readable(identity)));
    }
    if (found->second != payload->bytes) {
      return Fault(absl::StrCat("undone: ", where, " shows another value of ", Readable(identity)));
    }
  }
  for (const auto& [identity, value] : shown) {
    const auto there = at->find(identity);
    if (touched.contains(identity) || there != at->end()) continue;
    return Fault(
        absl::StrCat("revived: ", where, " shows ", Readable(identity), ", which is not there"));
  }
}

void Oracle::CheckReasserted(absl::string_view topic, int32_t partition, uint64_t epoch) {
  const ChangelogModel& model = Model(topic, partition);
  if (model.fence() != epoch) return;
  for (const auto& [identity, value] : model.values()) {
    if (ReplayRuleOf(identity) != ChangelogReplay::Rule::kInPlace || value.epoch == epoch) continue;
    if (value.may_be_missing) continue;  // nobody can assert what no log shows
    return Fault(absl::StrCat("not asserted: ", topic, "/", partition, " epoch ", epoch, " left ",
                              Readable(identity), " under epoch ", value.epoch));
  }
}

void Oracle::CheckUnwoken(const TopicPartition& tp, uint64_t epoch, int64_t offset,
                          absl::string_view timer_identity) {
  if (!over_[tp.partition].contains(offset)) return;        // it is read again
  if (Model(kState, tp.partition).fence() > epoch) return;  // it may not act any more
  const ChangelogModel::Values* const at = Model(kState, tp.partition).At(epoch);
  if (at != nullptr) {
    const auto timer = at->find(std::string(timer_identity));
    if (timer != at->end() && timer->second.may_be_missing) return;
  }
  Fault(absl::StrCat("forgotten: ", tp.ToString(), " epoch ", epoch, " has offset ", offset,
                     " in its backlog, and no timer for it"));
}

void Oracle::BacklogSent(const TopicPartition& tp, uint64_t epoch, int64_t offset,
                         absl::string_view identity, bool put_in_this_life,
                         bool removed_in_this_life) {
  if (removed_in_this_life && !put_in_this_life) {
    return Fault(absl::StrCat("revived: ", tp.ToString(), " epoch ", epoch,
                              " works on the entry of offset ", offset, ", which it has removed"));
  }
  const ChangelogModel::Values* const at = Model(kBacklog, tp.partition).At(epoch);
  if (!put_in_this_life && (at == nullptr || !at->contains(std::string(identity)))) {
    Fault(absl::StrCat("revived: ", tp.ToString(), " epoch ", epoch,
                       " works on the entry of offset ", offset, ", which nobody has left to it"));
  }
}

absl::optional<std::string> Oracle::Unfinished(
    const std::map<int32_t, absl::optional<CommittedPosition>>& committed) const {
  for (const auto& [partition, offsets] : records_) {
    for (const int64_t offset : offsets) {
      if (!IsDone(partition, offset)) {
        return absl::StrCat("partition ", partition, " offset ", offset, " is not done",
                            InBacklog(partition, offset) ? " (waits in the backlog)" : "");
      }
    }
    if (offsets.empty()) continue;
    const auto found = committed.find(partition);
    if (found == committed.end() || !found->second || found->second->offset <= *offsets.rbegin()) {
      return absl::StrCat("partition ", partition, " is committed at ",
                          found == committed.end() || !found->second ? -1 : found->second->offset,
                          " of ", *offsets.rbegin() + 1);
    }
  }
  for (const auto& [tp, model] : models_) {
    if (tp.topic != kBacklog) continue;
    for (const auto& [identity, value] : model.values()) {
      const absl::optional<StateKey> key = DecodeStateKey(identity);
      if (key && key->state == kBacklogId) {
        return absl::StrCat("partition ", tp.partition, " still has ", Readable(identity),
                            " in its backlog");
      }
    }
  }
  return absl::nullopt;
}

}  // namespace postrider::simulation
