#include "core/stream/internal/result_log.h"

#include <chrono>
#include <string>
#include <utility>

#include "core/base/log.h"

namespace postrider::internal {
namespace {
constexpr std::chrono::minutes kWaitMax{1};
constexpr char kFormat[] = "1";
}  // namespace

void ResultLog::Append(const TopicPartition& tp, const OperationResult& result) {
  AppendRecord record;
  record.topic = tp.topic;
  record.partition = tp.partition;
  record.key = result.key;
  record.value = EncodeOperationResult(result);
  record.headers.emplace_back(std::string(kResultHeader), kFormat);
  if (waiting_.empty() && TryAppend(record)) return;
  if (waiting_.size() >= kWaitingMax) DropFirst();
  waiting_.push_back({std::move(record), loop_.clock().Now() + kWaitMax});
}

bool ResultLog::TryAppend(AppendRecord& record) {
  return producer_.Append(std::move(record), [this](const absl::StatusOr<int64_t>& offset) {
    if (offset.ok()) return appended_.Increment();
    dropped_.Increment();
    POSTRIDER_LOG(kWarn, "a result was not appended", {"status", offset.status().ToString()});
  });
}

void ResultLog::DropFirst() {
  dropped_.Increment();
  waiting_.pop_front();
}

void ResultLog::OnRoom() {
  Expire();
  while (!waiting_.empty() && TryAppend(waiting_.front().record)) waiting_.pop_front();
}

void ResultLog::Expire() {
  const MonotonicTime now = loop_.clock().Now();
  while (!waiting_.empty() && waiting_.front().until <= now) DropFirst();
}

}  // namespace postrider::internal
