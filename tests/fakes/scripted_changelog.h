#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/stream/changelog.h"
#include "core/stream/state_backend.h"

namespace postrider {

// A changelog that answers when and in the order it is told to.
class ScriptedChangelog final : public ChangelogWriter {
 public:
  bool Append(EncodedChangelogRecord&& record, AppendDone&& done) override {
    if (waiting_.size() >= room) return false;
    waiting_.push_back(log.size());
    answers_.resize(log.size());
    answers_.push_back(std::move(done));
    log.push_back(std::move(record));
    return true;
  }
  // Answers the i-th of those that wait.
  void Answer(size_t i, absl::Status status = absl::OkStatus()) {
    const size_t at = waiting_[i];
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    AppendDone done = std::move(answers_[at]);
    std::move(done)(std::move(status));
  }
  void AnswerAll() {
    while (!waiting_.empty()) Answer(0);
  }
  // The task has ended: no answer comes any more.
  void DropAnswers() {
    waiting_.clear();
    answers_.clear();
  }
  size_t waiting() const { return waiting_.size(); }
  bool IsAnswered(size_t at) const {
    return !std::binary_search(waiting_.begin(), waiting_.end(), at);
  }
  // `log` was set: everything in it is acknowledged.
  void Resize() { answers_.resize(log.size()); }
  // Everything before the first that waits.
  size_t acknowledged() const { return waiting_.empty() ? log.size() : waiting_.front(); }
  ChangelogRecord Record(size_t i) const {
    return *DecodeChangelogRecord(log[i].key, log[i].value);
  }

  std::vector<EncodedChangelogRecord> log;
  size_t room = std::numeric_limits<size_t>::max();  // appends that may wait

 private:
  std::vector<AppendDone> answers_;
  std::deque<size_t> waiting_;  // ascending
};

}  // namespace postrider
