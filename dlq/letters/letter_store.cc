#include "dlq/letters/letter_store.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/crypto/digest.h"
#include "core/crypto/random.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"

namespace postrider::dlq {
namespace {

using subscriptions::CustomerId;
using subscriptions::EndpointId;
using subscriptions::LetterId;

constexpr size_t kReceiptBytes = 16;

// A lease that has run out is open again, whatever the row says.
constexpr char kStateSql[] =
    "CASE WHEN l.state = 'leased' AND l.available_at <= now() THEN 'open' ELSE l.state END";

std::string Columns() {
  return absl::StrCat(
      "l.id, l.endpoint_id, l.message_id, l.event_id, l.type, l.tenant, l.department, "
      "postrider.millis(l.event_time) AS event_time, l.reason, l.attempts, l.last_status, "
      "l.last_outcome, l.data, l.closed_as, postrider.millis(l.available_at) AS available_at, "
      "postrider.millis(l.created_at) AS created_at, ",
      kStateSql, " AS state");
}

// What may be seen: the customer's own, granted now, within the retention. $1 is the customer, $2
// the retention in hours. The bound on `day`, which is that of the message's dispatch, only leaves
// out old partitions: a week wider than the retention, for a message that was given up long after;
// days that never get a partition (a clock was wrong) lie together and are looked at too.
constexpr char kVisible[] =
    "l.customer_id = $1::uuid"
    " AND (l.day >= (now() AT TIME ZONE 'UTC')::date - ($2::int / 24 + 8)"
    " OR l.day < (now() AT TIME ZONE 'UTC')::date - 60)"
    " AND l.created_at > now() - make_interval(hours => $2::int)"
    " AND EXISTS (SELECT 1 FROM postrider.grants g WHERE g.customer_id = l.customer_id"
    " AND g.tenant = l.tenant AND g.deleted_at IS NULL)";

std::vector<SqlParam> BaseParams(CustomerId customer) {
  return {SqlParam::Uuid(customer.bytes()), SqlParam::Int(kLetterRetention.count())};
}

absl::StatusOr<Letter> ReadLetter(const QueryResult& result, size_t row) {
  RowReader reader(result, row);
  Letter letter;
  letter.id = LetterId(reader.Uuid("id"));
  letter.endpoint = EndpointId(reader.Uuid("endpoint_id"));
  letter.message_id = reader.Text("message_id");
  letter.event_id = reader.Bytes("event_id");
  letter.type = reader.Text("type");
  letter.tenant = reader.Text("tenant");
  letter.department = reader.OptionalBytes("department");
  letter.event_time = reader.Time("event_time");
  letter.reason = reader.Text("reason");
  letter.attempts = reader.Int("attempts");
  letter.last_status = reader.Int("last_status");
  letter.last_outcome = reader.Text("last_outcome");
  letter.data = reader.Bytes("data");
  letter.closed_as = reader.OptionalText("closed_as");
  letter.available_at = reader.Time("available_at");
  letter.created_at = reader.Time("created_at");
  const absl::optional<LetterState> state = ParseLetterState(reader.Text("state"));
  if (!reader.status().ok()) return reader.status();
  if (!state) return absl::DataLossError("dlq: a letter is in a state that is not known");
  letter.state = *state;
  return letter;
}

absl::StatusOr<std::vector<Letter>> ReadLetters(const QueryResult& result) {
  std::vector<Letter> letters;
  letters.reserve(result.rows());
  for (size_t row = 0; row < result.rows(); ++row) {
    absl::StatusOr<Letter> letter = ReadLetter(result, row);
    if (!letter.ok()) return letter.status();
    letters.push_back(*std::move(letter));
  }
  return letters;
}

std::string ReceiptHash(absl::string_view receipt_bytes) {
  return std::string(DigestView(Sha256(receipt_bytes)));
}

// The hash of a receipt as the customer gives it; of something that no lease has when it is not
// even of the form.
std::string HashOfReceiptText(absl::string_view text) {
  if (text.size() != 2 * kReceiptBytes) return std::string();
  for (const char c : text) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return std::string();
  }
  return ReceiptHash(absl::HexStringToBytes(text));
}

// Runs an UPDATE of the leased letter $3 whose receipt has hash $4, and when it touched nothing
// tells a letter that is not there from a lease that is not.
void UpdateLeased(Transaction& tx, CustomerId customer, LetterId id, absl::string_view receipt,
                  std::string set, std::vector<SqlParam> extra, LettersDone<WallTime> done) {
  std::vector<SqlParam> params = BaseParams(customer);
  params.push_back(SqlParam::Uuid(id.bytes()));
  params.push_back(SqlParam::Bytes(HashOfReceiptText(receipt)));
  for (SqlParam& param : extra) params.push_back(std::move(param));
  // One statement: `seen` reads before the update takes effect.
  Statement statement{
      absl::StrCat("WITH seen AS (SELECT l.day, l.id FROM postrider.dead_letters l WHERE "
                   "l.day = postrider.letter_day($3::uuid) AND l.id = $3::uuid AND ",
                   kVisible, "), done AS (UPDATE postrider.dead_letters u SET updated_at = now(), ",
                   set,
                   " FROM seen WHERE u.day = postrider.letter_day($3::uuid) AND u.id = $3::uuid"
                   " AND u.customer_id = $1::uuid AND u.state = 'leased'"
                   " AND u.available_at > now() AND u.receipt_sha256 = $4::bytea"
                   " RETURNING postrider.millis(u.available_at) AS available_at)"
                   " SELECT (SELECT count(*) FROM seen) AS seen,"
                   " (SELECT count(*) FROM done) AS done,"
                   " (SELECT available_at FROM done) AS available_at"),
      std::move(params)};
  tx.Query(
      std::move(statement), [done = std::move(done)](absl::StatusOr<QueryResult> result) mutable {
        if (!result.ok()) return std::move(done)(result.status());
        RowReader reader(*result, 0);
        const int64_t seen = reader.Int("seen");
        const int64_t changed = reader.Int("done");
        const absl::optional<WallTime> available = reader.OptionalTime("available_at");
        if (!reader.status().ok()) return std::move(done)(reader.status());
        if (seen == 0) return std::move(done)(absl::NotFoundError("dlq: there is no such letter"));
        if (changed == 0 || !available) {
          return std::move(done)(absl::AbortedError(
              "the receipt is not that of the letter's present lease, or the lease has run out"));
        }
        std::move(done)(*available);
      });
}

LettersDone<WallTime> IgnoreTime(LetterDone done) {
  return [done = std::move(done)](absl::StatusOr<WallTime> result) mutable {
    std::move(done)(result.status());
  };
}

}  // namespace

absl::string_view LetterStateName(LetterState state) {
  switch (state) {
    case LetterState::kOpen:
      return "open";
    case LetterState::kLeased:
      return "leased";
    case LetterState::kReplaying:
      return "replaying";
    case LetterState::kClosed:
      return "closed";
  }
  return "unknown";
}

absl::optional<LetterState> ParseLetterState(absl::string_view name) {
  for (const LetterState state :
       {LetterState::kOpen, LetterState::kLeased, LetterState::kReplaying, LetterState::kClosed}) {
    if (name == LetterStateName(state)) return state;
  }
  return absl::nullopt;
}

void ListLetters(Transaction& tx, CustomerId customer, const LetterFilter& filter, size_t limit,
                 LettersDone<std::vector<Letter>> done) {
  std::vector<SqlParam> params = BaseParams(customer);
  params.push_back(SqlParam::Int(static_cast<int64_t>(limit)));
  // The sizes are known without reading the data.
  std::string sql = absl::StrCat(
      "WITH page AS (SELECT l.day, l.id, octet_length(l.data) AS bytes"
      " FROM postrider.dead_letters l WHERE ",
      kVisible);
  if (filter.endpoint) {
    params.push_back(SqlParam::Uuid(filter.endpoint->bytes()));
    absl::StrAppend(&sql, " AND l.endpoint_id = $", params.size(), "::uuid");
  }
  if (filter.state) {
    params.push_back(SqlParam(LetterStateName(*filter.state)));
    absl::StrAppend(&sql, " AND ", kStateSql, " = $", params.size());
  }
  if (filter.before) {
    params.push_back(SqlParam::Uuid(filter.before->bytes()));
    absl::StrAppend(&sql, " AND l.id < $", params.size(),
                    "::uuid AND l.day <= postrider.letter_day($", params.size(), "::uuid)");
  }
  params.push_back(SqlParam::Int(kLetterPageBytesMax));
  absl::StrAppend(&sql,
                  " ORDER BY l.id DESC LIMIT $3::bigint), sized AS (SELECT day, id,"
                  " sum(bytes) OVER (ORDER BY id DESC) - bytes AS bytes_before FROM page)"
                  " SELECT ",
                  Columns(),
                  " FROM sized s JOIN postrider.dead_letters l ON l.day = s.day AND l.id = s.id"
                  " WHERE l.customer_id = $1::uuid AND s.bytes_before < $",
                  params.size(), "::bigint ORDER BY l.id DESC");
  tx.Query({std::move(sql), std::move(params)},
           [done = std::move(done)](absl::StatusOr<QueryResult> result) mutable {
             if (!result.ok()) return std::move(done)(result.status());
             std::move(done)(ReadLetters(*result));
           });
}

bool MoreMayFollow(const std::vector<Letter>& page, size_t limit) {
  size_t bytes = 0;
  for (const Letter& letter : page) bytes += letter.data.size();
  return page.size() >= limit || bytes >= static_cast<size_t>(kLetterPageBytesMax);
}

void GetLetter(Transaction& tx, CustomerId customer, LetterId id, LettersDone<Letter> done) {
  std::vector<SqlParam> params = BaseParams(customer);
  params.push_back(SqlParam::Uuid(id.bytes()));
  tx.Query({absl::StrCat("SELECT ", Columns(),
                         " FROM postrider.dead_letters l WHERE l.day = "
                         "postrider.letter_day($3::uuid) AND l.id = $3::uuid AND ",
                         kVisible),
            std::move(params)},
           [done = std::move(done)](absl::StatusOr<QueryResult> result) mutable {
             if (!result.ok()) return std::move(done)(result.status());
             if (result->rows() == 0) {
               return std::move(done)(absl::NotFoundError("dlq: there is no such letter"));
             }
             std::move(done)(ReadLetter(*result, 0));
           });
}

void PollLetters(Transaction& tx, CustomerId customer, absl::optional<EndpointId> endpoint,
                 size_t limit, std::chrono::seconds lease,
                 LettersDone<std::vector<LeasedLetter>> done) {
  // The order is that of the index dead_letters_to_poll, which has no closed letters: by id, a poll
  // would walk over all that were ever acknowledged. One secret per letter, drawn here so that only
  // hashes are stored.
  auto receipts = std::make_shared<std::vector<std::string>>();
  std::vector<std::string> hashes;
  for (size_t i = 0; i < limit; ++i) {
    std::string bytes(kReceiptBytes, '\0');
    FillRandom(bytes.data(), bytes.size());
    hashes.push_back(absl::BytesToHexString(ReceiptHash(bytes)));
    receipts->push_back(absl::BytesToHexString(bytes));
  }
  std::vector<SqlParam> params = BaseParams(customer);
  params.push_back(SqlParam::Int(static_cast<int64_t>(limit)));
  params.push_back(SqlParam::Int(lease.count()));
  params.push_back(SqlParam::TextArray(hashes));
  params.push_back(SqlParam::Int(kLetterPageBytesMax));
  std::string only;
  if (endpoint) {
    params.push_back(SqlParam::Uuid(endpoint->bytes()));
    only = " AND l.endpoint_id = $7::uuid";
  }
  Statement statement{
      absl::StrCat(
          "WITH due AS (SELECT l.day, l.id, l.available_at, octet_length(l.data) AS bytes FROM "
          "postrider.dead_letters l WHERE ",
          kVisible, only,
          " AND l.state IN ('open', 'leased') AND l.available_at <= now()"
          " ORDER BY l.available_at, l.id LIMIT $3::bigint FOR UPDATE OF l SKIP LOCKED),"
          " numbered AS (SELECT day, id,"
          " row_number() OVER (ORDER BY available_at, id) AS number,"
          " sum(bytes) OVER (ORDER BY available_at, id) - bytes AS bytes_before FROM due)"
          " UPDATE postrider.dead_letters l SET state = 'leased', leases = l.leases + 1,"
          " available_at = now() + make_interval(secs => $4::bigint), updated_at = now(),"
          " receipt_sha256 = decode(($5::text[])[n.number], 'hex')"
          " FROM numbered n WHERE l.day = n.day AND l.id = n.id AND l.customer_id = $1::uuid"
          " AND n.bytes_before < $6::bigint"
          " RETURNING n.number, ",
          Columns()),
      std::move(params)};
  tx.Query(std::move(statement), [receipts, done = std::move(done)](
                                     absl::StatusOr<QueryResult> result) mutable {
    if (!result.ok()) return std::move(done)(result.status());
    std::vector<LeasedLetter> leased(result->rows());
    for (size_t row = 0; row < result->rows(); ++row) {
      const int64_t number = RowReader(*result, row).Int("number");
      absl::StatusOr<Letter> letter = ReadLetter(*result, row);
      if (!letter.ok()) return std::move(done)(letter.status());
      if (number < 1 || static_cast<size_t>(number) > leased.size()) {
        return std::move(done)(absl::InternalError("dlq: a poll numbered its letters wrongly"));
      }
      const auto index = static_cast<size_t>(number - 1);
      leased[index] = {*std::move(letter), (*receipts)[index]};
    }
    std::move(done)(std::move(leased));
  });
}

void AckLetter(Transaction& tx, CustomerId customer, LetterId id, absl::string_view receipt,
               LetterDone done) {
  UpdateLeased(tx, customer, id, receipt,
               "state = 'closed', closed_as = 'acked', receipt_sha256 = NULL", {},
               IgnoreTime(std::move(done)));
}

void NackLetter(Transaction& tx, CustomerId customer, LetterId id, absl::string_view receipt,
                std::chrono::seconds delay, LetterDone done) {
  UpdateLeased(tx, customer, id, receipt,
               "state = 'open', receipt_sha256 = NULL, available_at = now() + "
               "make_interval(secs => $5::bigint)",
               {SqlParam::Int(delay.count())}, IgnoreTime(std::move(done)));
}

void ExtendLease(Transaction& tx, CustomerId customer, LetterId id, absl::string_view receipt,
                 std::chrono::seconds lease, LettersDone<WallTime> done) {
  UpdateLeased(tx, customer, id, receipt,
               "available_at = now() + make_interval(secs => $5::bigint)",
               {SqlParam::Int(lease.count())}, std::move(done));
}

}  // namespace postrider::dlq
