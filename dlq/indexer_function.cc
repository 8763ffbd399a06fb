#include "dlq/indexer_function.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/postgres/copy.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"

namespace postrider::dlq {
namespace {

constexpr uint32_t kTimer = 1;

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
constexpr char kEnsureDays[] =
    "SELECT postrider.ensure_letter_days(min(postrider.letter_day(id)),"
    " max(postrider.letter_day(id))) FROM incoming_letters HAVING count(*) > 0";
constexpr char kInsert[] =
    "INSERT INTO postrider.dead_letters (day, id, customer_id, endpoint_id, message_id, event_id,"
    " type, tenant, department, event_time, reason, attempts, last_status, last_outcome, data,"
    " created_at)"
    " SELECT postrider.letter_day(id), id, customer_id, endpoint_id, message_id, event_id, type,"
    " tenant, department, event_time, reason, attempts, last_status, last_outcome, data,"
    " created_at FROM incoming_letters ON CONFLICT DO NOTHING";
constexpr char kFirstOffset[] =
    "INSERT INTO postrider.indexer_offsets (topic, partition, next_offset)"
    " VALUES ($1, $2::int, $3::bigint) ON CONFLICT DO NOTHING";
constexpr char kNextOffset[] =
    "UPDATE postrider.indexer_offsets SET next_offset = $3::bigint, updated_at = now()"
    " WHERE topic = $1 AND partition = $2::int AND next_offset = $4::bigint";

// The batch will never be stored as it is, however often it is tried.
bool IsPoison(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return true;
    default:
      return false;
  }
}

// Another writer has moved the offset.
bool IsDisplaced(const absl::Status& status) {
  return status.code() == absl::StatusCode::kAlreadyExists;
}

}  // namespace

IndexerMetrics::IndexerMetrics(Metrics& metrics)
    : letters(metrics.AddCounter("postrider_dlq_letters_indexed_total",
                                 "Dead letters written to Postgres.")),
      undecodable(metrics.AddCounter("postrider_dlq_letters_undecodable_total",
                                     "Records of the dead-letters topic that are no letters.")),
      refused(metrics.AddCounter("postrider_dlq_letters_refused_total",
                                 "Letters that Postgres will not take.")),
      failures(metrics.AddCounter("postrider_dlq_write_failures_total",
                                  "Transactions that failed and were tried again.")),
      displaced(metrics.AddCounter("postrider_dlq_displaced_total",
                                   "Transactions given up as another indexer was there first.")),
      batch_letters(metrics.AddHistogram("postrider_dlq_batch_letters",
                                         "Letters per transaction.",
                                         {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000})),
      oldest_seconds(metrics.AddGauge("postrider_dlq_oldest_unwritten_seconds",
                                      "Age of the oldest letter that waits for Postgres.")) {}

IndexerFunction::IndexerFunction(Pool& pool, IndexerMetrics& metrics, const IndexerLimits& limits)
    : pool_(pool),
      metrics_(metrics),
      limits_(limits),
      letters_max_(limits.letters_max),
      self_(std::make_shared<IndexerFunction*>(this)) {}

absl::Status IndexerFunction::Open(TaskContext& ctx) {
  ctx_ = &ctx;
  ReadOffset();
  return absl::OkStatus();
}

void IndexerFunction::ReadOffset() {
  phase_ = Phase::kReadingOffset;
  Transaction::Run(pool_, {},
                   {Statement{"SELECT next_offset FROM postrider.indexer_offsets"
                              " WHERE topic = $1 AND partition = $2::int",
                              {SqlParam(ctx_->partition().topic),
                               SqlParam::Int(ctx_->partition().partition)}}},
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
    stored_ = reader.Int("next_offset");
    if (!reader.status().ok()) return RetryLater(reader.status());
  }
  offset_known_ = true;
  retry_delay_ = Duration::zero();
  phase_ = Phase::kIdle;
  if (stored_) CompleteBelow(*stored_);
  MaybeWrite();
}

void IndexerFunction::CompleteBelow(int64_t offset) {
  while (!entries_.empty() && entries_.front().offset < offset) {
    bytes_ -= entries_.front().bytes;
    ctx_->Complete(entries_.front().offset);
    entries_.pop_front();
  }
}

void IndexerFunction::OnElement(TaskContext& ctx, const LogRecord& record) {
  if (offset_known_ && stored_ && record.offset < *stored_) {
    ctx.Complete(record.offset);
    return;
  }
  Entry entry;
  entry.offset = record.offset;
  entry.bytes = record.bytes();
  entry.read_at = record.timestamp;
  absl::StatusOr<DeadLetterRecord> letter = DecodeDeadLetter(record.value);
  if (letter.ok()) {
    entry.letter = *std::move(letter);
  } else {
    metrics_.undecodable.Increment();
    POSTRIDER_LOG(kError, "undecodable dead letter", {"partition", ctx.partition().ToString()},
                  {"offset", record.offset});
  }
  bytes_ += entry.bytes;
  entries_.push_back(std::move(entry));
  if (entries_.size() == 1) {
    ctx.SetTimer("", kTimer, ctx.clock().Now() + limits_.wait_max);
  }
  if (entries_.size() >= limits_.letters_max || bytes_ >= limits_.bytes_max) MaybeWrite();
}

void IndexerFunction::OnTimer(TaskContext&, absl::string_view, uint32_t, MonotonicTime) {
  if (phase_ == Phase::kWaiting) {
    if (!offset_known_) return ReadOffset();
    phase_ = Phase::kIdle;
  }
  MaybeWrite();
}

void IndexerFunction::OnResume(TaskContext&) {
  draining_ = false;
  MaybeWrite();
}

void IndexerFunction::OnDrain(TaskContext&, Drain kind) {
  if (kind == Drain::kShutdown) return MaybeWrite();
  draining_ = true;
}

void IndexerFunction::MaybeWrite() {
  metrics_.oldest_seconds.Set(
      entries_.empty() ? 0
                       : std::chrono::duration<double>(ctx_->clock().Wall() -
                                                       entries_.front().read_at)
                             .count());
  if (phase_ != Phase::kIdle || entries_.empty() || draining_ || !ctx_->MayAct()) return;
  size_t count = 0;
  size_t bytes = 0;
  while (count < entries_.size() && count < letters_max_ &&
         (count == 0 || bytes + entries_[count].bytes <= limits_.bytes_max)) {
    bytes += entries_[count].bytes;
    ++count;
  }
  StartWrite(count);
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
    rows.Time(letter.event_time)
        .Text(DeadReasonName(letter.reason))
        .Int(letter.attempts)
        .Int(letter.last_status)
        .Text(letter.last_outcome)
        .Bytes(letter.data)
        .Time(letter.given_up_at);
    rows.EndRow();
  }
  return rows.Take();
}

// One transaction's course, kept alive by its callbacks.
struct IndexerFunction::Write : std::enable_shared_from_this<IndexerFunction::Write> {
  std::weak_ptr<IndexerFunction*> function;
  std::string rows;
  std::string topic;
  int64_t partition = 0;
  absl::optional<int64_t> expected;
  int64_t next = 0;
  size_t entries = 0;
  std::unique_ptr<Transaction> tx;

  void Run(Transaction transaction) {
    tx = std::make_unique<Transaction>(std::move(transaction));
    const auto self = shared_from_this();
    const auto next_step = [self](absl::StatusOr<QueryResult> result) { self->Note(result); };
    if (!rows.empty()) {
      tx->Query({kIncomingTable, {}}, next_step);
      tx->CopyIn(kCopy, std::move(rows), next_step);
      tx->Query({kEnsureDays, {}}, next_step);
      tx->Query({kInsert, {}}, next_step);
    }
    Statement offset{kFirstOffset,
                     {SqlParam(topic), SqlParam::Int(partition), SqlParam::Int(next)}};
    if (expected) {
      offset.sql = kNextOffset;
      offset.params.push_back(SqlParam::Int(*expected));
    }
    tx->Query(std::move(offset), [self](absl::StatusOr<QueryResult> result) {
      self->Note(result);
      if (self->status.ok() && result->affected() != 1) {
        self->status = absl::AlreadyExistsError("dlq: another indexer has moved the offset");
      }
      if (!self->status.ok()) return self->End(self->status);
      self->tx->Commit([self](absl::Status committed) { self->End(std::move(committed)); });
    });
  }
  // Keeps the first failure, which is the cause of the later ones.
  void Note(const absl::StatusOr<QueryResult>& result) {
    if (status.ok() && !result.ok()) status = result.status();
  }
  void End(absl::Status result) {
    tx.reset();
    if (const auto alive = function.lock(); alive != nullptr) {
      (*alive)->OnWritten(entries, next, std::move(result));
    }
  }
  absl::Status status;
};

void IndexerFunction::StartWrite(size_t entries) {
  phase_ = Phase::kWriting;
  auto write = std::make_shared<Write>();
  write->function = self_;
  write->rows = CopyText(entries);
  write->topic = ctx_->partition().topic;
  write->partition = ctx_->partition().partition;
  write->expected = stored_;
  write->next = entries_[entries - 1].offset + 1;
  write->entries = entries;
  Transaction::Begin(pool_, {}, [write](absl::StatusOr<Transaction> tx) {
    if (!tx.ok()) return write->End(tx.status());
    write->Run(*std::move(tx));
  });
}

void IndexerFunction::OnWritten(size_t entries, int64_t next, absl::Status status) {
  phase_ = Phase::kIdle;
  if (status.ok()) {
    stored_ = next;
    retry_delay_ = Duration::zero();
    letters_max_ = std::min(limits_.letters_max, letters_max_ * 2);
    metrics_.letters.Add(static_cast<double>(entries));
    metrics_.batch_letters.Observe(static_cast<double>(entries));
    CompleteBelow(next);
    return MaybeWrite();
  }
  if (IsDisplaced(status)) {
    metrics_.displaced.Increment();
    offset_known_ = false;
    return ReadOffset();
  }
  if (IsPoison(status)) {
    if (entries > 1) {
      letters_max_ = entries / 2;
    } else {
      // It alone is left: its place in the offsets is kept, itself is not.
      metrics_.refused.Increment();
      POSTRIDER_LOG(kError, "dead letter refused by postgres",
                    {"partition", ctx_->partition().ToString()},
                    {"offset", entries_.front().offset}, {"why", status.message()});
      if (!entries_.front().letter) return RetryLater(status);  // not the letter's fault
      entries_.front().letter.reset();
    }
    return MaybeWrite();
  }
  // Whether a broken commit took effect is unknown: the stored offset tells.
  offset_known_ = false;
  RetryLater(status);
}

void IndexerFunction::RetryLater(const absl::Status& why) {
  metrics_.failures.Increment();
  POSTRIDER_LOG(kWarn, "letters wait for postgres", {"partition", ctx_->partition().ToString()},
                {"why", why.message()});
  phase_ = Phase::kWaiting;
  retry_delay_ = retry_delay_ == Duration::zero()
                     ? limits_.retry_first
                     : std::min(limits_.retry_most, retry_delay_ * 2);
  ctx_->SetTimer("", kTimer, ctx_->clock().Now() + retry_delay_);
}

void IndexerFunction::Close(TaskContext&) {
  self_.reset();
  ctx_ = nullptr;
}

}  // namespace postrider::dlq
