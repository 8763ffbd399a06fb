#pragma once

#include <utility>
#include <vector>

#include "core/stream/function.h"
#include "core/stream/operation.h"
#include "core/stream/record.h"

namespace postrider {

// Keeps what is appended.
class FakeResultSink final : public ResultSink {
 public:
  void Append(const TopicPartition& tp, const OperationResult& result) override {
    appended.emplace_back(tp, result);
  }
  std::vector<std::pair<TopicPartition, OperationResult>> appended;
};

}  // namespace postrider
