// What the backlog costs: CPU us for each message of 700 bytes that is parked, and for each that is
// drained again in signed batches of 1,000. The real function, states and stores; changelog, sink
// and clock are fakes that cost next to nothing. Run it from a Release build:
//
//   delivery_backlog_benchmark [--benchmark_filter=REGEX]
//
// `cpu_us` is the thread's, per message; `process_cpu_us` counts RocksDB's own threads too.

#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <array>
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
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/crypto/digest.h"
#include "core/crypto/key_ring.h"
#include "core/state/heap_store.h"
#include "core/state/rocksdb_store.h"
#include "delivery/backlog_state.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_timers.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/snapshot.h"
#include "tests/fakes/fake_result_sink.h"
#include "tests/fakes/manual_clock.h"

namespace postrider::delivery {
namespace {

enum Store : int64_t { kHeap = 0, kRocksdb = 1 };
constexpr size_t kRecordBytes = 700;
constexpr size_t kEndpoints = 10;
constexpr size_t kMessages = 200'000;
constexpr int64_t kAnsweredTogether = 500;

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

double CpuSeconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// As random as an id is.
IdBytes Bytes(size_t number) {
  const Sha256Digest digest = Sha256(absl::StrCat("id", number));
  IdBytes bytes{};
  std::copy_n(digest.begin(), bytes.size(), bytes.begin());
  return bytes;
}

// Takes all; answers when it is told to.
class QuietChangelog final : public ChangelogWriter {
 public:
  bool Append(EncodedChangelogRecord&& record, AppendDone&& done) override {
    bytes_ += record.key.size() + record.value.size();
    answers_.push_back(std::move(done));
    return true;
  }
  void AnswerAll() {
    while (!answers_.empty()) {
      AppendDone done = std::move(answers_.front());
      answers_.pop_front();
      std::move(done)(absl::OkStatus());
    }
  }
  size_t waiting() const { return answers_.size(); }

 private:
  std::deque<AppendDone> answers_;
  size_t bytes_ = 0;
};

class QuietSink final : public HttpSink {
 public:
  bool CanSend() const override { return true; }
  size_t RoomFor(const std::string&) const override { return 1; }
  HttpRequestId Send(HttpRequest request, Done done) override {
    benchmark::DoNotOptimize(request.body.data());
    waiting_.push_back(std::move(done));
    return ++last_;
  }
  void Abort(HttpRequestId) override {}
  void AbortAll() override {
    for (Done& done : std::exchange(waiting_, {})) {
      HttpResult result;
      result.failure = HttpFailure::kAborted;
      std::move(done)(std::move(result));
    }
  }
  size_t in_flight() const override { return waiting_.size(); }
  void SetAddressRules(std::shared_ptr<const AddressRules>) override {}
  void AnswerAll(int status) {
    for (Done& done : std::exchange(waiting_, {})) {
      HttpResult result;
      result.status = status;
      result.request_sent = true;
      std::move(done)(std::move(result));
    }
  }

 private:
  std::vector<Done> waiting_;
  HttpRequestId last_ = 0;
};

class QuietContext final : public TaskContext {
 public:
  QuietContext(const Clock& clock, std::unique_ptr<StateStore> backlog) : clock_(clock) {
    stores_[kEndpointChangelog] = MakeHeapStore({});
    stores_[kBacklogChangelog] = std::move(backlog);
    for (size_t i = 0; i < stores_.size(); ++i) {
      StateBackendOptions options;
      options.epoch = 1;
      backends_[i] = std::make_unique<StateBackend>(options, *stores_[i], changelogs_[i],
                                                    [](const absl::Status& why) { Must(why); });
    }
  }
  void AnswerAll() {
    while (changelogs_[0].waiting() + changelogs_[1].waiting() > 0) {
      for (QuietChangelog& changelog : changelogs_) changelog.AnswerAll();
    }
  }
  size_t completed() const { return completed_; }

  const Clock& clock() const override { return clock_; }
  const TopicPartition& partition() const override { return tp_; }
  uint64_t epoch() const override { return 1; }
  int64_t incarnation_ms() const override { return 1; }
  void Complete(int64_t) override { ++completed_; }
  bool Emit(AppendRecord&&, LogProducer::AppendDone&&) override { return false; }
  StateBackend& state(size_t index) override { return *backends_[index]; }
  void SetTimer(absl::string_view, uint32_t, MonotonicTime) override {}
  void CancelTimer(absl::string_view, uint32_t) override {}
  bool MayAct() const override { return true; }
  absl::AnyInvocable<void() &&> Guard(absl::AnyInvocable<void() &&> callback) override {
    return callback;
  }
  bool under_pressure() const override { return false; }
  void Fail(absl::Status why) override { Must(why); }

 private:
  const Clock& clock_;
  TopicPartition tp_{"dispatch", 0};
  std::array<std::unique_ptr<StateStore>, 2> stores_;
  std::array<QuietChangelog, 2> changelogs_;
  std::array<std::unique_ptr<StateBackend>, 2> backends_;
  size_t completed_ = 0;
};

class NoAppends final : public LogProducer {
 public:
  bool Append(AppendRecord&&, AppendDone&&) override { return false; }
  void SetRoomCallback(absl::AnyInvocable<void()>) override {}
  size_t pending() const override { return 0; }
  void Poll() override {}
  void Flush() override {}
};

// One key group with endpoints of batches of 1,000.
class Bench {
 public:
  explicit Bench(Store store)
      : keys_(*KeyRing::Parse(KeyRing::NewKeyLine("k1"))), metrics_(all_metrics_) {
    clock_.SetWall(WallTimeFromMillis(1'900'000'000'000));
    loop_ = *EventLoop::Create(clock_);
    std::unique_ptr<StateStore> backlog;
    if (store == kHeap) {
      HeapStoreOptions options;
      options.bytes_max = size_t{4} << 30;
      backlog = MakeHeapStore(options);
    } else {
      std::string path =
          (std::filesystem::temp_directory_path() / "postrider-bench-XXXXXX").string();
      directory_ = mkdtemp(path.data());
      shared_ = RocksdbShared::Create({});
      RocksdbStoreOptions options;
      options.directory = directory_ / "store";
      absl::StatusOr<std::unique_ptr<StateStore>> opened = OpenRocksdbStore(*shared_, options);
      Must(opened.status());
      backlog = *std::move(opened);
    }
    ctx_ = std::make_unique<QuietContext>(clock_, std::move(backlog));
    auto sink = std::make_unique<QuietSink>();
    sink_ = sink.get();
    DeliveryOptions options;
    options.durable_backlog = true;
    program_ = std::make_unique<DeliveryProgram>(ShardEnvironment{*loop_, producer_, 0, results_},
                                                 options, std::move(sink), keys_, metrics_, 7);
    function_ = program_->CreateFunction(ctx_->partition());
    Must(function_->Open(*ctx_));
    function_->OnRestored(*ctx_, kEndpointChangelog);
    function_->OnRestored(*ctx_, kBacklogChangelog);
    function_->OnResume(*ctx_);
    Publish();
  }
  ~Bench() {
    function_->Close(*ctx_, KeyedProcessFunction::CloseReason::kEnded);
    function_.reset();
    sink_->AbortAll();
    program_.reset();
    ctx_.reset();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  // As read from the log.
  std::vector<std::pair<std::string, std::string>> Records() const {
    std::vector<std::pair<std::string, std::string>> records;
    records.reserve(kMessages);
    for (size_t i = 0; i < kMessages; ++i) {
      subscriptions::DispatchRecord record;
      record.identity.source_topic = "events.order.created";
      record.identity.source_offset = static_cast<int64_t>(i);
      record.identity.endpoint = subscriptions::EndpointId(Bytes(i % kEndpoints + 1));
      record.customer = customer_;
      record.event_id = absl::StrCat("0b0f7a3e-6a1c-4f6e-9d1f-", 100'000'000'000 + i);
      record.message_id = subscriptions::MakeMessageId(record.identity, record.event_id);
      record.type = "order.created";
      record.tenant = "organisation-4711";
      record.event_time = clock_.Wall();
      record.dispatch_time = clock_.Wall() - std::chrono::seconds(60);
      record.endpoint_xid = 1;
      record.grants_xid = 1;
      record.data = "{}";
      const size_t frame = subscriptions::EncodeDispatchRecord(record).size();
      record.data = absl::StrCat("{\"text\":\"", std::string(kRecordBytes - frame - 9, 'x'), "\"}");
      records.emplace_back(std::string(record.identity.endpoint.view()),
                           subscriptions::EncodeDispatchRecord(record));
    }
    return records;
  }

  // A draining pool parks everything at once.
  void Park(const std::vector<std::pair<std::string, std::string>>& records) {
    program_->SetDraining(true);
    for (const auto& [key, value] : records) {
      LogRecord record;
      record.topic = "dispatch";
      record.offset = next_offset_++;
      record.key = key;
      record.value = value;
      function_->OnElement(*ctx_, record);
      if (next_offset_ % kAnsweredTogether == 0) ctx_->AnswerAll();
    }
    ctx_->AnswerAll();
    function_->OnTimer(*ctx_, kFunctionKey, kAgeTimer,
                       clock_.Now());  // what came before has_backlog was set
    ctx_->AnswerAll();
    if (ctx_->completed() != records.size())
      Must(absl::InternalError(absl::StrCat("parked ", ctx_->completed(), " of ", records.size())));
  }

  void Drain() {
    const double before = metrics_.delivered.value();
    program_->SetDraining(false);
    // A few of each endpoint, from before has_backlog was set, stand in an open batch.
    clock_.Advance(std::chrono::seconds(2));
    for (size_t i = 1; i <= kEndpoints; ++i) {
      function_->OnTimer(*ctx_, subscriptions::EndpointId(Bytes(i)).view(), kBatchTimer,
                         clock_.Now());
    }
    while (metrics_.delivered.value() - before < static_cast<double>(kMessages)) {
      program_->OnTurnEnd();
      if (sink_->in_flight() == 0) Must(absl::InternalError("nothing is drained any more"));
      sink_->AnswerAll(200);
      ctx_->AnswerAll();
    }
  }

 private:
  void Publish() {
    subscriptions::SnapshotBuilder builder;
    builder.PutCustomer(customer_, 1, 1);
    builder.PutGrant(customer_, "organisation-4711", 1);
    for (size_t i = 1; i <= kEndpoints; ++i) {
      subscriptions::Endpoint endpoint;
      endpoint.id = subscriptions::EndpointId(Bytes(i));
      endpoint.customer = customer_;
      endpoint.settings.url = "http://receiver.example/hook";
      endpoint.changed_xid = 1;
      endpoint.secrets_sealed = *subscriptions::SealEndpointSecrets(
          keys_, customer_, endpoint.id,
          {{"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", clock_.Wall(), {}}});
      builder.PutEndpoint(std::move(endpoint));
    }
    program_->SetSnapshot(
        builder.Build(*subscriptions::PgSnapshot::Parse("10:10:"), clock_.Wall(), "origin"));
  }

  ManualClock clock_;
  subscriptions::CustomerId customer_{Bytes(1)};
  KeyRing keys_;
  std::unique_ptr<EventLoop> loop_;
  NoAppends producer_;
  FakeResultSink results_;
  Metrics all_metrics_;
  DeliveryMetrics metrics_;
  std::filesystem::path directory_;
  std::unique_ptr<RocksdbShared> shared_;
  std::unique_ptr<QuietContext> ctx_;
  QuietSink* sink_ = nullptr;
  std::unique_ptr<DeliveryProgram> program_;
  std::unique_ptr<KeyedProcessFunction> function_;
  int64_t next_offset_ = 0;
};

enum Part : int64_t { kPark = 0, kDrain = 1 };

void BM_Backlog(benchmark::State& state) {
  double thread = 0;
  double process = 0;
  for (auto _ : state) {
    state.PauseTiming();
    Bench bench(static_cast<Store>(state.range(0)));
    const auto records = bench.Records();
    if (state.range(1) == kDrain) bench.Park(records);
    state.ResumeTiming();
    const double thread_before = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
    const double process_before = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    if (state.range(1) == kDrain) {
      bench.Drain();
    } else {
      bench.Park(records);
    }
    thread += CpuSeconds(CLOCK_THREAD_CPUTIME_ID) - thread_before;
    process += CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - process_before;
  }
  const double messages = static_cast<double>(state.iterations()) * kMessages;
  state.counters["cpu_us"] = thread / messages * 1e6;
  state.counters["process_cpu_us"] = process / messages * 1e6;
}
BENCHMARK(BM_Backlog)
    ->ArgNames({"rocksdb", "drain"})
    ->ArgsProduct({{kHeap, kRocksdb}, {kPark, kDrain}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace postrider::delivery

BENCHMARK_MAIN();
