// A history of owners that write as they do: each marks its epoch before it writes, and may still
// write when it has been replaced. One restores, writes meanwhile, re-asserts and erases; what its
// successor restores from the compacted log is what it held.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/stream/changelog.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

constexpr uint64_t kOwn = 5;
using Held = std::map<std::string, std::string>;

// Upper case: put once, as a list's entries are.
bool IsOnce(absl::string_view identity) { return identity[0] >= 'A' && identity[0] <= 'Z'; }
ChangelogReplay::Rule RuleOf(absl::string_view identity) {
  return IsOnce(identity) ? ChangelogReplay::Rule::kOnce : ChangelogReplay::Rule::kInPlace;
}
std::string Identity(uint8_t byte) { return std::string(1, "abAB"[byte % 4]); }

// What must hold of a step when the task itself has put `live`, and put or removed `written`.
void CheckStep(const ChangelogReplay::Step& step, const Held& live,
               const std::set<std::string>& written) {
  switch (step.effect) {
    case ChangelogReplay::Effect::kNone:
      return;
    case ChangelogReplay::Effect::kPut:
    case ChangelogReplay::Effect::kRemove:
      POSTRIDER_CHECK(written.count(step.identity) == 0);
      return;
    case ChangelogReplay::Effect::kPutBefore:
      POSTRIDER_CHECK(IsOnce(step.identity) && live.count(step.identity) == 1);
      return;
  }
}

void Apply(const ChangelogReplay& replay, const ChangelogReplay::Step& step, Held& held) {
  if (step.effect == ChangelogReplay::Effect::kNone ||
      step.effect == ChangelogReplay::Effect::kPutBefore) {
    return;
  }
  POSTRIDER_CHECK(!step.identity.empty() && !replay.IsLive(step.identity));
  if (step.effect == ChangelogReplay::Effect::kPut) {
    POSTRIDER_CHECK(step.epoch >= replay.fence());
    held[step.identity] = step.payload;
  } else {
    POSTRIDER_CHECK(held.erase(step.identity) == 1);
  }
}

ChangelogReplay::Step Read(ChangelogReplay& replay, const EncodedChangelogRecord& record) {
  absl::StatusOr<ChangelogReplay::Step> step = replay.Read(record.key, record.value);
  POSTRIDER_CHECK(step.ok());
  return *std::move(step);
}

void Append(ChangelogRecord record, std::vector<EncodedChangelogRecord>& log) {
  log.push_back(EncodeChangelogRecord(record));
}

std::vector<EncodedChangelogRecord> Compacted(const std::vector<EncodedChangelogRecord>& log,
                                              bool drop_tombstones) {
  std::map<std::string, size_t> last;
  for (size_t i = 0; i < log.size(); ++i) last[log[i].key] = i;
  std::vector<EncodedChangelogRecord> kept;
  for (size_t i = 0; i < log.size(); ++i) {
    if (last[log[i].key] != i || (drop_tombstones && log[i].value.empty())) continue;
    kept.push_back(log[i]);
  }
  return kept;
}

void History(Input in) {
  const bool drop_tombstones = in.Flag();
  std::vector<EncodedChangelogRecord> log;
  uint64_t marked = 0;
  int number = 0;
  const auto write = [&](uint64_t epoch) {
    ChangelogRecord record;
    record.epoch = epoch;
    record.identity = Identity(in.Byte());
    switch (in.Byte() % 4) {
      case 0:
      case 1:
        record.kind = ChangelogKind::kPut;
        record.payload = absl::StrCat(++number);
        break;
      case 2:
        record.kind = IsOnce(record.identity) ? ChangelogKind::kDelete : ChangelogKind::kClear;
        break;
      default:
        record.kind = ChangelogKind::kErase;
        break;
    }
    Append(std::move(record), log);
  };
  while (!in.empty() && log.size() < 40) {
    const uint8_t what = in.Byte();
    if (what % 8 == 0 && marked + 1 < kOwn) {
      Append({ChangelogKind::kMarker, ++marked, "", ""}, log);
    } else if (what % 8 == 1) {
      log.push_back(FinishRecord("state", 1 + in.Byte()));
    } else if (what % 8 == 2) {
      break;
    } else if (marked > 0) {
      // The owner mostly, else one that has been replaced.
      write(what % 8 == 3 ? 1 + in.Byte() % marked : marked);
    }
  }
  Append({ChangelogKind::kMarker, kOwn, "", ""}, log);

  ChangelogReplay replay(kOwn, RuleOf);
  Held held;
  Held live;
  std::set<std::string> live_identities;
  std::set<std::string> put_before;
  std::vector<EncodedChangelogRecord> written;
  for (const EncodedChangelogRecord& record : log) {
    while (!in.empty() && in.Byte() % 8 == 0) {
      const std::string identity = Identity(in.Byte());
      live_identities.insert(identity);
      held.erase(identity);
      if (in.Flag()) {
        live[identity] = absl::StrCat(++number);
        Append({ChangelogKind::kPut, kOwn, identity, live[identity]}, written);
        replay.OnLivePut(identity);
      } else {
        live.erase(identity);
        Append(
            {IsOnce(identity) ? ChangelogKind::kDelete : ChangelogKind::kClear, kOwn, identity, ""},
            written);
        replay.OnLiveRemove(identity);
      }
    }
    const ChangelogReplay::Step step = Read(replay, record);
    CheckStep(step, live, live_identities);
    if (step.effect == ChangelogReplay::Effect::kPutBefore) put_before.insert(step.identity);
    Apply(replay, step, held);
  }
  for (const std::string& identity : live_identities) POSTRIDER_CHECK(replay.IsLive(identity));
  const std::vector<std::string> again = replay.Reassert();
  POSTRIDER_CHECK(std::is_sorted(again.begin(), again.end()));
  for (const std::string& identity : again) {
    const Held& whose = held.count(identity) == 1 ? held : live;
    POSTRIDER_CHECK(&whose == &held || put_before.count(identity) == 1);
    Append({ChangelogKind::kPut, kOwn, identity, whose.at(identity)}, written);
  }
  for (const auto& [identity, payload] : held) {
    POSTRIDER_CHECK(IsOnce(identity) || std::binary_search(again.begin(), again.end(), identity));
  }
  for (std::string& key : replay.TakeErasable()) {
    POSTRIDER_CHECK(DecodeChangelogRecord(key, "")->epoch < kOwn);
    written.push_back({std::move(key), ""});
  }

  log.insert(log.end(), written.begin(), written.end());
  Append({ChangelogKind::kMarker, kOwn + 1, "", ""}, log);
  ChangelogReplay next(kOwn + 1, RuleOf);
  Held held_next;
  for (const EncodedChangelogRecord& record : Compacted(log, drop_tombstones)) {
    Apply(next, Read(next, record), held_next);
  }
  held.insert(live.begin(), live.end());
  POSTRIDER_CHECK(held_next == held);
}

// Records of any bytes in any order.
void AnyRecords(Input in) {
  ChangelogReplay replay(in.Number(), RuleOf);
  std::set<std::string> live;
  std::set<std::string> put_before;
  while (!in.empty()) {
    if (in.Byte() % 4 == 0) {
      const std::string identity = (in.Flag() ? "I" : "i") + std::string(in.Text());
      live.insert(identity);
      replay.OnLivePut(identity);
    }
    EncodedChangelogRecord record{std::string(in.Text()), std::string(in.Text())};
    if (in.Flag()) {
      record = EncodeChangelogRecord({static_cast<ChangelogKind>(1 + in.Byte() % 3), in.Number(),
                                      (in.Flag() ? "I" : "i") + std::string(in.Text()), ""});
    }
    const absl::StatusOr<ChangelogReplay::Step> step = replay.Read(record.key, record.value);
    if (!step.ok()) continue;
    const bool before = step->effect == ChangelogReplay::Effect::kPutBefore;
    if (before) put_before.insert(step->identity);
    POSTRIDER_CHECK(step->effect == ChangelogReplay::Effect::kNone ||
                    (live.count(step->identity) == 1) == before);
    POSTRIDER_CHECK(!before || IsOnce(step->identity));
  }
  for (const std::string& identity : replay.Reassert()) {
    POSTRIDER_CHECK(live.count(identity) == 0 || put_before.count(identity) == 1);
  }
  replay.TakeErasable();
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  History(Input(data, size));
  AnyRecords(Input(data, size));
  return 0;
}
