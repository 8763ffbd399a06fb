#include "dlq/indexer_function.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/postgres/copy.h"
#include "core/postgres/statement.h"
#include "core/postgres/transaction.h"
#include "core/stream/rejected_record.h"
#include "dlq/write_course.h"

namespace postrider::dlq {
namespace {

constexpr uint32_t kFillTimer = 1;
constexpr uint32_t kRetryTimer = 2;

constexpr char kIncomingTable[] =
    "CREATE TEMPORARY TABLE IF NOT EXISTS incoming_letters ("
    "id uuid, customer_id uuid, endpoint_id uuid, message_id text, event_id bytea, type text,"
    " tenant text, department bytea, event_time timestamptz, reason text, attempts integer,"
    " last_status integer, last_outcome text, data bytea, created_at timestamptz)"
    " ON COMMIT DELETE ROWS";
constexpr char kCopy[] =
    "COPY incoming_letters (id, customer_id, endpoint_id, message_id, event_id, type, tenant,"
    " department, event_time, reason, attempts, last_status, last_outcome, data, created_at)"
    " FROM STDIN";
// Day by day: one letter from long ago must not bring partitions for all days since.
constexpr char kEnsureDays[] =
    "SELECT postrider.ensure_letter_days(day, day) FROM"
    " (SELECT DISTINCT postrider.letter_day(id) AS day FROM incoming_letters ORDER BY 1) AS days";
// An erasure looks for letters that come late for a day only: those that come later still, for
// their topic waited, are not taken. A letter's id begins with the ms of its dispatch. One
// condition per kind of wish, so that each is a hash join.
constexpr char kInsert[] =
    "INSERT INTO postrider.dead_letters (day, id, customer_id, endpoint_id, message_id, event_id,"
    " type, tenant, department, event_time, reason, attempts, last_status, last_outcome, data,"
    " created_at)"
    " SELECT postrider.letter_day(id), id, customer_id, endpoint_id, message_id, event_id, type,"
    " tenant, department, event_time, reason, attempts, last_status, last_outcome, data,"
    " created_at FROM incoming_letters i"
    " WHERE NOT EXISTS (SELECT 1 FROM postrider.erasures e WHERE e.event_id = i.event_id"
    " AND (e.tenant IS NULL OR e.tenant = i.tenant)"
    " AND (e.customer_id IS NULL OR e.customer_id = i.customer_id)"
    " AND left(replace(i.id::text, '-', ''), 12)"
    " <= lpad(to_hex(postrider.millis(e.created_at)), 12, '0'))"
    " AND NOT EXISTS (SELECT 1 FROM postrider.erasures e WHERE e.tenant = i.tenant"
    " AND e.event_id IS NULL AND (e.customer_id IS NULL OR e.customer_id = i.customer_id)"
    " AND left(replace(i.id::text, '-', ''), 12)"
    " <= lpad(to_hex(postrider.millis(e.created_at)), 12, '0'))"
    " AND NOT EXISTS (SELECT 1 FROM postrider.erasures e WHERE e.customer_id = i.customer_id"
    " AND e.event_id IS NULL AND e.tenant IS NULL AND left(replace(i.id::text, '-', ''), 12)"
    " <= lpad(to_hex(postrider.millis(e.created_at)), 12, '0'))"
    " ON CONFLICT DO NOTHING";
constexpr char kFirstOffset[] =
    "INSERT INTO postrider.indexer_offsets (topic, partition, next_offset)"
    " VALUES ($1, $2::int, $3::bigint) ON CONFLICT DO NOTHING";
constexpr char kNextOffset[] =
    "UPDATE postrider.indexer_offsets SET next_offset = $3::bigint, updated_at = now()"
    " WHERE topic = $1 AND partition = $2::int AND next_offset = $4::bigint";

}  // namespace

IndexerMetrics::IndexerMetrics(Metrics& metrics)
    : letters(metrics.AddCounter("postrider_dlq_letters_indexed_total",
                                 "Dead letters written to Postgres.")),
      undecodable(metrics.AddCounter("postrider_dlq_letters_undecodable_total",
                                     "Records of the dead-letters topic that are no letters; they "
                                     "are in the rejected topic.")),
      refused(metrics.AddCounter("postrider_dlq_letters_refused_total",
                                 "Letters that Postgres will not take; they are in the rejected "
                                 "topic.")),
      missing(metrics.AddCounter("postrider_dlq_offsets_missing_total",
                                 "Offsets after the stored one that the log did not give: the "
                                 "database went back in time, or the log was trimmed.")),
      recovered(metrics.AddCounter("postrider_dlq_letters_recovered_total",
                                   "New letters at offsets below the stored one: the log had lost "
                                   "its end, or was put back from an older copy.")),
      failures(metrics.AddCounter("postrider_dlq_write_failures_total",
                                  "Transactions that failed and were tried again.")),
      displaced(metrics.AddCounter("postrider_dlq_displaced_total",
                                   "Transactions given up as another indexer was there first.")),
      batch_letters(metrics.AddHistogram("postrider_dlq_batch_letters", "Letters per transaction.",
                                         {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000})),
      metrics_(metrics) {}

Gauge& IndexerMetrics::OldestSeconds(int32_t partition) {
  return metrics_.AddGauge("postrider_dlq_oldest_unwritten_seconds",
                           "Age of the oldest letter of a partition that waits for Postgres.",
                           {{"partition", std::to_string(partition)}});
}

IndexerFunction::IndexerFunction(Pool& pool, IndexerMetrics& metrics, const IndexerLimits& limits,
                                 std::string rejected_topic)
    : pool_(pool),
      metrics_(metrics),
      limits_(limits),
      rejected_topic_(std::move(rejected_topic)),
      letters_max_(limits.letters_max),
      self_(std::make_shared<IndexerFunction*>(this)) {}

absl::Status IndexerFunction::Open(TaskContext& ctx) {
  ctx_ = &ctx;
  oldest_seconds_ = &metrics_.OldestSeconds(ctx.partition().partition);
  stored_as_ = absl::StrCat(ctx.partition().topic, "@", ctx.incarnation_ms());
  ReadOffset();
  return absl::OkStatus();
}

void IndexerFunction::ReadOffset() {
  phase_ = Phase::kReadingOffset;
  offset_known_ = false;
  Transaction::Run(pool_, {},
                   {Statement{"SELECT next_offset FROM postrider.indexer_offsets"
                              " WHERE topic = $1 AND partition = $2::int",
                              {SqlParam(stored_as_), SqlParam::Int(ctx_->partition().partition)}}},
                   [self = std::weak_ptr<IndexerFunction*>(self_)](
                       absl::StatusOr<std::vector<QueryResult>> results) {
                     const auto function = self.lock();
                     if (function == nullptr) return;
                     if (!results.ok()) return (*function)->OnOffset(results.status());
                     (*function)->OnOffset(std::move(results->front()));
                   });
}

void IndexerFunction::OnOffset(absl::StatusOr<QueryResult> result) {
  if (!result.ok()) return RetryLater(result.status());
  stored_.reset();
  if (result->rows() > 0) {
    RowReader reader(*result, 0);
    const int64_t stored = reader.Int("next_offset");
    if (!reader.status().ok()) return RetryLater(reader.status());
    stored_ = stored;
  }
  offset_known_ = true;
  retry_delay_ = Duration::zero();
  phase_ = Phase::kIdle;
  MaybeWrite();
}

void IndexerFunction::CompleteFirst(size_t entries) {
  for (size_t i = 0; i < entries; ++i) {
    bytes_ -= entries_.front().bytes;
    ctx_->Complete(entries_.front().offset);
    entries_.pop_front();
  }
}

void IndexerFunction::OnElement(TaskContext& ctx, const LogRecord& record) {
  Entry& entry = entries_.emplace_back();
  entry.offset = record.offset;
  entry.bytes = record.bytes();
  entry.appended_at = record.timestamp;
  bytes_ += entry.bytes;
  absl::StatusOr<DeadLetterRecord> letter = DecodeDeadLetter(record.value);
  if (letter.ok()) {
    entry.letter = *std::move(letter);
  } else {
    metrics_.undecodable.Increment();
    Reject(entry, "undecodable_dead_letter", std::string(record.key), record.value);
  }
  if (entries_.size() == 1) {
    ctx.SetTimer("", kFillTimer, ctx.clock().Now() + limits_.wait_max);
    NoteOldest();
  }
  if (entries_.size() >= limits_.letters_max || bytes_ >= limits_.bytes_max) MaybeWrite();
}

void IndexerFunction::OnTimer(TaskContext&, absl::string_view, uint32_t tag, MonotonicTime) {
  if (tag == kRetryTimer && phase_ == Phase::kWaiting) {
    NoteOldest();
    if (!offset_known_) return ReadOffset();
    phase_ = Phase::kIdle;
  }
  MaybeWrite();
}

void IndexerFunction::OnRoom(TaskContext&) { DrainRejections(); }

void IndexerFunction::OnResume(TaskContext&) {
  draining_ = false;
  MaybeWrite();
}

void IndexerFunction::OnDrain(TaskContext&, Drain kind) {
  if (kind == Drain::kShutdown) return MaybeWrite();
  draining_ = true;
}

void IndexerFunction::Reject(Entry& entry, absl::string_view reason, std::string key,
                             absl::string_view value) {
  POSTRIDER_LOG(kError, "dead letter rejected", {"partition", ctx_->partition().ToString()},
                {"offset", entry.offset}, {"reason", reason});
  entry.letter.reset();
  entry.rejecting = true;
  Rejection rejection;
  rejection.reason = reason;
  rejection.source = ctx_->partition();
  rejection.offset = entry.offset;
  rejection.timestamp = entry.appended_at;
  rejection.rejected_at = ctx_->clock().Wall();
  rejection.key = std::move(key);
  rejection.value = value;
  rejections_.push_back({entry.offset, MakeRejectedRecord(rejected_topic_, std::move(rejection))});
  if (rejections_.size() == 1) DrainRejections();
}

void IndexerFunction::DrainRejections() {
  while (!rejections_.empty()) {
    LogProducer::AppendDone done =
        [this, offset = rejections_.front().offset](absl::StatusOr<int64_t> appended) {
          if (!appended.ok()) return ctx_->Fail(std::move(appended).status());
          const auto entry = std::lower_bound(
              entries_.begin(), entries_.end(), offset,
              [](const Entry& candidate, int64_t wanted) { return candidate.offset < wanted; });
          // Another indexer may have passed it meanwhile.
          if (entry == entries_.end() || entry->offset != offset) return;
          entry->rejecting = false;
          MaybeWrite();
        };
    if (!ctx_->Emit(std::move(rejections_.front().record), std::move(done))) return;
    rejections_.pop_front();
  }
}

void IndexerFunction::NoteOldest() {
  double seconds = 0;
  if (!entries_.empty()) {
    const auto age = ctx_->clock().Wall() - entries_.front().appended_at;
    seconds = std::max(0.0, std::chrono::duration<double>(age).count());
  }
  oldest_seconds_->Set(seconds);
}

void IndexerFunction::MaybeWrite() {
  NoteOldest();
  if (phase_ != Phase::kIdle || entries_.empty() || draining_ || !ctx_->MayAct()) return;
  size_t count = 0;
  size_t bytes = 0;
  // What lies below the stored offset is written by itself, so that it can be told what was new.
  const int64_t stored = stored_.value_or(0);
  const bool below = entries_.front().offset < stored;
  // The offset may not move past a record that is still on its way to the rejected topic.
  while (count < entries_.size() && count < letters_max_ && !entries_[count].rejecting &&
         (entries_[count].offset < stored) == below &&
         (count == 0 || bytes + entries_[count].bytes <= limits_.bytes_max)) {
    bytes += entries_[count].bytes;
    ++count;
  }
  if (count > 0) StartWrite(count);
}

size_t IndexerFunction::Letters(size_t entries) const {
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(entries),
                    [](const Entry& entry) { return entry.letter.has_value(); }));
}

std::string IndexerFunction::CopyText(size_t entries) const {
  CopyRows rows;
  for (size_t i = 0; i < entries; ++i) {
    if (!entries_[i].letter) continue;
    const DeadLetterRecord& letter = *entries_[i].letter;
    rows.Uuid(letter.letter.bytes())
        .Uuid(letter.customer.bytes())
        .Uuid(letter.endpoint.bytes())
        .Text(letter.message_id)
        .Bytes(letter.event_id)
        .Text(letter.type)
        .Text(letter.tenant);
    if (letter.department) {
      rows.Bytes(*letter.department);
    } else {
      rows.Null();
    }
    rows.Time(Storable(letter.event_time))
        .Text(DeadReasonName(letter.reason))
        .Int(letter.attempts)
        .Int(letter.last_status)
        .Text(letter.last_outcome)
        .Bytes(letter.data)
        .Time(Storable(letter.given_up_at));
    rows.EndRow();
  }
  return rows.Take();
}

struct IndexerFunction::Write final : WriteCourse {
  std::weak_ptr<IndexerFunction*> function;
  std::string rows;
  std::string stored_as;
  int64_t partition = 0;
  absl::optional<int64_t> expected;
  int64_t first = 0;
  int64_t next = 0;
  size_t entries = 0;
  size_t letters = 0;
  int64_t inserted = 0;
  bool below_stored = false;
  bool displaced = false;

 private:
  void Run() override {
    if (!rows.empty()) {
      Query({kIncomingTable, {}});
      CopyIn(kCopy, std::move(rows));
      Query({kEnsureDays, {}});
      Query({kInsert, {}}, [this](const QueryResult& result) { inserted = result.affected(); });
    }
    Statement offset{kFirstOffset,
                     {SqlParam(stored_as), SqlParam::Int(partition), SqlParam::Int(next)}};
    if (expected) {
      offset.sql = kNextOffset;
      offset.params.push_back(SqlParam::Int(*expected));
    }
    Finish(std::move(offset), [this](const QueryResult& result) {
      displaced = result.affected() != 1;
      return displaced ? absl::AbortedError("dlq: another indexer has moved the offset")
                       : absl::OkStatus();
    });
  }
  void OnEnd(const absl::Status& result) override {
    if (const auto alive = function.lock(); alive != nullptr) (*alive)->OnWritten(*this, result);
  }
};

void IndexerFunction::StartWrite(size_t entries) {
  const int64_t first = entries_.front().offset;
  if (stored_ && first > *stored_ && missing_above_ != stored_) {
    missing_above_ = stored_;
    metrics_.missing.Add(static_cast<double>(first - *stored_));
    POSTRIDER_LOG(kError, "letters are missing between the stored offset and the log",
                  {"partition", ctx_->partition().ToString()}, {"stored", *stored_},
                  {"read", first});
  }
  phase_ = Phase::kWriting;
  auto write = std::make_shared<Write>();
  write->function = self_;
  write->rows = CopyText(entries);
  write->stored_as = stored_as_;
  write->partition = ctx_->partition().partition;
  write->expected = stored_;
  write->first = first;
  // Below the stored offset are letters that Postgres has, and those of a log that has lost its
  // end, or was put back from an older copy: their ids tell, and the offset never goes back.
  write->below_stored = stored_ && first < *stored_;
  write->next = std::max(stored_.value_or(0), entries_[entries - 1].offset + 1);
  write->entries = entries;
  write->letters = Letters(entries);
  write->Begin(pool_);
}

void IndexerFunction::OnWritten(const Write& write, const absl::Status& status) {
  phase_ = Phase::kIdle;
  if (status.ok()) {
    stored_ = write.next;
    retry_delay_ = Duration::zero();
    letters_max_ = std::min(limits_.letters_max, letters_max_ * 2);
    metrics_.letters.Add(static_cast<double>(write.inserted));
    if (write.letters > 0) metrics_.batch_letters.Observe(static_cast<double>(write.letters));
    if (write.below_stored) NoteRecovered(write);
    CompleteFirst(write.entries);
    return MaybeWrite();
  }
  if (write.displaced) {
    metrics_.displaced.Increment();
    return ReadOffset();
  }
  if (IsPoison(status)) return TakeApart(write, status);
  // What is too much for one statement's time may not be in smaller parts.
  if (absl::IsDeadlineExceeded(status)) letters_max_ = std::max<size_t>(1, write.entries / 2);
  // Whether a broken commit took effect is unknown: the stored offset tells.
  offset_known_ = false;
  RetryLater(status);
}

void IndexerFunction::NoteRecovered(const Write& write) {
  if (write.inserted == 0) return;
  metrics_.recovered.Add(static_cast<double>(write.inserted));
  POSTRIDER_LOG(kError, "letters below the stored offset were new: the log has lost its end",
                {"partition", ctx_->partition().ToString()}, {"stored", *write.expected},
                {"read", write.first}, {"letters", write.inserted});
}

// Halves the batch until the letter stands alone that Postgres refuses.
void IndexerFunction::TakeApart(const Write& write, const absl::Status& why) {
  if (write.letters == 0) return RetryLater(why);  // not a letter's fault
  if (write.entries > 1) {
    letters_max_ = write.entries / 2;
    return MaybeWrite();
  }
  metrics_.refused.Increment();
  Entry& entry = entries_.front();
  POSTRIDER_LOG(kError, "postgres refuses a letter", {"partition", ctx_->partition().ToString()},
                {"offset", entry.offset}, {"why", why.message()});
  // The decoder takes only what Encode gives: this is the record's value, byte for byte.
  const std::string value = EncodeDeadLetter(*entry.letter);
  std::string key(entry.letter->customer.view());
  Reject(entry, "refused_by_postgres", std::move(key), value);
  MaybeWrite();
}

void IndexerFunction::RetryLater(const absl::Status& why) {
  NoteOldest();
  metrics_.failures.Increment();
  POSTRIDER_LOG(kWarn, "letters wait for postgres", {"partition", ctx_->partition().ToString()},
                {"why", why.message()});
  phase_ = Phase::kWaiting;
  retry_delay_ = retry_delay_ == Duration::zero() ? limits_.retry_first
                                                  : std::min(limits_.retry_most, retry_delay_ * 2);
  ctx_->SetTimer("", kRetryTimer, ctx_->clock().Now() + retry_delay_);
}

void IndexerFunction::Close(TaskContext&, CloseReason) {
  oldest_seconds_->Set(0);
  self_.reset();
  ctx_ = nullptr;
}

}  // namespace postrider::dlq
