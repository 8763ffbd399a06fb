#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "api/internal/parts.h"
#include "api/problem.h"
#include "api/request.h"
#include "api/router.h"
#include "core/json/json.h"
#include "core/postgres/transaction.h"

namespace postrider::api {

// One request on its way through the database: holds the request, the transaction and the answer
// that is owed. Callbacks keep it by shared_ptr; its transaction is rolled back when it goes.
//
// A request with an Idempotency-Key is looked up at the transaction's beginning, answered there
// when it was done before, and else kept with its own commit (kept_answer.h). Handlers need not
// know.
//
// Threads: the loop's.
class Call : public std::enable_shared_from_this<Call> {
 public:
  using Step = absl::AnyInvocable<void() &&>;

  Call(const ApiParts& parts, Request the_request, Respond respond)
      : api(parts), request(std::move(the_request)), respond_(std::move(respond)) {}

  // Begins the transaction, then `body` runs; if there is no beginning, or the request was done
  // before, answers.
  void InTransaction(TransactionOptions options, Step body);
  Transaction& tx() { return *tx_; }

  // Commits, then answers.
  void Commit(Response response);
  // Commits, then `next` does what the database has no part in, and answers. At most once.
  void CommitThen(Step next);
  // Each answers and is the last call. Of a transaction that is not committed nothing stays.
  void Answer(Response response);
  // The same, but what was done is not worth keeping: who repeats the request has it done again.
  void AnswerOnce(Response response) {
    keeps_ = false;
    Answer(std::move(response));
  }
  void Fail(const absl::Status& status) { Answer(ProblemFromStatus(status)); }
  void Fail(const subscriptions::FieldFaults& faults) { Answer(ProblemFromFaults(faults)); }

  // A repository's callback: `next` gets the value; a failure is answered.
  template <typename T, typename Next>
  auto Then(Next next) {
    return [call = shared_from_this(), next = std::move(next)](absl::StatusOr<T> result) mutable {
      if (!result.ok()) return call->Fail(result.status());
      next(*std::move(result));
    };
  }
  // The same for one without a value.
  template <typename Next>
  auto ThenPlain(Next next) {
    return [call = shared_from_this(), next = std::move(next)](absl::Status result) mutable {
      if (!result.ok()) return call->Fail(result);
      next();
    };
  }

  const ApiParts& api;
  Request request;

 private:
  // What the request holds of its Idempotency-Key, if it has one.
  enum class Hold {
    kNothing,
    kLock,   // the transaction's, until its end
    kClaim,  // a row that is committed and has no answer yet
  };

  void LookUp(Step body);
  void Keep(Response response);
  void CommitNow(Step next);
  // The request was refused while it had the key: another one may have been done just before that,
  // and then this is a repeat of it.
  void AnswerUnlessDone(Response refusal);
  // Writes the answer into the claim's row, or gives the key back; then answers in any case. Tries
  // some times, for until that is done the key is taken.
  void EndClaim(Response response);
  void TryToEndClaim(Statement end, Response response, size_t tries);

  Respond respond_;
  absl::optional<Transaction> tx_;
  TransactionOptions as_;
  Hold hold_ = Hold::kNothing;
  bool keeps_ = true;
};

using CallPtr = std::shared_ptr<Call>;

// A handler that takes a Call.
inline Handler Handle(const ApiParts& api, void (*function)(CallPtr)) {
  return [&api, function](Request request, Respond respond) {
    function(std::make_shared<Call>(api, std::move(request), std::move(respond)));
  };
}

Response JsonResponse(int status, const JsonValue& document);
inline Response NoContent() {
  Response response;
  response.status = 204;
  return response;
}

// "g<generation>": the ETag of a resource that has one.
void SetETag(uint64_t generation, Response* response);
// Whether If-Match, when there is one, names this generation. Else the caller answers
// PreconditionFailed().
bool IfMatches(const Request& request, uint64_t generation);
Response PreconditionFailed();

}  // namespace postrider::api
