// Appends and reads of the embedded log. TMPDIR says which disk is measured.
//
//   core_embedded_log_benchmark --benchmark_counters_tabular=true

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/embedded_log/embedded_log.h"
#include "core/stream/log.h"
#include "core/stream/record.h"
#include "tests/core/state/temporary_directory.h"

namespace postrider {
namespace {

constexpr size_t kValueBytes = 700;
constexpr int32_t kPartitions = 64;

struct Bench {
  Bench() {
    EmbeddedLogOptions options;
    options.directory = directory.path() + "/log";
    auto opened = EmbeddedLog::Open(options, clock, metrics);
    POSTRIDER_CHECK(opened.ok());
    log = *std::move(opened);
    TopicSpec spec;
    spec.name = "a";
    spec.partitions = kPartitions;
    POSTRIDER_CHECK(log->EnsureTopics({spec}, std::chrono::milliseconds(10'000)).ok());
    ProducerOptions producing;
    producing.queue_records_max = 1'000'000;
    producing.queue_bytes_max = int64_t{1} << 30;
    producer = *log->OpenProducer(*loop, producing);
    for (int i = 0; i < 4'096; ++i) text.push_back(static_cast<char>('a' + i * 7'919 % 26));
  }
  void Append(int64_t number) {
    AppendRecord record;
    record.topic = "a";
    record.partition = static_cast<int32_t>(number % kPartitions);
    record.key = "endpoint-12345678";
    record.value.assign(text, static_cast<size_t>(number) % 3'000, kValueBytes);
    POSTRIDER_CHECK(producer->Append(std::move(record), [this](absl::StatusOr<int64_t> offset) {
      POSTRIDER_CHECK(offset.ok());
      ++acknowledged;
    }));
  }

  tests::TemporaryDirectory directory;
  SystemClock clock;
  Metrics metrics;
  std::unique_ptr<EventLoop> loop = *EventLoop::Create(clock);
  std::unique_ptr<EmbeddedLog> log;
  std::unique_ptr<LogProducer> producer;
  std::string text;
  int64_t acknowledged = 0;
};

// So many records are on their way at any time; each is acknowledged when it is synced.
void BM_AppendSynced(benchmark::State& state) {
  Bench bench;
  const int64_t ahead = state.range(0);
  int64_t sent = 0;
  for (auto _ : state) {
    while (sent - bench.acknowledged >= ahead) bench.loop->RunOnce(std::chrono::milliseconds(10));
    bench.Append(sent++);
  }
  while (bench.acknowledged < sent) bench.loop->RunOnce(std::chrono::milliseconds(10));
  state.SetItemsProcessed(sent);
  state.SetBytesProcessed(sent * static_cast<int64_t>(kValueBytes));
}
BENCHMARK(BM_AppendSynced)->Arg(1)->Arg(100)->Arg(10'000)->UseRealTime()->MeasureProcessCPUTime();

class Counting final : public ReadHandler {
 public:
  void OnRecord(const LogRecord& record) override {
    benchmark::DoNotOptimize(record.value.data());
    ++records;
  }
  void OnPartitionEnd(const TopicPartition&, int64_t) override { ++ends; }
  int64_t records = 0;
  int ends = 0;
};

// Everything, from the database.
void BM_ReadFromStart(benchmark::State& state) {
  Bench bench;
  constexpr int64_t kCount = 300'000;
  for (int64_t i = 0; i < kCount; ++i) bench.Append(i);
  while (bench.acknowledged < kCount) bench.loop->RunOnce(std::chrono::milliseconds(10));
  int64_t read = 0;
  for (auto _ : state) {
    Counting counting;
    auto reader = *bench.log->OpenReader(*bench.loop, ReaderOptions(), counting);
    POSTRIDER_CHECK(
        bench.loop->Watch(reader->wake_fd(), kFdReadable, [&](uint32_t) { reader->Poll(1'000); })
            .ok());
    for (int32_t i = 0; i < kPartitions; ++i) {
      reader->Add({{"a", i}, StartPosition::At::kLogStart, 0});
    }
    while (counting.ends < kPartitions) bench.loop->RunOnce(std::chrono::milliseconds(10));
    bench.loop->Unwatch(reader->wake_fd());
    POSTRIDER_CHECK(counting.records == kCount);
    read += kCount;
  }
  state.SetItemsProcessed(read);
}
BENCHMARK(BM_ReadFromStart)->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace postrider

BENCHMARK_MAIN();
