#include "api/internal/call.h"

#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/internal/kept_answer.h"
#include "core/base/log.h"
#include "core/postgres/result.h"

namespace postrider::api {
namespace {

constexpr std::chrono::seconds kAskAgain{1};
constexpr std::chrono::seconds kAskWhenSomeAreOld{600};
// Between the tries to end a claim: a connection that broke is soon another one. The client waits.
constexpr std::chrono::milliseconds kEndClaimAgain[] = {
    std::chrono::milliseconds(50), std::chrono::milliseconds(250), std::chrono::milliseconds(1000),
    std::chrono::milliseconds(3000)};

bool IsDone(const Response& response) { return response.status >= 200 && response.status < 300; }

}  // namespace

void Call::InTransaction(TransactionOptions options, Step body) {
  if (request.idempotency) as_ = options;
  Transaction::Begin(api.pool, std::move(options),
                     [call = shared_from_this(),
                      body = std::move(body)](absl::StatusOr<Transaction> begun) mutable {
                       if (!begun.ok()) {
                         // No connection, for whatever reason, is a 503.
                         return call->Fail(absl::UnavailableError(begun.status().message()));
                       }
                       call->tx_.emplace(*std::move(begun));
                       if (call->request.idempotency) return call->LookUp(std::move(body));
                       std::move(body)();
                     });
}

void Call::LookUp(Step body) {
  tx_->Query(LookUpKept(*request.idempotency), [call = shared_from_this(), body = std::move(body)](
                                                   absl::StatusOr<QueryResult> result) mutable {
    if (!result.ok()) return call->Fail(result.status());
    absl::StatusOr<Kept> kept = ReadKept(*call->request.idempotency, call->api.keys, *result);
    if (!kept.ok()) return call->Fail(kept.status());
    switch (kept->state) {
      case Kept::State::kFree:
        call->hold_ = Hold::kLock;
        return std::move(body)();
      case Kept::State::kRunning:
        return call->Answer(
            ProblemRetry(409, "A request with this Idempotency-Key is under way.", kAskAgain));
      case Kept::State::kDone:
        return call->Answer(std::move(kept->answer));
      case Kept::State::kFull:
        return call->Answer(ProblemRetry(
            429,
            "There are too many Idempotency-Keys of the last 24 hours; send the request "
            "without one, or wait.",
            kAskWhenSomeAreOld));
      case Kept::State::kOther:
        return call->Answer(
            Problem(422,
                    "This Idempotency-Key was used for another request: another path, "
                    "query, If-Match or body."));
      case Kept::State::kUnreadable:
        return call->Answer(
            Problem(409,
                    "A request with this Idempotency-Key was done, but its answer can no "
                    "longer be opened."));
    }
  });
}

void Call::Commit(Response response) {
  if (hold_ == Hold::kLock && IsDone(response)) return Keep(std::move(response));
  CommitNow([call = shared_from_this(), response = std::move(response)]() mutable {
    call->Answer(std::move(response));
  });
}

void Call::Keep(Response response) {
  absl::StatusOr<Statement> keep = KeepAnswer(*request.idempotency, api.keys, response);
  if (!keep.ok()) return Fail(keep.status());
  tx_->Query(*std::move(keep), [call = shared_from_this(), response = std::move(response)](
                                   absl::StatusOr<QueryResult> kept) mutable {
    if (!kept.ok()) return call->Fail(kept.status());
    if (kept->affected() != 1) {
      return call->Fail(absl::AbortedError("api: the request was done by another one meanwhile"));
    }
    call->CommitNow(
        [call, response = std::move(response)]() mutable { call->Answer(std::move(response)); });
  });
}

void Call::CommitNow(Step next) {
  hold_ = Hold::kNothing;  // the lock goes with the transaction, however it ends
  tx_->Commit(
      [call = shared_from_this(), next = std::move(next)](const absl::Status& committed) mutable {
        if (!committed.ok()) return call->Fail(committed);
        std::move(next)();
      });
}

void Call::CommitThen(Step next) {
  if (hold_ != Hold::kLock) return CommitNow(std::move(next));
  tx_->Query(ClaimKey(*request.idempotency), [call = shared_from_this(), next = std::move(next)](
                                                 absl::StatusOr<QueryResult> claimed) mutable {
    if (!claimed.ok()) return call->Fail(claimed.status());
    if (claimed->affected() != 1) {
      return call->Fail(absl::AbortedError("api: the request was begun by another one meanwhile"));
    }
    call->CommitNow([call, next = std::move(next)]() mutable {
      call->hold_ = Hold::kClaim;
      std::move(next)();
    });
  });
}

void Call::Answer(Response response) {
  switch (std::exchange(hold_, Hold::kNothing)) {
    case Hold::kNothing:
      return std::move(respond_)(std::move(response));
    case Hold::kLock:
      // Whoever hears of it may ask again at once, with the same key.
      return tx_->RollBack([call = shared_from_this(), response = std::move(response)]() mutable {
        if (response.status < 500) return call->AnswerUnlessDone(std::move(response));
        std::move(call->respond_)(std::move(response));
      });
    case Hold::kClaim:
      return EndClaim(std::move(response));
  }
}

void Call::AnswerUnlessDone(Response refusal) {
  Transaction::Run(api.pool, as_, {LookUpKept(*request.idempotency)},
                   [call = shared_from_this(), refusal = std::move(refusal)](
                       const absl::StatusOr<std::vector<QueryResult>>& results) mutable {
                     if (results.ok()) {
                       absl::StatusOr<Kept> kept =
                           ReadKept(*call->request.idempotency, call->api.keys, results->front());
                       if (kept.ok() && kept->state == Kept::State::kDone)
                         refusal = std::move(kept->answer);
                     }
                     std::move(call->respond_)(std::move(refusal));
                   });
}

void Call::EndClaim(Response response) {
  absl::StatusOr<Statement> end = IsDone(response) && keeps_
                                      ? FinishAnswer(*request.idempotency, api.keys, response)
                                      : ReleaseKey(*request.idempotency);
  if (!end.ok()) return Fail(end.status());
  TryToEndClaim(*std::move(end), std::move(response), 0);
}

void Call::TryToEndClaim(Statement end, Response response, size_t tries) {
  Transaction::Run(
      api.pool, as_, {end},
      [call = shared_from_this(), end, response = std::move(response),
       tries](const absl::StatusOr<std::vector<QueryResult>>& ended) mutable {
        if (!ended.ok() && tries < std::size(kEndClaimAgain) && !call->api.stopping) {
          call->api.loop.CallAfter(
              kEndClaimAgain[tries],
              [call, end = std::move(end), response = std::move(response), tries]() mutable {
                call->TryToEndClaim(std::move(end), std::move(response), tries + 1);
              });
          return;
        }
        if (!ended.ok()) {
          POSTRIDER_LOG(kWarn, "an answer is not kept", {"route", call->request.idempotency->route},
                        {"why", ended.status().message()});
        }
        std::move(call->respond_)(std::move(response));
      });
}

Response JsonResponse(int status, const JsonValue& document) {
  Response response;
  response.status = status;
  response.body = document.Serialize();
  return response;
}

void SetETag(uint64_t generation, Response* response) {
  response->headers.emplace_back("etag", absl::StrCat("\"g", generation, "\""));
}

bool IfMatches(const Request& request, uint64_t generation) {
  const std::string* header = request.Header("if-match");
  if (header == nullptr) return true;
  const std::string present = absl::StrCat("\"g", generation, "\"");
  for (absl::string_view tag : absl::StrSplit(*header, ',')) {
    tag = absl::StripAsciiWhitespace(tag);
    if (tag == "*" || tag == present) return true;
  }
  return false;
}

Response PreconditionFailed() {
  return Problem(412, "It was changed since; get it again and look at its etag.");
}

}  // namespace postrider::api
