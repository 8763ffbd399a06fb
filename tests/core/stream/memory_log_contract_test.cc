#include <chrono>
#include <memory>
#include <string>

#include "core/base/event_loop.h"
#include "gtest/gtest.h"
#include "tests/contract/log_contract.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_log.h"

namespace postrider::contract {
namespace {

class MemoryEnvironment final : public LogContractEnvironment {
 public:
  Log& log() override { return log_; }
  EventLoop& loop() override { return *loop_; }
  void Step() override {
    loop_->RunOnce(Duration::zero());
    clock_.Advance(std::chrono::milliseconds(5));
  }
  std::string prefix() override { return "contract."; }

 private:
  ManualClock clock_;
  MemoryLog log_{clock_};
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_);
};

INSTANTIATE_TEST_SUITE_P(Memory, LogContract, testing::Values(LogContractFactory([] {
                           return std::make_unique<MemoryEnvironment>();
                         })));

}  // namespace
}  // namespace postrider::contract
