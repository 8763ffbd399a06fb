#include "tests/contract/log_contract.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/embedded_log/embedded_log.h"
#include "gtest/gtest.h"
#include "tests/core/state/temporary_directory.h"
#include "tests/fakes/manual_clock.h"

namespace postrider::contract {
namespace {

// The clock is moved by hand, faster than the writer's thread answers: nothing hangs on how fast
// that is.
class EmbeddedEnvironment final : public LogContractEnvironment {
 public:
  EmbeddedEnvironment() {
    EmbeddedLogOptions options;
    options.directory = directory_.path() + "/log";
    options.sync_interval = std::chrono::milliseconds(0);
    auto opened = EmbeddedLog::Open(options, clock_, metrics_);
    POSTRIDER_CHECK(opened.ok());
    log_ = *std::move(opened);
  }
  Log& log() override { return *log_; }
  EventLoop& loop() override { return *loop_; }
  void Step() override {
    loop_->RunOnce(std::chrono::microseconds(200));
    clock_.Advance(std::chrono::milliseconds(10));
  }
  std::string prefix() override { return "contract."; }

 private:
  const tests::TemporaryDirectory directory_;
  ManualClock clock_;
  Metrics metrics_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_);
  std::unique_ptr<EmbeddedLog> log_;
};

INSTANTIATE_TEST_SUITE_P(Embedded, LogContract, testing::Values(LogContractFactory([] {
                           return std::make_unique<EmbeddedEnvironment>();
                         })));

}  // namespace
}  // namespace postrider::contract
