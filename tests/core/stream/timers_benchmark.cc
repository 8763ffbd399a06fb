// What a task's timers in memory cost: ns to set one at a random time ahead and fire the earliest,
// and the bytes that one holds. Run it from a Release build.

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/stream/internal/timers.h"

namespace postrider::internal {
namespace {

constexpr uint64_t kDelayMs = 3'600'000;

std::string TimerKey(uint64_t i) {
  std::string key(26, 'k');  // as long as an endpoint's id
  for (int digit = 0; digit < 12; ++digit) {
    key[static_cast<size_t>(digit)] = "0123456789abcdef"[i >> (4 * digit) & 15];
  }
  return key;
}

double HeapBytes() { return static_cast<double>(mallinfo2().uordblks + mallinfo2().hblkhd); }

void TimerSetAndFire(benchmark::State& state) {
  const double before = HeapBytes();
  Timers timers;
  Random random(1);
  MonotonicTime now{};
  uint64_t made = 0;
  const auto set = [&] {
    timers.Set(TimerKey(made++), 1, now + std::chrono::milliseconds(random.Below(kDelayMs)));
  };
  for (int64_t i = 0; i < state.range(0); ++i) set();
  const double bytes = (HeapBytes() - before) / static_cast<double>(state.range(0));
  for (auto _ : state) {
    set();
    const auto due = timers.PopDue(MonotonicTime::max(), timers.mark());
    now = due->time;
  }
  state.counters["bytes"] = bytes;
}

BENCHMARK(TimerSetAndFire)->ArgName("keys")->Iterations(200'000)->Arg(10'000)->Arg(1'000'000);

}  // namespace
}  // namespace postrider::internal

BENCHMARK_MAIN();
