#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/embedded_log/embedded_log.h"
#include "core/stream/log.h"
#include "core/stream/record.h"
#include "gtest/gtest.h"
#include "tests/core/state/temporary_directory.h"
#include "tests/fakes/manual_clock.h"

namespace postrider::tests {

struct KeptRecord {
  int64_t offset = 0;
  WallTime timestamp;
  std::string key;
  std::string value;
  bool tombstone = false;
};

// Reads one partition from its start until its end was told.
class WholeReader : public ReadHandler {
 public:
  void OnRecord(const LogRecord& record) override {
    records.push_back({record.offset, record.timestamp, std::string(record.key),
                       std::string(record.value), record.value.data() == nullptr});
  }
  void OnPartitionEnd(const TopicPartition&, int64_t next) override { end = next; }
  std::vector<KeptRecord> records;
  absl::optional<int64_t> end;
};

// A log in a directory of its own that is opened and closed at will, with a clock that stands.
class EmbeddedLogTest : public testing::Test {
 protected:
  static constexpr std::chrono::seconds kPatience{60};
  static constexpr std::chrono::milliseconds kTimeout{60'000};

  EmbeddedLogTest() {
    options_.directory = directory_.path() + "/log";
    options_.memory_bytes = 8 << 20;
    options_.sync_interval = std::chrono::milliseconds(0);
    options_.upkeep_interval = std::chrono::milliseconds(0);
    options_.retry_interval = std::chrono::milliseconds(20);
  }
  ~EmbeddedLogTest() override { Close(); }

  absl::Status TryOpen() {
    absl::StatusOr<std::unique_ptr<EmbeddedLog>> opened =
        EmbeddedLog::Open(options_, clock_, metrics_);
    if (opened.ok()) log_ = *std::move(opened);
    return opened.status();
  }
  void Open() {
    const absl::Status opened = TryOpen();
    ASSERT_TRUE(opened.ok()) << opened;
  }
  void Close() {
    producer_.reset();
    log_.reset();
  }
  void Reopen() {
    Close();
    Open();
  }
  void MakeTopic(const std::string& name, int32_t partitions,
                 std::vector<std::pair<std::string, std::string>> settings = {}) {
    TopicSpec spec;
    spec.name = name;
    spec.partitions = partitions;
    spec.settings = std::move(settings);
    const absl::Status made = log_->EnsureTopics({spec}, kTimeout);
    ASSERT_TRUE(made.ok()) << made;
  }
  testing::AssertionResult Until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= end) {
        return testing::AssertionFailure() << "it did not come about";
      }
      loop_->RunOnce(std::chrono::milliseconds(1));
    }
    return testing::AssertionSuccess();
  }
  static AppendRecord Record(const TopicPartition& tp, const std::string& key,
                             const std::string& value) {
    AppendRecord record;
    record.topic = tp.topic;
    record.partition = tp.partition;
    record.key = key;
    record.value = value;
    return record;
  }
  static AppendRecord Tombstone(const TopicPartition& tp, const std::string& key) {
    AppendRecord record = Record(tp, key, "");
    record.tombstone = true;
    return record;
  }
  LogProducer& producer() {
    if (producer_ == nullptr) producer_ = *log_->OpenProducer(*loop_, ProducerOptions());
    return *producer_;
  }
  // The offset, or why not. Waits.
  absl::StatusOr<int64_t> Append(AppendRecord record) {
    absl::optional<absl::StatusOr<int64_t>> answer;
    EXPECT_TRUE(producer().Append(std::move(record), [&answer](absl::StatusOr<int64_t> offset) {
      answer = std::move(offset);
    }));
    EXPECT_TRUE(Until([&] { return answer.has_value(); }));
    return answer.value_or(absl::UnknownError("no answer"));
  }
  // So many records "<first + i>" with values of that size, all acknowledged when it returns.
  void AppendMany(const TopicPartition& tp, int count, size_t value_bytes, int first = 0) {
    int acknowledged = 0;
    for (int i = 0; i < count; ++i) {
      std::string value = absl::StrCat(first + i, ":");
      value.resize(std::max(value.size(), value_bytes), 'v');
      ASSERT_TRUE(producer().Append(Record(tp, absl::StrCat("k", first + i), value),
                                    [&acknowledged](absl::StatusOr<int64_t> offset) {
                                      EXPECT_TRUE(offset.ok()) << offset.status();
                                      ++acknowledged;
                                    }));
    }
    ASSERT_TRUE(Until([&] { return acknowledged == count; }));
  }
  WholeReader ReadAll(const TopicPartition& tp) {
    WholeReader reader;
    absl::StatusOr<std::unique_ptr<PartitionReader>> opened =
        log_->OpenReader(*loop_, ReaderOptions(), reader);
    POSTRIDER_CHECK(opened.ok());
    PartitionReader& partitions = **opened;
    POSTRIDER_CHECK(
        loop_->Watch(partitions.wake_fd(), kFdReadable, [&](uint32_t) { partitions.Poll(1'000); })
            .ok());
    partitions.Add({tp, StartPosition::At::kLogStart, 0});
    EXPECT_TRUE(Until([&] { return reader.end.has_value(); }));
    loop_->Unwatch(partitions.wake_fd());
    return reader;
  }
  absl::Status Trim(const TopicPartition& tp, int64_t offset) {
    absl::optional<absl::Status> status;
    log_->Trim(*loop_, tp, offset, [&status](absl::Status answer) { status = std::move(answer); });
    EXPECT_TRUE(Until([&] { return status.has_value(); }));
    return status.value_or(absl::UnknownError("no answer"));
  }
  absl::StatusOr<int64_t> OffsetForTime(const TopicPartition& tp, WallTime time) {
    absl::optional<absl::StatusOr<int64_t>> answer;
    log_->OffsetForTime(*loop_, tp, time,
                        [&answer](absl::StatusOr<int64_t> offset) { answer = std::move(offset); });
    EXPECT_TRUE(Until([&] { return answer.has_value(); }));
    return answer.value_or(absl::UnknownError("no answer"));
  }
  double Metric(const std::string& name) {
    const std::string text = "\n" + metrics_.Expose();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  const TemporaryDirectory directory_;
  EmbeddedLogOptions options_;
  ManualClock clock_;
  Metrics metrics_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_);
  std::unique_ptr<EmbeddedLog> log_;
  std::unique_ptr<LogProducer> producer_;
};

}  // namespace postrider::tests
