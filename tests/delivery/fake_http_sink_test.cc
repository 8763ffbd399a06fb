// The sink that tests of delivery look through keeps what HttpSink promises.

#include "tests/fakes/fake_http_sink.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/contract/http_sink_contract.h"

namespace postrider::contract {
namespace {

// Its slots and the host's part of its line are this receiver's; the fake has no way to either.
class FakeSinkEnvironment final : public HttpSinkContractEnvironment {
 public:
  FakeSinkEnvironment() { sink_.SetRoom(kSlots + kWaitingMax); }

  HttpSink& sink() override { return sink_; }
  std::string url() const override { return "http://receiver.example/hook"; }
  bool RunUntil(const std::function<bool()>& done) override {
    constexpr int kTurnsMax = 100;
    for (int turn = 0; turn < kTurnsMax && !done(); ++turn) Turn();
    return done();
  }
  void Settle() override {
    Turn();
    Turn();
  }
  size_t seen() const override { return seen_.size(); }
  Seen at(size_t index) const override {
    FakeHttpSink::Sent& sent = sink_.at(seen_.at(index));
    return {sent.request.body, [&sent](const std::string& name) { return sent.Header(name); }};
  }
  void Answer(size_t index, int status, const std::string& body) override {
    HttpResult result;
    result.status = status;
    result.body_excerpt = body;
    sink_.Answer(seen_.at(index), std::move(result));
  }
  void Break(size_t index) override { sink_.Fail(seen_.at(index), HttpFailure::kReset); }

 private:
  // A turn of the loop: what was aborted is answered, and free slots are given away.
  void Turn() {
    sink_.DeliverAborts();
    for (; next_ < sink_.size() && Flying() < kSlots; ++next_) {
      if (!sink_.at(next_).open) continue;
      if (sink_.at(next_).request.may_start != nullptr && !sink_.MayStart(next_)) {
        sink_.Fail(next_, HttpFailure::kAborted);
      } else {
        seen_.push_back(next_);
      }
    }
  }
  size_t Flying() const {
    size_t flying = 0;
    for (const size_t index : seen_) flying += sink_.at(index).open ? 1 : 0;
    return flying;
  }

  mutable FakeHttpSink sink_;
  size_t next_ = 0;  // the first that has no slot yet
  std::vector<size_t> seen_;
};

INSTANTIATE_TEST_SUITE_P(Fake, HttpSinkContract, testing::Values([] {
                           return std::unique_ptr<HttpSinkContractEnvironment>(
                               std::make_unique<FakeSinkEnvironment>());
                         }));

}  // namespace
}  // namespace postrider::contract
