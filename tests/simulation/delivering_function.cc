#include "tests/simulation/delivering_function.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/stream/state_key.h"
#include "tests/fakes/state_serializers.h"

namespace postrider::simulation {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kVersion = 1;
constexpr ScanLimits kAll{1'000, 1 << 20};

StateDescriptor DescriptorOf(uint16_t id, const char* name, milliseconds ttl = {}) {
  StateDescriptor descriptor;
  descriptor.id = id;
  descriptor.name = name;
  descriptor.ttl = ttl;
  return descriptor;
}

std::string Name(int64_t offset) { return absl::StrCat(offset); }
int64_t OffsetOf(absl::string_view name) {
  int64_t offset = -1;
  std::from_chars(name.data(), name.data() + name.size(), offset);
  return offset;
}

IdBytes IdOf(const std::vector<int64_t>& offsets) {
  IdBytes id{};
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const int64_t offset : offsets)
    hash = (hash ^ static_cast<uint64_t>(offset)) * 0x100000001b3;
  for (size_t i = 0; i < 8; ++i) id[i] = static_cast<uint8_t>(hash >> (8 * i));
  return id;
}

}  // namespace

// ---- The requests ----

std::unique_ptr<KeyedProcessFunction> DeliveringProgram::CreateFunction(const TopicPartition& tp) {
  return std::make_unique<DeliveringFunction>(*this, at_, tp);
}

void DeliveringProgram::Send(uint64_t number, int32_t partition,
                             const std::vector<int64_t>& offsets, int attempt) {
  const Answer answer = at_.receive(partition, offsets, attempt);
  const milliseconds after =
      std::min(answer.after.value_or(at_.request_timeout), at_.request_timeout);
  const bool ok = answer.ok && answer.after && *answer.after < at_.request_timeout;
  loop_.CallAfter(after, [this, number, ok] {
    if (at_.on_answer) at_.on_answer(ok);
    requests_.End(number, ok);
  });
}

// ---- The function ----

DeliveringFunction::~DeliveringFunction() {
  POSTRIDER_CHECK(ctx_ == nullptr);
  if (counted_as_restoring_) --*at_.restoring;
}

absl::Status DeliveringFunction::Open(TaskContext& ctx) {
  at_.oracle->Note(absl::StrCat("open ", tp_.ToString(), " epoch ", ctx.epoch()));
  ctx_ = &ctx;
  ++*at_.restoring;
  counted_as_restoring_ = true;
  counts_ = std::make_unique<ValueState<uint64_t>>(
      ctx.state(0), ctx.clock(), DescriptorOf(kCountId, "counts"), NumberSerializer<uint64_t>());
  timers_ = std::make_unique<DurableTimers>(
      ctx.state(0), ctx.clock(), kTimersId, "timers",
      [&ctx](MonotonicTime time) { ctx.SetTimer("", kAlarm, time); });
  backlog_ = std::make_unique<ListState>(ctx.state(1), ctx.clock(),
                                         DescriptorOf(Oracle::kBacklogId, "backlog"), kVersion);
  attempts_ = std::make_unique<MapState<uint64_t>>(
      ctx.state(1), ctx.clock(), DescriptorOf(kAttemptsId, "attempts", at_.attempts_ttl),
      NumberSerializer<uint64_t>());
  if (at_.random->Below(1'000) < at_.fail_open) return absl::UnavailableError("not today");
  return absl::OkStatus();
}

std::string DeliveringFunction::BacklogIdentity(const std::string& key, int64_t offset) const {
  return EncodeStateKey(Oracle::kBacklogId, key, Name(offset));
}

void DeliveringFunction::Touch(uint16_t state, const std::string& key, const std::string& sub_key) {
  if (!restored_) touched_.insert(EncodeStateKey(state, key, sub_key));
}

// What is shown after a restore is what the log says.
void DeliveringFunction::CheckRestored(size_t index) {
  std::map<std::string, std::string> shown;
  for (int i = 0; i < Oracle::kKeys; ++i) {
    const std::string key = absl::StrCat("k", i);
    absl::Status fault;
    if (index == 0) {
      const auto count = counts_->Get(key);
      fault = count.status();
      if (count.ok() && *count) shown[EncodeStateKey(kCountId, key, "")] = absl::StrCat(**count);
    } else {
      const auto listed = backlog_->Scan(key, kAll, [&](const ListState::Entry& entry) {
        shown[EncodeStateKey(Oracle::kBacklogId, key, entry.identity)] = std::string(entry.value);
        return true;
      });
      const auto tried =
          attempts_->ForEach(key, "", kAll, [&](absl::string_view sub_key, const uint64_t& value) {
            shown[EncodeStateKey(kAttemptsId, key, sub_key)] = absl::StrCat(value);
            return true;
          });
      fault = listed.ok() ? tried.status() : listed.status();
    }
    if (!fault.ok()) return ctx_->Fail(fault);  // the store's
  }
  const std::set<uint16_t> states = index == 0
                                        ? std::set<uint16_t>{kCountId}
                                        : std::set<uint16_t>{Oracle::kBacklogId, kAttemptsId};
  at_.oracle->CheckRestored(index == 0 ? Oracle::kState : Oracle::kBacklog, tp_.partition,
                            ctx_->epoch(), shown, states, touched_, ctx_->clock().Wall());
}

void DeliveringFunction::OnRestored(TaskContext&, size_t index) {
  at_.oracle->Note(absl::StrCat("restored ", tp_.ToString(), " ", index));
  CheckRestored(index);
  if (index == 0) return;
  restored_ = true;
  touched_.clear();
  if (counted_as_restoring_) --*at_.restoring;
  counted_as_restoring_ = false;
  WakeEntries();
  if (at_.on_restored) at_.on_restored(tp_);
}

// What waits has a timer: it was made durable before the record was complete.
void DeliveringFunction::WakeEntries() {
  std::vector<std::string> unwoken;
  backlog_->ForEachKey([&](absl::string_view key, uint64_t) {
    if (!timers_->TimeOf(key, kRetry)) unwoken.emplace_back(key);
  });
  std::sort(unwoken.begin(), unwoken.end());
  const bool written = steps_.empty();
  for (const std::string& key : unwoken) {
    const auto scanned = backlog_->Scan(key, kAll, [&](const ListState::Entry& entry) {
      if (written && !put_.contains(OffsetOf(entry.identity))) {
        at_.oracle->CheckUnwoken(tp_, ctx_->epoch(), OffsetOf(entry.identity),
                                 EncodeStateKey(kTimersId, key, std::string(1, char{kRetry})));
      }
      return true;
    });
    if (!scanned.ok()) return ctx_->Fail(scanned.status());
    Try([this, key] { return timers_->Set(key, kRetry, at_.retry_delay); });
  }
}

void DeliveringFunction::OnInherited(TaskContext& ctx, std::vector<Operation> operations) {
  inherited_.Add(std::move(operations), ctx.clock());
  EndInherited();
}

void DeliveringFunction::EndInherited() {
  inherited_.TakeLapsed(ctx_->clock().Now());
  const auto next = inherited_.NextLapse();
  if (next) ctx_->SetTimer("", kRelease, *next);
  for (auto& [offset, item] : items_) {
    if (item.stage == Stage::kHeld && !Awaited(offset)) item.stage = Stage::kWaiting;
  }
  Pump();
}

void DeliveringFunction::OnResult(TaskContext&, const OperationResult& result) {
  at_.oracle->Note(absl::StrCat("result ", tp_.ToString(), " ", result.offsets.front()));
  inherited_.Remove(result.id);
  for (const int64_t offset : result.offsets) {
    const auto item = items_.find(offset);
    if (item != items_.end()) {
      if (item->second.stage != Stage::kWaiting && item->second.stage != Stage::kHeld) continue;
      if (result.outcome == "ok") {
        Deliver(offset, result.key);
      } else if (item->second.stage == Stage::kHeld) {
        item->second.stage = Stage::kWaiting;
      }
    } else if (result.outcome == "ok" && !working_.contains(offset)) {
      // It is complete already: it stands in the backlog, or is done.
      working_.insert(offset);
      Deliver(offset, result.key);
    }
  }
  Pump();
}

void DeliveringFunction::OnElement(TaskContext& ctx, const LogRecord& record) {
  at_.oracle->Element(tp_, record.offset);
  Item item;
  item.key = std::string(record.key);
  item.read_again = !at_end_;
  if (Awaited(record.offset)) item.stage = Stage::kHeld;
  // Its entry is being worked on: what comes of that completes the record too.
  const bool working = working_.contains(record.offset);
  if (working) item.stage = Stage::kBusy;
  const bool free = item.stage == Stage::kWaiting;
  const bool added = items_.emplace(record.offset, std::move(item)).second;
  POSTRIDER_CHECK(added);
  if (!working && removed_.contains(record.offset) && !put_.contains(record.offset)) {
    items_[record.offset].stage = Stage::kBusy;
    return Settle(record.offset, std::string(record.key), false);
  }
  if (free && at_.random->Below(1'000) < at_.park) return Park(record.offset);
  if (ctx.under_pressure()) return OnPressure(ctx);
  Pump();
}

void DeliveringFunction::OnTimer(TaskContext& ctx, absl::string_view, uint32_t tag, MonotonicTime) {
  if (tag == kAlarm) {
    std::vector<std::string> due;
    timers_->Fire(ctx.clock().Now(), 100, [&due](absl::string_view key, uint32_t, MonotonicTime) {
      due.emplace_back(key);
    });
    for (const std::string& key : due) Retry(key);
    return;
  }
  EndInherited();
}

void DeliveringFunction::OnPartitionEnd(TaskContext&, int64_t) {
  at_end_ = true;
  if (inherited_.empty()) return;
  inherited_.OnPartitionEnd();
  EndInherited();
}

void DeliveringFunction::OnRoom(TaskContext&) {
  RunSteps();
  Pump();
}

void DeliveringFunction::OnResume(TaskContext&) {
  draining_ = false;
  program_.requests().Resume(*this);
  Pump();
}

void DeliveringFunction::OnPressure(TaskContext&) {
  std::vector<int64_t> waiting;
  for (const auto& [offset, item] : items_) {
    if (item.stage == Stage::kWaiting) waiting.push_back(offset);
  }
  for (const int64_t offset : waiting) Park(offset);
}

void DeliveringFunction::OnHoles(TaskContext&, int64_t below) {
  std::vector<int64_t> waiting;
  for (const auto& [offset, item] : items_) {
    if (item.stage == Stage::kWaiting && offset < below) waiting.push_back(offset);
  }
  for (const int64_t offset : waiting) Park(offset);
}

void DeliveringFunction::OnDrain(TaskContext&, Drain) {
  at_.oracle->Note(absl::StrCat("drain ", tp_.ToString()));
  draining_ = true;
}

std::vector<Operation> DeliveringFunction::Operations() const {
  std::vector<Operation> operations = program_.requests().Operations(*this);
  for (Operation& operation : inherited_.All()) operations.push_back(std::move(operation));
  return operations;
}

void DeliveringFunction::OnGivenBack(TaskContext&) { program_.requests().GiveBack(*this); }

DeliveringProgram::Requests::Telling DeliveringFunction::Leave(const std::string&,
                                                               uint64_t number) {
  return [operation = flying_.at(number)](bool ok) {
    return OperationResult{operation.key, operation.id, operation.offsets, ok ? "ok" : "no"};
  };
}

void DeliveringFunction::Close(TaskContext&, CloseReason reason) {
  at_.oracle->Note(absl::StrCat("close ", tp_.ToString()));
  if (reason == CloseReason::kMoved) {
    program_.requests().Move(*this, tp_);
  } else {
    program_.requests().Abort(*this);
  }
  ctx_ = nullptr;
}

// ---- Sending ----

void DeliveringFunction::Pump() {
  while (!draining_ && in_flight() < kFlightsMax) {
    std::vector<int64_t> waiting;
    for (const auto& [offset, item] : items_) {
      if (item.stage == Stage::kWaiting) waiting.push_back(offset);
      if (waiting.size() >= 4) break;
    }
    if (waiting.empty() || !ctx_->MayAct()) return;
    const int64_t first = waiting[at_.random->Below(waiting.size())];
    std::vector<int64_t> offsets = {first};
    const std::string key = items_[first].key;
    for (const int64_t offset : waiting) {
      if (offset != first && items_[offset].key == key) offsets.push_back(offset);
    }
    std::sort(offsets.begin(), offsets.end());
    for (const int64_t offset : offsets) items_[offset].stage = Stage::kFlying;
    Begin(key, offsets, 0);
  }
}

void DeliveringFunction::Begin(const std::string& key, const std::vector<int64_t>& offsets,
                               int attempt) {
  for (const int64_t offset : offsets) {
    at_.oracle->Sent(tp_, ctx_->epoch(), offset, at_.lease());
  }
  Operation operation;
  operation.key = key;
  operation.id = IdOf(offsets);
  operation.offsets = offsets;
  operation.deadline = ctx_->clock().Wall() + at_.request_timeout;
  const uint64_t number = program_.requests().Begin(*this, key);
  flying_.emplace(number, std::move(operation));
  program_.Send(number, tp_.partition, offsets, attempt);
}

void DeliveringFunction::OnEnded(const std::string&, uint64_t number, bool ok) {
  const Operation operation = std::move(flying_.extract(number).mapped());
  if (at_.random->Below(1'000) < at_.fail_result) return ctx_->Fail(absl::InternalError("broken"));
  for (const int64_t offset : operation.offsets) {
    const auto item = items_.find(offset);
    if (item != items_.end()) {
      if (ok) {
        Deliver(offset, operation.key);
      } else {
        Park(offset);
      }
      continue;
    }
    POSTRIDER_CHECK(working_.contains(offset));
    if (ok) {
      Deliver(offset, operation.key);
      continue;
    }
    // The timer of its key is on.
    Try([this, offset, key = operation.key] {
      const auto tried = attempts_->Get(key, Name(offset));
      if (!tried.ok()) {
        ctx_->Fail(tried.status());
        return true;
      }
      Touch(kAttemptsId, key, Name(offset));
      if (!attempts_->Put(key, Name(offset), tried->value_or(0) + 1)) return false;
      GoOnWaiting(offset);
      return true;
    });
  }
  Pump();
}

// The receiver has it.
void DeliveringFunction::Deliver(int64_t offset, const std::string& key) {
  if (const auto item = items_.find(offset); item != items_.end())
    item->second.stage = Stage::kBusy;
  Settle(offset, key, true);
}

// Nothing is to be done any more: what is durable of it goes, then it is complete.
void DeliveringFunction::Settle(int64_t offset, const std::string& key, bool counted) {
  auto left = std::make_shared<int>(1);
  const auto done = [this, left, offset] {
    if (--*left == 0) Complete(offset);
  };
  if (counted) {
    ++*left;
    Try([this, key, done] {
      const auto count = counts_->Get(key);
      if (!count.ok()) {
        ctx_->Fail(count.status());
        return true;
      }
      Touch(kCountId, key, "");
      return counts_->Put(key, count->value_or(0) + 1, done);
    });
  }
  const auto item = items_.find(offset);
  const bool fresh = item != items_.end() && !item->second.read_again;
  if (!fresh) {
    *left += 2;
    Try([this, key, offset, done] {
      Touch(Oracle::kBacklogId, key, Name(offset));
      const absl::StatusOr<bool> taken = backlog_->Remove(key, Name(offset), done);
      if (!taken.ok()) {
        ctx_->Fail(taken.status());
        return true;
      }
      if (!*taken) return false;
      removed_.insert(offset);
      put_.erase(offset);
      working_.erase(offset);
      return true;
    });
    Try([this, key, offset, done] {
      Touch(kAttemptsId, key, Name(offset));
      return attempts_->Remove(key, Name(offset), done);
    });
  }
  done();
}

void DeliveringFunction::Complete(int64_t offset) {
  if (items_.erase(offset) == 0) return;
  at_.oracle->Completed(tp_, offset);
  for (size_t index = 0; index < 2; ++index) {
    StateBackend& backend = ctx_->state(index);
    if (reasserted_[index] || !restored_ || !backend.settled() || backend.pending() > 0) continue;
    reasserted_[index] = true;
    at_.oracle->CheckReasserted(index == 0 ? Oracle::kState : Oracle::kBacklog, tp_.partition,
                                ctx_->epoch());
  }
  ctx_->Complete(offset);
}

// Into the backlog, where it stands.
void DeliveringFunction::Park(int64_t offset) {
  Item& item = items_.at(offset);
  item.stage = Stage::kBusy;
  working_.erase(offset);
  auto left = std::make_shared<int>(2);
  const auto done = [this, left, offset] {
    if (--*left == 0) Complete(offset);
  };
  Try([this, key = item.key, offset, done] {
    Touch(Oracle::kBacklogId, key, Name(offset));
    const absl::StatusOr<ListState::Pushed> pushed =
        backlog_->Push(key, static_cast<uint64_t>(offset), Name(offset), kVersion, "v", done);
    if (!pushed.ok()) {
      ctx_->Fail(pushed.status());
      return true;
    }
    if (*pushed == ListState::Pushed::kNoRoom) return false;
    put_.insert(offset);
    if (*pushed == ListState::Pushed::kThere) {
      StateBackend::WriteDone again = done;
      if (!ctx_->state(1).WhenDurable(std::move(again))) done();
    }
    return true;
  });
  // Its key has a timer as long as it has entries.
  Try([this, key = item.key, done] {
    if (!timers_->TimeOf(key, kRetry)) {
      return timers_->Set(key, kRetry, at_.retry_delay, done);
    }
    StateBackend::WriteDone again = done;
    if (!ctx_->state(0).WhenDurable(std::move(again))) done();
    return true;
  });
}

// An entry that is tried again with the next timer of its key; its record may have been read
// meanwhile.
void DeliveringFunction::GoOnWaiting(int64_t offset) {
  working_.erase(offset);
  if (items_.contains(offset)) Park(offset);
}

// Given up.
void DeliveringFunction::Letter(int64_t offset, const std::string& key) {
  AppendRecord letter;
  letter.topic = Oracle::kLetters;
  letter.partition = tp_.partition;
  letter.key = Name(offset);
  letter.value = "given up";
  const bool taken =
      ctx_->Emit(std::move(letter), [this, offset, key](const absl::StatusOr<int64_t>& written) {
        if (written.ok()) return Settle(offset, key, false);
        GoOnWaiting(offset);
      });
  if (!taken) GoOnWaiting(offset);
}

// The timer of a key has fired.
void DeliveringFunction::Retry(const std::string& key) {
  struct Due {
    int64_t offset;
    uint64_t attempts;
  };
  // What is read before the end of a restore may be gone by a later record.
  if (!restored_) return Try([this, key] { return timers_->Set(key, kRetry, at_.retry_delay); });
  std::vector<Due> due;
  bool more = false;
  const auto scanned = backlog_->Scan(key, kAll, [&](const ListState::Entry& entry) {
    more = true;
    due.push_back({OffsetOf(entry.identity), 0});
    return true;
  });
  if (!scanned.ok()) return ctx_->Fail(scanned.status());
  for (Due& one : due) {
    if (draining_ || in_flight() >= kFlightsMax || !ctx_->MayAct()) break;
    if (items_.contains(one.offset) || working_.contains(one.offset) || Awaited(one.offset)) {
      continue;
    }
    const auto attempts = attempts_->Get(key, Name(one.offset));
    if (!attempts.ok()) return ctx_->Fail(attempts.status());
    at_.oracle->BacklogSent(tp_, ctx_->epoch(), one.offset, BacklogIdentity(key, one.offset),
                            put_.contains(one.offset), removed_.contains(one.offset));
    working_.insert(one.offset);
    if (attempts->value_or(0) >= static_cast<uint64_t>(at_.attempts_max)) {
      Letter(one.offset, key);
    } else {
      Begin(key, {one.offset}, static_cast<int>(attempts->value_or(0)) + 1);
    }
  }
  // An entry whose removal is not durable may come back: its timer must stay.
  if (more || ctx_->state(1).pending() > 0 || !steps_.empty()) {
    Try([this, key] { return timers_->Set(key, kRetry, at_.retry_delay); });
  } else {
    Try([this, key] { return timers_->Acknowledge(key, kRetry); });
  }
}

// ---- Writes ----

void DeliveringFunction::Try(Step step) {
  steps_.push_back(std::move(step));
  RunSteps();
}

void DeliveringFunction::RunSteps() {
  if (running_steps_) return;
  running_steps_ = true;
  while (!steps_.empty()) {
    const Step step = steps_.front();
    if (!step()) break;
    steps_.pop_front();
  }
  running_steps_ = false;
}

}  // namespace postrider::simulation
