#pragma once

#include <algorithm>
#include <cstddef>

#include "delivery/outcome.h"

namespace postrider::delivery {

// How many requests an endpoint may have in flight: between 1 and its limit. Grows by one per
// success up to where it was last cut, then by about one per round trip; halves or falls to one as
// outcomes say (outcome.h). After an outage it begins at one and doubles per success, until it is
// cut or at its limit.
class Window {
 public:
  static constexpr double kInitial = 4;

  explicit Window(int limit) : limit_(std::max(limit, 1)), threshold_(limit_) {
    size_ = std::min(kInitial, static_cast<double>(limit_));
  }

  size_t size() const { return static_cast<size_t>(size_); }
  bool starting_slowly() const { return doubling_; }

  void SetLimit(int limit) {
    limit_ = std::max(limit, 1);
    size_ = std::min(size_, static_cast<double>(limit_));
  }

  // An endpoint is back.
  void StartSlowly() {
    size_ = 1;
    threshold_ = limit_;
    doubling_ = true;
  }

  void Apply(WindowEffect effect) {
    switch (effect) {
      case WindowEffect::kGrow:
        if (doubling_) {
          size_ = std::min(static_cast<double>(limit_), size_ * 2);
          doubling_ = size_ < limit_;
          return;
        }
        size_ =
            std::min(static_cast<double>(limit_), size_ + (size_ < threshold_ ? 1.0 : 1.0 / size_));
        return;
      case WindowEffect::kHold:
        return;
      case WindowEffect::kHalve:
        size_ = std::max(1.0, size_ / 2);
        threshold_ = size_;
        doubling_ = false;
        return;
      case WindowEffect::kOne:
        size_ = 1;
        threshold_ = 2;
        doubling_ = false;
        return;
    }
  }

 private:
  int limit_;
  double size_ = 1;
  double threshold_;
  bool doubling_ = false;
};

}  // namespace postrider::delivery
