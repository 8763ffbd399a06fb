#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::internal {

// Takes `room` more records and keeps them and their answers.
class NarrowProducer final : public LogProducer {
 public:
  bool Append(AppendRecord&& record, AppendDone&& done) override {
    if (room == 0) return false;
    --room;
    records.push_back(std::move(record));
    answers.push_back(std::move(done));
    return true;
  }
  void SetRoomCallback(absl::AnyInvocable<void()>) override {}
  size_t pending() const override { return answers.size(); }
  void Poll() override {}
  void Flush() override { ++flushes; }

  int flushes = 0;
  int room = 0;
  std::vector<AppendRecord> records;
  std::vector<AppendDone> answers;
};

}  // namespace postrider::internal
