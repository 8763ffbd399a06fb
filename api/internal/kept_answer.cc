#include "api/internal/kept_answer.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/crypto/digest.h"
#include "core/crypto/sealed_box.h"
#include "core/json/json.h"
#include "subscriptions/registry/ids.h"

namespace postrider::api {
namespace {

using subscriptions::CustomerId;

constexpr absl::string_view kTable = "postrider.idempotency_keys";
constexpr absl::string_view kThisRow = "owner = $1 AND route = $2 AND key_sha256 = $3::bytea";

std::string Interval(std::chrono::seconds length) {
  return absl::StrCat("interval '", length.count(), " seconds'");
}

std::vector<SqlParam> RowParams(const IdempotencyKey& key) {
  return {key.owner, key.route, SqlParam::Bytes(DigestView(key.key))};
}

int64_t LockOf(const IdempotencyKey& key) {
  const Sha256Digest digest = Sha256({key.owner, absl::string_view("\0", 1), key.route,
                                      absl::string_view("\0", 1), DigestView(key.key)});
  int64_t lock = 0;
  std::memcpy(&lock, digest.data(), sizeof(lock));
  return lock;
}

// A customer's own, whatever it says; of an operator's the customer whose data it shows. An answer
// without a body shows none.
SqlParam CustomerParam(const IdempotencyKey& key, const Response& answer) {
  absl::optional<CustomerId> customer = key.customer;
  if (customer && key.owner == customer->ToUuid()) return SqlParam::Uuid(customer->bytes());
  if (answer.body.empty()) return SqlParam::Null();
  const absl::StatusOr<JsonValue> document =
      JsonValue::Parse(answer.body, JsonLimits{.bytes_max = kKeptBytesMax});
  for (const absl::string_view name : {"customer_id", "id"}) {
    if (customer || !document.ok()) break;
    const JsonValue* id = document->Find(name);
    if (id != nullptr && id->is_string()) customer = CustomerId::Parse(*id->string());
  }
  return customer ? SqlParam::Uuid(customer->bytes()) : SqlParam::Null();
}

// Takes the row's place when there is none, or one whose time is over.
Statement Insert(const IdempotencyKey& key, SqlParam customer, SqlParam sealed) {
  std::vector<SqlParam> params = RowParams(key);
  params.push_back(std::move(customer));
  params.push_back(std::move(sealed));
  return {absl::StrCat("INSERT INTO ", kTable,
                       " AS k (owner, route, key_sha256, customer_id, answer_sealed) VALUES ($1, "
                       "$2, $3::bytea, $4::uuid, $5::bytea) ON CONFLICT (owner, route, key_sha256) "
                       "DO UPDATE SET customer_id = excluded.customer_id, answer_sealed = "
                       "excluded.answer_sealed, created_at = now() WHERE k.created_at <= now() - ",
                       Interval(kAnswersKept),
                       " OR (k.answer_sealed IS NULL AND k.created_at <= now() - ",
                       Interval(kClaimLasts), ")"),
          std::move(params)};
}

std::string RowName(const KeptPlace& place) {
  return absl::StrCat(place.owner, " ", place.route, " ", absl::BytesToHexString(place.key_sha256));
}

SealContext ContextOf(const KeptPlace& place, absl::string_view row) {
  return {
      .table = "idempotency_keys", .column = "answer_sealed", .row = row, .customer = place.owner};
}

KeptPlace PlaceOf(const IdempotencyKey& key) {
  return {key.owner, key.route, std::string(DigestView(key.key))};
}

std::string Seal(const KeptPlace& place, const KeyRing& keys, absl::string_view plain) {
  const std::string row = RowName(place);
  return keys.Seal(plain, ContextOf(place, row));
}

absl::StatusOr<std::string> Open(const KeptPlace& place, const KeyRing& keys,
                                 absl::string_view sealed) {
  const std::string row = RowName(place);
  return keys.Open(sealed, ContextOf(place, row));
}

absl::StatusOr<Kept> ReadDocument(const IdempotencyKey& key, absl::string_view text) {
  // A body's quotation marks are escaped.
  const absl::StatusOr<JsonValue> document =
      JsonValue::Parse(text, JsonLimits{.bytes_max = 8 * kKeptBytesMax});
  const absl::Status fault = absl::DataLossError("api: a kept answer is not one");
  if (!document.ok()) return fault;
  const JsonValue* request = document->Find("request");
  const JsonValue* status = document->Find("status");
  const JsonValue* type = document->Find("type");
  const JsonValue* body = document->Find("body");
  const JsonValue* headers = document->Find("headers");
  if (request == nullptr || !request->is_string() || status == nullptr || !status->integer() ||
      type == nullptr || !type->is_string() || body == nullptr || !body->is_string() ||
      headers == nullptr || !headers->is_object()) {
    return fault;
  }
  Kept kept;
  if (*request->string() != HexDigest(key.request)) {
    kept.state = Kept::State::kOther;
    return kept;
  }
  kept.state = Kept::State::kDone;
  kept.answer.status = static_cast<int>(*status->integer());
  kept.answer.content_type = *type->string();
  kept.answer.body = *body->string();
  for (const JsonMember& header : *headers->object()) {
    if (!header.value.is_string()) return fault;
    kept.answer.headers.emplace_back(header.name, *header.value.string());
  }
  kept.answer.headers.emplace_back("idempotency-replayed", "true");
  return kept;
}

}  // namespace

Statement LookUpKept(const IdempotencyKey& key) {
  std::vector<SqlParam> params = RowParams(key);
  params.push_back(SqlParam::Int(LockOf(key)));
  return {absl::StrCat(
              "WITH k AS MATERIALIZED (SELECT answer_sealed, answer_sealed IS NULL AND created_at "
              "> now() - ",
              Interval(kClaimLasts), " AS running FROM ", kTable, " WHERE ", kThisRow,
              " AND created_at > now() - ", Interval(kAnswersKept),
              ") SELECT k.answer_sealed, CASE WHEN k.answer_sealed IS NOT NULL THEN 'done' WHEN "
              "k.running THEN 'running' WHEN (SELECT count(*) FROM (SELECT 1 FROM ",
              kTable, " WHERE owner = $1 LIMIT ", kKeptMost, ") AS own) >= ", kKeptMost,
              " THEN 'full' WHEN pg_try_advisory_xact_lock($4::bigint) THEN 'free' "
              "ELSE 'running' END AS state FROM (SELECT 1) AS one LEFT JOIN k ON true"),
          std::move(params)};
}

absl::StatusOr<Kept> ReadKept(const IdempotencyKey& key, const KeyRing& keys,
                              const QueryResult& result) {
  if (result.rows() != 1) return absl::InternalError("api: a kept answer is not one row");
  RowReader row(result, 0);
  const std::string state = row.Text("state");
  const absl::optional<std::string> sealed = row.OptionalBytes("answer_sealed");
  RETURN_IF_ERROR(row.status());
  Kept kept;
  if (state == "running") {
    kept.state = Kept::State::kRunning;
  } else if (state == "full") {
    kept.state = Kept::State::kFull;
  } else if (state == "done" && sealed) {
    absl::StatusOr<Kept> opened = OpenAnswer(key, keys, *sealed);
    if (opened.ok()) return opened;
    POSTRIDER_LOG(kWarn, "a kept answer cannot be opened", {"route", key.route},
                  {"why", opened.status().message()});
    kept.state = Kept::State::kUnreadable;
  }
  return kept;
}

absl::StatusOr<Statement> KeepAnswer(const IdempotencyKey& key, const KeyRing& keys,
                                     const Response& answer) {
  ASSIGN_OR_RETURN(const std::string sealed, SealAnswer(key, keys, answer));
  return Insert(key, CustomerParam(key, answer), SqlParam::Bytes(sealed));
}

Statement ClaimKey(const IdempotencyKey& key) {
  return Insert(key, key.customer ? SqlParam::Uuid(key.customer->bytes()) : SqlParam::Null(),
                SqlParam::Null());
}

absl::StatusOr<Statement> FinishAnswer(const IdempotencyKey& key, const KeyRing& keys,
                                       const Response& answer) {
  ASSIGN_OR_RETURN(const std::string sealed, SealAnswer(key, keys, answer));
  std::vector<SqlParam> params = RowParams(key);
  params.push_back(CustomerParam(key, answer));
  params.push_back(SqlParam::Bytes(sealed));
  return Statement{
      absl::StrCat("UPDATE ", kTable, " SET customer_id = $4::uuid, answer_sealed = $5::bytea ",
                   "WHERE ", kThisRow, " AND answer_sealed IS NULL"),
      std::move(params)};
}

Statement ReleaseKey(const IdempotencyKey& key) {
  return {absl::StrCat("UPDATE ", kTable, " SET created_at = 'epoch' WHERE ", kThisRow,
                       " AND answer_sealed IS NULL"),
          RowParams(key)};
}

absl::StatusOr<std::string> SealAnswer(const IdempotencyKey& key, const KeyRing& keys,
                                       const Response& answer) {
  if (answer.body.size() > kKeptBytesMax) {
    return absl::InternalError(absl::StrCat("api: an answer to ", key.route, " has ",
                                            answer.body.size(), " bytes, too many to be kept"));
  }
  JsonValue headers = JsonValue::MakeObject();
  for (const auto& [name, value] : answer.headers) headers.Set(name, value);
  const std::string plain = JsonValue::MakeObject({{"request", HexDigest(key.request)},
                                                   {"status", answer.status},
                                                   {"type", answer.content_type},
                                                   {"headers", std::move(headers)},
                                                   {"body", answer.body}})
                                .Serialize();
  return Seal(PlaceOf(key), keys, plain);
}

absl::StatusOr<Kept> OpenAnswer(const IdempotencyKey& key, const KeyRing& keys,
                                absl::string_view sealed) {
  ASSIGN_OR_RETURN(const std::string plain, Open(PlaceOf(key), keys, sealed));
  return ReadDocument(key, plain);
}

absl::StatusOr<std::string> SealAnew(const KeptPlace& place, const KeyRing& keys,
                                     absl::string_view sealed) {
  ASSIGN_OR_RETURN(const std::string plain, Open(place, keys, sealed));
  return Seal(place, keys, plain);
}

}  // namespace postrider::api
