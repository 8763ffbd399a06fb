// What the stores of keyed state cost: ns per operation of the heap's and RocksDB's, at 10,000 and
// 1,000,000 keys of 100 bytes. Run it from a Release build:
//
//   core_state_benchmark [--benchmark_filter=REGEX]
//
// `cpu` is the calling thread's; `process_cpu_us` counts flushes and compactions too.

#include <benchmark/benchmark.h>
#include <malloc.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/state/heap_store.h"
#include "core/state/rocksdb_store.h"
#include "core/stream/durable_timers.h"
#include "core/stream/keyed_state.h"
#include "core/stream/state_backend.h"
#include "core/stream/state_store.h"

namespace postrider {
namespace {

enum Store : int64_t { kHeap = 0, kRocksdb = 1 };
constexpr size_t kValueBytes = 100;
constexpr int64_t kIterations = 200'000;

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

class Bench {
 public:
  explicit Bench(benchmark::State& state) : state_(state) {
    if (state.range(0) == kHeap) {
      HeapStoreOptions options;
      options.bytes_max = size_t{4} << 30;
      store_ = MakeHeapStore(options);
      return;
    }
    std::string path = (std::filesystem::temp_directory_path() / "postrider-bench-XXXXXX").string();
    directory_ = mkdtemp(path.data());
    shared_ = RocksdbShared::Create({});
    RocksdbStoreOptions options;
    options.directory = directory_ + "/kg-0";
    auto opened = OpenRocksdbStore(*shared_, options);
    if (!opened.ok()) Die(opened.status());
    store_ = *std::move(opened);
  }
  ~Bench() {
    state_.counters["process_cpu_us"] =
        1e-3 * static_cast<double>(ProcessCpuNs() - cpu_before_) /
        static_cast<double>(std::max<int64_t>(1, static_cast<int64_t>(state_.iterations())));
    state_.counters["tombstones"] = static_cast<double>(store_->figures().tombstones_skipped);
    store_.reset();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  StateStore& store() { return *store_; }
  void StartCounting() { cpu_before_ = ProcessCpuNs(); }
  void Apply(const StateBatch& batch) {
    for (;;) {
      const absl::Status applied = store_->Apply(batch);
      if (applied.ok()) return;
      if (!absl::IsResourceExhausted(applied)) Die(applied);
    }
  }
  // `keys` of them, in random order of their bytes.
  void Fill(int64_t keys) {
    StateBatch batch;
    for (int64_t i = 0; i < keys; ++i) {
      batch.Put(Key(static_cast<uint64_t>(i)), value_);
      if (batch.size() < 100 && i + 1 < keys) continue;
      Apply(batch);
      batch.Clear();
    }
  }
  static std::string Key(uint64_t i) {
    Random scramble(i);
    std::string key = "k";
    AppendBigEndian(scramble.Next(), key);
    AppendBigEndian(i, key);
    return key;
  }
  static void AppendBigEndian(uint64_t number, std::string& out) {
    for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(number >> shift));
  }
  const std::string& value() const { return value_; }

 private:
  static int64_t ProcessCpuNs() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
  benchmark::State& state_;
  std::string directory_;
  std::unique_ptr<RocksdbShared> shared_;
  std::unique_ptr<StateStore> store_;
  const std::string value_ = std::string(kValueBytes, 'v');
  int64_t cpu_before_ = 0;
};

void Put(benchmark::State& state) {
  Bench bench(state);
  const auto keys = static_cast<uint64_t>(state.range(1));
  bench.Fill(state.range(1));
  Random random(1);
  StateBatch batch;
  bench.StartCounting();
  for (auto _ : state) {
    batch.Clear();
    batch.Put(Bench::Key(random.Below(keys)), bench.value());
    bench.Apply(batch);
  }
}

void PutInBatchesOf100(benchmark::State& state) {
  Bench bench(state);
  const auto keys = static_cast<uint64_t>(state.range(1));
  bench.Fill(state.range(1));
  Random random(1);
  StateBatch batch;
  bench.StartCounting();
  for (auto _ : state) {
    batch.Put(Bench::Key(random.Below(keys)), bench.value());
    if (batch.size() < 100) continue;
    bench.Apply(batch);
    batch.Clear();
  }
}

void Get(benchmark::State& state) {
  Bench bench(state);
  const auto keys = static_cast<uint64_t>(state.range(1));
  bench.Fill(state.range(1));
  Random random(1);
  std::string value;
  bench.StartCounting();
  for (auto _ : state) {
    const auto found = bench.store().Get(Bench::Key(random.Below(keys)), value);
    if (!found.ok() || !*found) Die(absl::InternalError("a key is missing"));
    benchmark::DoNotOptimize(value);
  }
}

// A queue of a steady length: one is pushed at the tail, the first is found and deleted.
void FifoPushAndPop(benchmark::State& state) {
  Bench bench(state);
  StateRange queue("q");
  StateBatch batch;
  uint64_t tail = 0;
  const auto push = [&] {
    std::string key = "q";
    Bench::AppendBigEndian(tail++, key);
    batch.Put(key, bench.value());
  };
  for (int64_t i = 0; i < state.range(1); ++i) {
    push();
    if (batch.size() < 100) continue;
    bench.Apply(batch);
    batch.Clear();
  }
  bench.StartCounting();
  std::string first;
  for (auto _ : state) {
    push();
    bench.Apply(batch);
    batch.Clear();
    const auto end = bench.store().Scan(queue, ScanLimits{1, 1 << 20},
                                        [&](absl::string_view key, absl::string_view) {
                                          first.assign(key.data(), key.size());
                                          return false;
                                        });
    if (!end.ok()) Die(end.status());
    batch.Delete(first);
    bench.Apply(batch);
    batch.Clear();
    queue.MoveHeadPast(first);
  }
}

// Due times in the store: one is put at a random time ahead, the earliest is found and deleted, and
// its time is the present one.
void TimerInsertAndFire(benchmark::State& state) {
  Bench bench(state);
  StateRange timers("t");
  StateBatch batch;
  Random random(1);
  uint64_t now = 0;
  uint64_t made = 0;
  const auto ahead = static_cast<uint64_t>(state.range(1)) * 2;
  const auto insert = [&] {
    std::string key = "t";
    Bench::AppendBigEndian(now + 1 + random.Below(ahead), key);
    Bench::AppendBigEndian(made++, key);
    timers.Include(key);
    batch.Put(key, "");
  };
  for (int64_t i = 0; i < state.range(1); ++i) {
    insert();
    if (batch.size() < 100) continue;
    bench.Apply(batch);
    batch.Clear();
  }
  bench.StartCounting();
  std::string first;
  for (auto _ : state) {
    insert();
    bench.Apply(batch);
    batch.Clear();
    const auto end = bench.store().Scan(timers, ScanLimits{1, 1 << 20},
                                        [&](absl::string_view key, absl::string_view) {
                                          first.assign(key.data(), key.size());
                                          return false;
                                        });
    if (!end.ok()) Die(end.status());
    batch.Delete(first);
    bench.Apply(batch);
    batch.Clear();
    timers.MoveHeadPast(first);
    now = 0;
    for (const char byte : absl::string_view(first).substr(1, 8)) {
      now = now << 8 | static_cast<unsigned char>(byte);
    }
  }
}

// A log that answers when it is asked to.
class AnsweringChangelog final : public ChangelogWriter {
 public:
  bool Append(EncodedChangelogRecord&& record, AppendDone&& done) override {
    benchmark::DoNotOptimize(record);
    waiting_.push_back(std::move(done));
    return true;
  }
  void Answer() {
    while (!waiting_.empty()) {
      AppendDone done = std::move(waiting_.front());
      waiting_.pop_front();
      std::move(done)(absl::OkStatus());
    }
  }

 private:
  std::deque<AppendDone> waiting_;
};

// All of keyed state but the log: an entry is pushed, acknowledged, and the first one is removed.
void ListPushAndRemove(benchmark::State& state) {
  Bench bench(state);
  const SystemClock clock;
  AnsweringChangelog changelog;
  StateBackend backend(StateBackendOptions{1}, bench.store(), changelog,
                       [](absl::Status why) { Die(why); });
  ListState list(backend, clock, StateDescriptor{1, "list", {}}, 1);
  uint64_t tail = 0;
  const auto push = [&] {
    std::string identity;
    Bench::AppendBigEndian(Random(tail).Next(), identity);
    Bench::AppendBigEndian(tail, identity);
    const auto pushed = list.Push("endpoint", tail++, identity, 1, bench.value());
    if (!pushed.ok() || *pushed != ListState::Pushed::kTaken) Die(pushed.status());
  };
  for (int64_t i = 0; i < state.range(1); ++i) {
    push();
    if (i % 100 == 99) changelog.Answer();
  }
  int unanswered = 0;
  bench.StartCounting();
  for (auto _ : state) {
    push();
    std::string first;
    const auto end =
        list.Scan("endpoint", ScanLimits{1, 1 << 20}, [&](const ListState::Entry& entry) {
          first = std::string(entry.identity);
          return false;
        });
    const auto removed = list.Remove("endpoint", first);
    if (!end.ok() || !removed.ok() || !*removed) Die(removed.status());
    if (++unanswered % 100 == 0) changelog.Answer();
  }
  changelog.Answer();
}

// A clock that the benchmark moves.
class SteppedClock final : public Clock {
 public:
  MonotonicTime Now() const override { return now; }
  WallTime Wall() const override {
    return std::chrono::floor<std::chrono::milliseconds>(WallTime() + now.time_since_epoch());
  }
  MonotonicTime now{std::chrono::hours(1)};
};

constexpr int64_t kTimerDelayMs = 3'600'000;
Duration SomeDelay(Random& random) {
  return std::chrono::milliseconds(random.Below(static_cast<uint64_t>(kTimerDelayMs)));
}
std::string TimerKey(uint64_t i) {
  std::string key(26, 'k');  // as long as an endpoint's id
  for (int digit = 0; digit < 12; ++digit)
    key[static_cast<size_t>(digit)] = "0123456789abcdef"[i >> (4 * digit) & 15];
  return key;
}
double HeapBytes() { return static_cast<double>(mallinfo2().uordblks + mallinfo2().hblkhd); }

// All of a durable timer but the log: one is set at a random time ahead, the earliest fires and is
// acknowledged. `bytes` is what one holds in memory, with the store's copy if that is the heap's.
void DurableTimerSetAndFire(benchmark::State& state) {
  const double before = HeapBytes();
  Bench bench(state);
  SteppedClock clock;
  AnsweringChangelog changelog;
  StateBackend backend(StateBackendOptions{1}, bench.store(), changelog,
                       [](absl::Status why) { Die(why); });
  DurableTimers timers(backend, clock, 2, "timers", [](MonotonicTime) {});
  Random random(1);
  uint64_t made = 0;
  const auto set = [&] {
    if (!timers.Set(TimerKey(made++), 1, SomeDelay(random))) Die(absl::InternalError("no room"));
  };
  for (int64_t i = 0; i < state.range(1); ++i) {
    set();
    if (i % 100 == 99) changelog.Answer();
  }
  changelog.Answer();
  const double bytes = (HeapBytes() - before) / static_cast<double>(state.range(1));
  int unanswered = 0;
  bench.StartCounting();
  for (auto _ : state) {
    set();
    // To when the earliest is due.
    timers.Fire(MonotonicTime::max(), 1,
                [&](absl::string_view key, uint32_t tag, MonotonicTime time) {
                  clock.now = std::max(clock.now, time);
                  if (!timers.Acknowledge(key, tag)) Die(absl::InternalError("no room"));
                });
    if (++unanswered % 100 == 0) changelog.Answer();
  }
  changelog.Answer();
  state.counters["bytes"] = bytes;
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rocksdb", "keys"})->Iterations(kIterations);
  for (const int64_t keys : {10'000, 1'000'000}) {
    for (const int64_t store : {int64_t{kHeap}, int64_t{kRocksdb}}) benchmark->Args({store, keys});
  }
}

BENCHMARK(Put)->Apply(Sizes);
BENCHMARK(PutInBatchesOf100)->Apply(Sizes);
BENCHMARK(Get)->Apply(Sizes);
BENCHMARK(FifoPushAndPop)->Apply(Sizes);
BENCHMARK(TimerInsertAndFire)->Apply(Sizes);
BENCHMARK(ListPushAndRemove)->Apply(Sizes);
BENCHMARK(DurableTimerSetAndFire)->Apply(Sizes);

}  // namespace
}  // namespace postrider

BENCHMARK_MAIN();
