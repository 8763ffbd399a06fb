#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "api/request.h"
#include "core/crypto/key_ring.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"

namespace postrider::api {

// Answers to requests with an Idempotency-Key, in postrider.idempotency_keys: the statements of one
// request, which its Call runs in the request's own transaction.
//
// What a request does, and that it was done, are one transaction: LookUpKept() comes first, then
// the request's work, then KeepAnswer() and the commit. So a crash, a lost connection or a refusal
// at any point leaves both or neither. Who comes meanwhile is kept out by an advisory lock of the
// transaction, which is tried and never waited for: many repeats at once take no connections from
// others. It goes with the transaction, also when the process dies; a commit that still runs in
// the server holds it. The lock is only what makes the answer a quick 409: if another transaction
// was kept after this one had looked, KeepAnswer() changes no row and nothing of this one is done.
//
// Work that Postgres has no part in (a test message) cannot be in the transaction: ClaimKey() is
// committed before it, FinishAnswer() or ReleaseKey() after it. When the process dies in between,
// nobody knows what was done: the key answers 409 for kClaimLasts, then the request is done,
// perhaps again.
//
// Threads: any.
// Bounds:  kKeptBytesMax an answer, kKeptMost answers an owner; past it a new key is refused (429).
inline constexpr std::chrono::hours kAnswersKept{24};
// Longer than any request takes.
inline constexpr std::chrono::minutes kClaimLasts{2};
// Of an answer's body; none of those that are kept comes near it.
inline constexpr size_t kKeptBytesMax = 4 << 20;
// Of one owner, beside what is under way. Old ones count until they are purged.
inline constexpr int64_t kKeptMost = 100'000;

Statement LookUpKept(const IdempotencyKey& key);
struct Kept {
  enum class State {
    kFree,        // the request may go on: the key is its own until the transaction's end
    kRunning,     // another one is under way
    kFull,        // the owner has kKeptMost already
    kDone,        // `answer`
    kOther,       // it was used for another request
    kUnreadable,  // it was done, but no master key opens the answer
  };
  State state = State::kFree;
  Response answer;
};
// Of LookUpKept()'s row.
absl::StatusOr<Kept> ReadKept(const IdempotencyKey& key, const KeyRing& keys,
                              const QueryResult& result);

// Touches one row; none when another one was quicker. Internal: the body is past the bound.
absl::StatusOr<Statement> KeepAnswer(const IdempotencyKey& key, const KeyRing& keys,
                                     const Response& answer);

// The same for the claim.
Statement ClaimKey(const IdempotencyKey& key);
absl::StatusOr<Statement> FinishAnswer(const IdempotencyKey& key, const KeyRing& keys,
                                       const Response& answer);
Statement ReleaseKey(const IdempotencyKey& key);

// What stands in the column. Open: DataLoss or NotFound as KeyRing says it, DataLoss for no answer.
absl::StatusOr<std::string> SealAnswer(const IdempotencyKey& key, const KeyRing& keys,
                                       const Response& answer);
absl::StatusOr<Kept> OpenAnswer(const IdempotencyKey& key, const KeyRing& keys,
                                absl::string_view sealed);

// A row's name, which its seal is bound to.
struct KeptPlace {
  std::string owner;
  std::string route;
  std::string key_sha256;
};
// What stands there, sealed with the key that seals now.
absl::StatusOr<std::string> SealAnew(const KeptPlace& place, const KeyRing& keys,
                                     absl::string_view sealed);

}  // namespace postrider::api
