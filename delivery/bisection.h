#pragma once

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/base/clock.h"

namespace postrider::delivery {

// A batch that its receiver refused as a whole (400, 413, 422), on its way to the messages that are
// at fault. It is sent again at once in pieces, one request at a time for an endpoint, the left one
// first:
//
//   refused --> halves; 413: as many pieces as the learned bytes_max asks for
//     a piece is taken    --> done
//     a piece is refused  --> its halves, at once; one message: dead letter
//     any other outcome   --> that, for the piece and for those that have not been sent
//
// It costs at most RequestsMax() requests. What is not settled then is charged one attempt and
// retried as the pieces that there are, each a batch of its own. If both first halves are refused
// the receiver refuses everything: that is the endpoint's failure, charged at once. (Not with 413,
// which says that smaller ones may pass.)
//
// Its pieces know it as long as it goes on. Threads: the shard's.
class Bisection {
 public:
  // 2 log2(n) + 1: one message at fault is found on nearly every way there.
  static constexpr size_t RequestsMax(size_t messages) {
    const uint64_t n = messages;
    return static_cast<size_t>(std::bit_width(n * n));
  }

  explicit Bisection(size_t messages) : left_(RequestsMax(messages)) {}

  // A request of its own has had its result.
  void OnRequest() { left_ -= left_ > 0 ? 1 : 0; }
  bool MayGoOn() const { return left_ > 0; }
  // True: it was the second one.
  bool OnFirstHalfRefused() { return ++first_halves_refused_ == 2; }

 private:
  size_t left_;
  int first_halves_refused_ = 0;
};

// Pieces wait before all that is due, and among each other in the order in which they are sent.
inline constexpr MonotonicTime kPieceDue = MonotonicTime(std::chrono::seconds(-1));

}  // namespace postrider::delivery
