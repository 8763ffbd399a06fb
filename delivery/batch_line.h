#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "delivery/batch.h"

namespace postrider::delivery {

// Batches in line, as in a std::deque. While it is empty it takes no memory beside a pointer: a
// worker has two lines for each endpoint and nearly all are empty, and an empty std::deque takes
// more than half a kilobyte.
class BatchLine {
 public:
  using iterator = std::deque<Batch>::iterator;
  using const_iterator = std::deque<Batch>::const_iterator;

  bool empty() const { return line_ == nullptr; }
  size_t size() const { return line_ == nullptr ? 0 : line_->size(); }
  // Value-initialised iterators are equal.
  iterator begin() { return line_ == nullptr ? iterator() : line_->begin(); }
  iterator end() { return line_ == nullptr ? iterator() : line_->end(); }
  const_iterator begin() const { return line_ == nullptr ? const_iterator() : line_->cbegin(); }
  const_iterator end() const { return line_ == nullptr ? const_iterator() : line_->cend(); }

  // Of a line that is not empty.
  Batch& front() { return line_->front(); }
  const Batch& front() const { return line_->front(); }
  Batch& back() { return line_->back(); }
  Batch& operator[](size_t at) { return (*line_)[at]; }
  void pop_front() {
    line_->pop_front();
    DropIfEmpty();
  }
  void erase(size_t at) {
    line_->erase(line_->begin() + static_cast<ptrdiff_t>(at));
    DropIfEmpty();
  }

  void push_back(Batch batch) { Line().push_back(std::move(batch)); }
  void push_front(Batch batch) { Line().push_front(std::move(batch)); }
  void emplace_back() { Line().emplace_back(); }

  template <typename Predicate>
  void EraseIf(Predicate predicate) {
    if (line_ == nullptr) return;
    std::erase_if(*line_, predicate);
    DropIfEmpty();
  }

 private:
  std::deque<Batch>& Line() {
    if (line_ == nullptr) line_ = std::make_unique<std::deque<Batch>>();
    return *line_;
  }
  void DropIfEmpty() {
    if (line_->empty()) line_.reset();
  }

  std::unique_ptr<std::deque<Batch>> line_;  // null, or not empty
};

}  // namespace postrider::delivery
