#include "delivery/backlog.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/log.h"

namespace postrider::delivery {
namespace {

// Entries of others that reading back one batch steps over before it looks for the next member.
constexpr int kStepOverMax = 64;
// Values that one call looks at for orphans.
constexpr ScanLimits kOrphanLimits{500, 1 << 20};
// A scan's bounds are its visitor's.
constexpr ScanLimits kUnlimited{~size_t{0}, ~size_t{0} / 2};

StateDescriptor Descriptor(uint16_t id, const char* name) {
  StateDescriptor descriptor;
  descriptor.id = id;
  descriptor.name = name;
  return descriptor;
}

absl::optional<IdBytes> DigestOf(absl::string_view identity) {
  IdBytes digest{};
  if (identity.size() != digest.size()) return absl::nullopt;
  std::copy_n(identity.begin(), digest.size(), digest.begin());
  return digest;
}

}  // namespace

Backlog::Backlog(TaskContext& ctx, DeliveryMetrics& metrics, Events events)
    : ctx_(ctx),
      metrics_(metrics),
      events_(std::move(events)),
      has_backlog_(ctx.state(kEndpointChangelog), ctx.clock(),
                   Descriptor(kHasBacklogState, "has_backlog"), HasBacklogSerializer()),
      entries_(ctx.state(kBacklogChangelog), ctx.clock(), Descriptor(kBacklogState, "backlog"),
               kEntryVersion),
      batches_(ctx.state(kBacklogChangelog), ctx.clock(), Descriptor(kBatchesState, "batches"),
               BatchMembersSerializer()),
      attempts_(ctx.state(kBacklogChangelog), ctx.clock(), Descriptor(kAttemptsState, "attempts"),
                BatchAttemptsSerializer()) {}

Backlog::~Backlog() {
  metrics_.backlog_messages.Add(-static_cast<double>(messages_));
  metrics_.backlog_bytes.Add(-static_cast<double>(bytes_));
}

void Backlog::Account() {
  const auto difference = [](uint64_t now, uint64_t before) {
    return static_cast<double>(static_cast<int64_t>(now - before));
  };
  const uint64_t messages = entries_.size();
  const uint64_t bytes = entries_.bytes();
  if (messages != messages_) metrics_.backlog_messages.Add(difference(messages, messages_));
  if (bytes != bytes_) metrics_.backlog_bytes.Add(difference(bytes, bytes_));
  messages_ = messages;
  bytes_ = bytes;
}

void Backlog::Fail(absl::Status why) {
  POSTRIDER_LOG(kError, "the backlog's state has failed",
                {"partition", ctx_.partition().ToString()}, {"why", why.message()});
  ctx_.Fail(std::move(why));
}

void Backlog::OnRestored(size_t changelog) {
  if (changelog != kBacklogChangelog) return;
  restored_ = true;
  inherited_ = entries_.size() > 0;
  Account();
}

bool Backlog::OnRoom() {
  while (!deferred_.empty()) {
    if (!deferred_.front()()) return false;
    deferred_.pop_front();
  }
  return true;
}

void Backlog::Do(Write write) {
  if (deferred_.empty() && write()) return;
  deferred_.push_back(std::move(write));
}

Backlog::Flag Backlog::ReadFlag(absl::string_view key) {
  const absl::StatusOr<absl::optional<bool>> flag = has_backlog_.Get(key);
  if (!flag.ok()) {
    Fail(flag.status());
    return Flag::kNone;
  }
  return flag->value_or(false) ? Flag::kSet : Flag::kNone;
}

bool Backlog::EnsureFlag(const std::string& key, Flag& flag) {
  if (flag != Flag::kNone) return flag == Flag::kSet;
  if (!deferred_.empty()) return false;
  if (has_backlog_.Put(key, true, [this, key] { events_.flagged(key); })) flag = Flag::kSetting;
  return false;
}

void Backlog::WhenDurable(std::function<void()> done) {
  // What waits in line is not written.
  if (!deferred_.empty()) {
    return Do([this, done = std::move(done)] {
      if (!ctx_.state(kBacklogChangelog).WhenDurable([done] { done(); })) done();
      return true;
    });
  }
  if (!ctx_.state(kBacklogChangelog).WhenDurable([done] { done(); })) done();
}

void Backlog::ClearFlagWhenEmpty(const std::string& key, std::function<bool()> still_set) {
  if (entries_.size(key) > 0) return;
  WhenDurable([this, key, still_set = std::move(still_set)] {
    // Called when `key` may have entries again, or was cleared by another removal meanwhile.
    if (entries_.size(key) > 0 || !still_set()) return;
    Do([this, key] { return has_backlog_.Clear(key); });
  });
}

bool Backlog::Push(absl::string_view key, uint64_t order, const IdBytes& digest,
                   absl::string_view encoded) {
  if (!deferred_.empty()) return false;
  const auto offset = static_cast<int64_t>(order);
  const absl::StatusOr<ListState::Pushed> pushed =
      entries_.Push(key, order, DigestBytes(digest), kEntryVersion, encoded,
                    [this, offset] { events_.parked(offset); });
  if (!pushed.ok()) {
    Fail(pushed.status());
    return false;
  }
  switch (*pushed) {
    case ListState::Pushed::kNoRoom:
      return false;
    case ListState::Pushed::kThere:
      WhenDurable([this, offset] { events_.parked(offset); });
      return true;
    case ListState::Pushed::kTaken:
      Account();
      return true;
  }
  return false;
}

bool Backlog::Remove(absl::string_view key, const IdBytes& digest,
                     const absl::optional<ListState::Place>& place) {
  if (deferred_.empty() && RemoveNow(key, digest, place)) return true;
  deferred_.push_back([this, key = std::string(key), digest] {
    if (!RemoveNow(key, digest, absl::nullopt)) return false;
    events_.removed(key, digest);
    return true;
  });
  return false;
}

bool Backlog::RemoveNow(absl::string_view key, const IdBytes& digest,
                        const absl::optional<ListState::Place>& place) {
  const absl::StatusOr<bool> removed = place ? entries_.Remove(key, DigestBytes(digest), *place)
                                             : entries_.Remove(key, DigestBytes(digest));
  if (!removed.ok()) {
    Fail(removed.status());
    return true;
  }
  Account();
  return *removed;
}

bool Backlog::Has(absl::string_view key, uint64_t order, const IdBytes& digest) {
  if (entries_.size(key) == 0) return false;
  const absl::StatusOr<absl::optional<uint64_t>> place = entries_.OrderOf(key, DigestBytes(digest));
  if (!place.ok()) {
    Fail(place.status());
    return false;
  }
  return *place == order;
}

absl::optional<size_t> Backlog::Load(absl::string_view key, std::vector<Message>& messages,
                                     std::vector<Damaged>& damaged) {
  size_t next = 0;
  absl::Status fault;
  const auto skip_loaded = [&] {
    while (next < messages.size() && messages[next].content != nullptr) ++next;
    return next < messages.size();
  };
  // The members of a batch lie near each other: one scan reads on while they do.
  while (skip_loaded()) {
    int stepped_over = 0;
    bool found = false;
    const absl::StatusOr<ScanEnd> end = entries_.Scan(
        key, messages[next].order, DigestBytes(messages[next].digest), kUnlimited,
        [&](const ListState::Entry& entry) {
          // Members that are passed by are not there.
          while (skip_loaded() && messages[next].order < entry.order) ++next;
          if (!skip_loaded()) return false;
          Message& message = messages[next];
          if (message.order != entry.order || entry.identity != DigestBytes(message.digest)) {
            return ++stepped_over <= kStepOverMax;
          }
          found = true;
          absl::StatusOr<std::unique_ptr<MessageContent>> content = MakeMessageContent(entry.value);
          if (content.ok()) {
            message.event_time = (*content)->record.event_time;
            message.dispatch_time = (*content)->record.dispatch_time;
            message.content = *std::move(content);
            message.place = entry.place;
          } else if (absl::IsUnimplemented(content.status())) {
            fault = content.status();
            return false;
          } else {
            damaged.push_back(Damaged{entry.order, message.digest, std::string(entry.value)});
          }
          ++next;
          return skip_loaded();
        });
    if (!end.ok()) fault = end.status();
    if (!fault.ok()) {
      Fail(std::move(fault));
      return absl::nullopt;
    }
    // Nothing of it is there, nor of what comes before the next one's place.
    if (!found && stepped_over <= kStepOverMax) ++next;
  }
  const size_t before = messages.size();
  messages.erase(std::remove_if(messages.begin(), messages.end(),
                                [](const Message& message) { return message.content == nullptr; }),
                 messages.end());
  return before - messages.size();
}

bool Backlog::Scan(
    absl::string_view key, uint64_t from,
    absl::FunctionRef<bool(uint64_t, const IdBytes&, absl::string_view, const ListState::Place&)>
        visit) {
  const absl::StatusOr<ScanEnd> end =
      entries_.Scan(key, from, absl::string_view(), kUnlimited, [&](const ListState::Entry& entry) {
        const absl::optional<IdBytes> digest = DigestOf(entry.identity);
        return !digest || visit(entry.order, *digest, entry.value, entry.place);
      });
  if (!end.ok()) {
    Fail(end.status());
    return false;
  }
  return *end == ScanEnd::kRangeEnd;
}

bool Backlog::Scan(absl::string_view key, uint64_t from,
                   absl::FunctionRef<bool(uint64_t, const IdBytes&, absl::string_view)> visit) {
  return Scan(key, from,
              [&](uint64_t order, const IdBytes& digest, absl::string_view encoded,
                  const ListState::Place&) { return visit(order, digest, encoded); });
}

bool Backlog::PutBatch(absl::string_view key, const IdBytes& batch,
                       const std::vector<BatchMember>& members) {
  return deferred_.empty() && batches_.Put(key, DigestBytes(batch), members);
}

void Backlog::PutAttempts(absl::string_view key, const IdBytes& batch,
                          const BatchAttempts& attempts) {
  Do([this, key = std::string(key), batch, attempts] {
    return attempts_.Put(key, DigestBytes(batch), attempts);
  });
}

void Backlog::RemoveBatch(absl::string_view key, const IdBytes& batch) {
  Do([this, key = std::string(key), batch] { return attempts_.Remove(key, DigestBytes(batch)); });
  Do([this, key = std::string(key), batch] { return batches_.Remove(key, DigestBytes(batch)); });
}

std::vector<Backlog::StoredBatch> Backlog::Batches(absl::string_view key, std::string& from,
                                                   size_t batches_max) {
  std::vector<StoredBatch> stored;
  const std::string first = std::exchange(from, {});
  absl::StatusOr<ScanEnd> end =
      batches_.ForEach(key, first, kUnlimited,
                       [&](absl::string_view batch, const std::vector<BatchMember>& members) {
                         if (stored.size() == batches_max) {
                           from = std::string(batch);
                           return false;
                         }
                         const absl::optional<IdBytes> batch_key = DigestOf(batch);
                         if (batch_key) stored.push_back(StoredBatch{*batch_key, members, {}});
                         return true;
                       });
  if (!end.ok()) Fail(end.status());
  for (StoredBatch& batch : stored) {
    absl::StatusOr<absl::optional<BatchAttempts>> attempts =
        attempts_.Get(key, DigestBytes(batch.key));
    if (attempts.ok()) {
      batch.attempts = *std::move(attempts);
    } else {
      Fail(attempts.status());
    }
  }
  return stored;
}

absl::optional<std::vector<BatchMember>> Backlog::Members(absl::string_view key,
                                                          const IdBytes& batch) {
  absl::StatusOr<absl::optional<std::vector<BatchMember>>> members =
      batches_.Get(key, DigestBytes(batch));
  if (!members.ok()) {
    Fail(members.status());
    return absl::nullopt;
  }
  return std::move(*members).value_or(std::vector<BatchMember>());
}

bool Backlog::RemoveOrphans(absl::FunctionRef<bool(absl::string_view key)> in_use,
                            std::string& after) {
  if (!deferred_.empty()) return false;
  std::vector<std::string> keys;
  const auto look = [&](auto& state, std::string& last) -> absl::StatusOr<ScanEnd> {
    return state.ForEachKey(after, kOrphanLimits, [&](absl::string_view key) {
      last = std::string(key);
      if (entries_.size(key) == 0 && !in_use(key)) keys.push_back(last);
      return true;
    });
  };
  std::string last_batches;
  std::string last_attempts;
  const absl::StatusOr<ScanEnd> batches = look(batches_, last_batches);
  const absl::StatusOr<ScanEnd> attempts = look(attempts_, last_attempts);
  if (!batches.ok() || !attempts.ok()) {
    Fail(batches.ok() ? attempts.status() : batches.status());
    return true;
  }
  // Both have been looked through up to where the one ended that came less far.
  absl::optional<std::string> until;
  if (*batches == ScanEnd::kLimit) until = last_batches;
  if (*attempts == ScanEnd::kLimit) until = std::min(until.value_or(last_attempts), last_attempts);
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  for (const std::string& key : keys) {
    if (!until || key <= *until) RemoveRecords(key);
  }
  after = until.value_or(std::string());
  return !until;
}

void Backlog::RemoveRecords(const std::string& key) {
  std::vector<IdBytes> batches;
  const auto note = [&batches](absl::string_view batch) {
    if (const absl::optional<IdBytes> id = DigestOf(batch)) batches.push_back(*id);
    return true;
  };
  absl::StatusOr<ScanEnd> end = batches_.ForEach(
      key, {}, kUnlimited,
      [&](absl::string_view batch, const std::vector<BatchMember>&) { return note(batch); });
  if (end.ok()) {
    end = attempts_.ForEach(
        key, {}, kUnlimited,
        [&](absl::string_view batch, const BatchAttempts&) { return note(batch); });
  }
  if (!end.ok()) return Fail(end.status());
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  for (const IdBytes& batch : batches) RemoveBatch(key, batch);
}

std::vector<std::string> Backlog::Keys() const {
  std::vector<std::string> keys;
  entries_.ForEachKey([&](absl::string_view key, uint64_t) { keys.emplace_back(key); });
  return keys;
}

}  // namespace postrider::delivery
