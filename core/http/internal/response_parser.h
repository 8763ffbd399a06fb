#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/http/http_sink.h"
#include "core/http/internal/chunked_body.h"
#include "core/http/internal/response_framing.h"
#include "core/http/internal/response_reader.h"

namespace postrider::internal {

// Reads the answer to one request off the bytes of a connection (RFC 9112), however they are cut.
// A complete head decides the status whatever comes after it. What could be read in two ways costs
// the connection, not the status: see reusable().
//
// Threads: any one at a time.
// Bounds:  those of ResponseLimits, which is also all that is kept of a line that came in parts.
class ResponseParser {
 public:
  void Start(const ResponseLimits& limits, AnswerTo request = AnswerTo::kPost);

  // Returns how many of the bytes it took: all until done(), and none beyond the end of a whole
  // answer.
  size_t OnBytes(absl::string_view bytes);
  // The other side sends no more, and said so in order.
  void OnEnd();
  // The connection broke, or ended without TLS having said so.
  void OnBreak();

  // Nothing more is expected or wanted.
  bool done() const { return state_ == State::kDone; }
  // Done without a complete head: failure() is kProtocol, kHeadersTooLarge or kReset, else kNone.
  bool failed() const { return failure_ != HttpFailure::kNone; }
  HttpFailure failure() const { return failure_; }
  // The head is complete, but the end of the answer did not come, so far, or was not waited for.
  bool body_cut() const { return reader_.head_done() && !whole_; }
  // The answer is whole, and the connection may take another request. An answer to CONNECT: the
  // tunnel begins.
  bool reusable() const;
  bool received_any() const { return received_any_; }

  ResponseReader& reader() { return reader_; }

 private:
  //   kStatusLine -> kField -> one of the bodies, or kDone
  //       ^ interim   |           kChunked -> kTrailer -> kDone
  //       +-----------+
  enum class State : uint8_t {
    kStatusLine,
    kField,
    kLength,
    kConnection,
    kChunked,
    kTrailer,
    kDone,
  };

  size_t TakeLine(absl::string_view bytes);
  size_t TakeLength(absl::string_view bytes);
  size_t TakeChunked(absl::string_view bytes);
  bool MayBeStatusLine(absl::string_view bytes) const;
  void OnLine(absl::string_view line);
  void OnFieldLine(absl::string_view text);
  void OnHeadEnd();
  void Finish();
  // Also after a complete head, when it is no failure.
  void Stop(HttpFailure failure);

  ResponseReader reader_;
  ResponseFraming framing_;
  ChunkedBody chunks_;
  std::string held_;  // the beginning of a line whose end has not come
  uint64_t left_ = 0;
  AnswerTo request_ = AnswerTo::kPost;
  State state_ = State::kStatusLine;
  HttpFailure failure_ = HttpFailure::kNone;
  bool whole_ = false;
  bool surplus_ = false;
  bool received_any_ = false;
  bool may_hold_nul_ = true;  // the line that is taken
};

}  // namespace postrider::internal
