#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/random.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using subscriptions::BlockedHead;
using subscriptions::EndpointMode;
using subscriptions::OrderKind;
using CloseReason = KeyedProcessFunction::CloseReason;

constexpr int kSeeds = 60;
constexpr int kSteps = 400;
constexpr int kMessagesMax = 250;

// One endpoint with order, a receiver that fails, a changelog that refuses and answers late, and
// lives that end by a crash, a handover or in between. What is checked: the first arrival of a
// message never comes before those of its key that were dispatched before it have arrived or have
// become dead letters; and in the end all have.
class OrderingPropertyTest : public DeliveryFixture {
 protected:
  void Run(uint64_t seed) {
    random_.emplace(seed);
    granted_ = {"t1", "t2", "t3"};
    settings_.order.kind = Chance(2) ? OrderKind::kKey : OrderKind::kEndpoint;
    if (Chance(3)) settings_.order.key_pointer = "/k";
    settings_.order.blocked = Chance(2) ? BlockedHead::kHold : BlockedHead::kDeadLetter;
    settings_.mode = Chance(2) ? EndpointMode::kStreaming : EndpointMode::kBatch;
    settings_.batch.events_max = 1 + Below(8);
    settings_.batch.wait_max = milliseconds(Chance(2) ? 0 : Below(8'000));
    settings_.retry.attempts = 1 + static_cast<int>(Below(4));
    settings_.retry.horizon = seconds(1 + Below(60));
    settings_.retry.first_delay = milliseconds(1 + Below(3'000));
    settings_.partial_ack = Chance(3);
    settings_.window_max = 1 + static_cast<int>(Below(8));
    options_.endpoint_share_bytes = Chance(2) ? 1'000 : 1 << 20;
    options_.waiting_bytes_max = Chance(4) ? 1 : 32 << 20;
    options_.backlog_room_bytes = Chance(4) ? 2'000 : 32 << 20;
    Stop();
    program_.reset();
    MakeProgram();
    Publish();
    Start();
    read_ = 0;
    for (int step = 0; step < kSteps && !HasFailure(); ++step) Step();
    if (!HasFailure()) Quiet();
  }

  uint64_t Below(uint64_t bound) { return random_->Below(bound); }
  bool Chance(uint64_t one_in) { return Below(one_in) == 0; }

  void Step() {
    switch (Below(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
        for (uint64_t n = 1 + Below(4); n > 0; --n) Dispatch();
        break;
      case 4:
      case 5:
      case 6:
        for (uint64_t n = 1 + Below(6); n > 0; --n) Read();
        break;
      case 7:
      case 8:
      case 9:
      case 10:
        if (sink_->in_flight() > 0) AnswerOne(Below(3) > 0);
        break;
      case 11:
      case 12:
        Advance(milliseconds(Below(4'000)));
        break;
      case 13:
        Settle();
        break;
      case 14:
        AnswerSomeWrites();
        break;
      case 15:
        AcknowledgeLetters();
        break;
      case 16:
        committed_ = Completed();
        break;
      case 17:
        for (const size_t index : {kEndpointChangelog, kBacklogChangelog}) {
          ctx().changelog(index).room = Chance(2) ? Below(3) : 1'000'000;
        }
        ctx().GiveRoom(*function_);
        break;
      case 18:
        if (!restored_ && Chance(2)) Restore();
        if (Chance(20)) function_->OnPressure(ctx());
        break;
      case 19:
        if (Chance(4)) Crash();
        if (Chance(4)) HandOver();
        break;
    }
    for (uint64_t n = Below(3); n > 0; --n) Turn();
    Look();
  }

  void Dispatch() {
    if (log_.size() >= static_cast<size_t>(kMessagesMax)) return;
    const auto number = static_cast<int64_t>(log_.size());
    subscriptions::DispatchRecord record = MakeRecord(number);
    record.tenant = absl::StrCat("t", 1 + Below(3));
    const std::string key = absl::StrCat(Below(4));
    record.data = absl::StrCat("{\"k\":", key, "}");
    if (settings_.order.kind == OrderKind::kEndpoint) {
      keys_of_.push_back("");
    } else {
      keys_of_.push_back(settings_.order.key_pointer.empty() ? record.tenant : key);
    }
    log_.push_back(std::move(record));
  }

  void Read() {
    if (read_ >= log_.size()) {
      function_->OnPartitionEnd(ctx(), static_cast<int64_t>(log_.size()));
      return;
    }
    const auto offset = static_cast<int64_t>(read_++);
    if (skipped_.contains(offset)) {
      OwnedRecord owned;
      owned.offset = offset;
      owned.key = std::string(endpoint_.view());
      owned.value = subscriptions::EncodeDispatchRecord(log_[static_cast<size_t>(offset)]);
      function_->OnSkipped(ctx(), owned.View());
    } else {
      DeliverAt(offset, log_[static_cast<size_t>(offset)]);
    }
  }

  // What was sent since: some of it arrives, some later, some never.
  void Look() {
    for (; seen_ < sink_->size(); ++seen_) {
      const std::vector<size_t> messages = MessagesOf(sink_->at(seen_));
      if (!sink_->MayStart(seen_)) continue;
      switch (Below(4)) {
        case 0:
          break;  // no connection
        default:
          if (Chance(3)) late_.push_back(messages);
          Arrive(messages);
          arrived_requests_.insert(seen_);
      }
    }
    if (!late_.empty() && Chance(5)) {
      Arrive(late_.back());  // once more: an answer was lost
      late_.pop_back();
    }
  }
  static std::vector<size_t> MessagesOf(const FakeHttpSink::Sent& sent) {
    std::vector<size_t> messages;
    const std::string mark = "\"event_id\":\"e";
    const std::string& body = sent.request.body;
    for (size_t at = body.find(mark); at != std::string::npos; at = body.find(mark, at)) {
      at += mark.size();
      messages.push_back(
          static_cast<size_t>(std::stoull(body.substr(at, body.find('"', at) - at))));
    }
    return messages;
  }
  void Arrive(const std::vector<size_t>& messages) {
    for (const size_t message : messages) {
      if (!arrived_.insert(message).second || dead_.contains(message)) continue;
      for (size_t before = 0; before < message; ++before) {
        if (keys_of_[before] != keys_of_[message] || arrived_.contains(before)) continue;
        ASSERT_TRUE(dead_.contains(before))
            << "message " << message << " has arrived before " << before;
      }
    }
  }

  void AnswerOne(bool well) {
    std::vector<size_t> open;
    for (size_t i = 0; i < sink_->size(); ++i) {
      if (sink_->at(i).open) open.push_back(i);
    }
    const size_t at = open[Below(open.size())];
    Look();
    if (!arrived_requests_.contains(at)) return sink_->Fail(at, HttpFailure::kConnect);
    if (well) return sink_->AnswerStatus(at, 200);
    switch (Below(6)) {
      case 0:
        return sink_->AnswerStatus(at, 400);
      case 1:
        return sink_->AnswerStatus(at, 413);
      case 2: {
        // Some of it has failed, as far as the endpoint asks.
        HttpResult result;
        result.status = 200;
        const size_t messages = MessagesOf(sink_->at(at)).size();
        result.body_excerpt = absl::StrCat("{\"failed\":[", Below(messages), "]}");
        return sink_->Answer(at, std::move(result));
      }
      case 3:
        return sink_->AnswerStatus(at, 500);
      case 4:
        return sink_->AnswerStatus(at, 503);
      default:
        return sink_->Fail(at, HttpFailure::kTimeout);
    }
  }

  void AnswerSomeWrites() {
    for (const size_t index : {kEndpointChangelog, kBacklogChangelog}) {
      ScriptedChangelog& changelog = ctx().changelog(index);
      for (uint64_t n = Below(4); n > 0 && changelog.waiting() > 0; --n) changelog.Answer(0);
    }
  }
  void AcknowledgeLetters() {
    for (size_t i = 0; i < ctx().emitted().size(); ++i) {
      if (ctx().emitted()[i].answered) continue;
      dead_.insert(static_cast<size_t>(std::stoull(Letter(i).event_id.substr(1))));
      ctx().Acknowledge(i);
    }
  }

  std::set<int64_t> Completed() {
    std::set<int64_t> completed = skipped_;
    for (size_t offset = 0; offset < watermark_; ++offset) {
      completed.insert(static_cast<int64_t>(offset));
    }
    for (const int64_t offset : ctx().completed()) completed.insert(offset);
    return completed;
  }
  void TakeCommit() {
    watermark_ = 0;
    while (committed_.contains(static_cast<int64_t>(watermark_))) ++watermark_;
    skipped_ = committed_;
    read_ = watermark_;
    restored_ = false;
  }
  void Restore() {
    restored_ = true;
    RestoreBacklog();
  }

  void Crash() {
    BeginNextLife();
    TakeCommit();
    function_->OnResume(ctx());
    if (Chance(2)) Restore();
  }
  void HandOver() {
    function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
    ctx().set_may_act(false);
    EXPECT_TRUE(function_->Operations().empty());
    Settle();
    committed_ = Completed();
    function_->OnGivenBack(ctx());
    if (sink_->in_flight() > 0 && Chance(2)) AnswerOne(Chance(2));
    if (Chance(3)) {
      ctx().set_may_act(true);
      function_->OnResume(ctx());
      return;
    }
    BeginNextLife(CloseReason::kMoved);
    TakeCommit();
    function_->OnResume(ctx());
    if (Chance(2)) Restore();
  }

  // All faults end, and everything comes to its end.
  void Quiet() {
    for (const size_t index : {kEndpointChangelog, kBacklogChangelog}) {
      ctx().changelog(index).room = 1'000'000;
    }
    if (!restored_) Restore();
    for (int round = 0; round < 3'000; ++round) {
      ctx().GiveRoom(*function_);
      Settle();
      Read();
      AcknowledgeLetters();
      for (int turn = 0; turn < 3; ++turn) Turn();
      Look();
      while (sink_->in_flight() > 0) AnswerOne(true);
      if (Ended() && read_ == log_.size() && metrics_.backlog_messages.value() == 0 &&
          ctx().unanswered() == 0 && Completed().size() == log_.size()) {
        break;
      }
      Advance(milliseconds(500));
      Look();
      if (HasFailure()) return;
    }
    Settle();
    for (size_t message = 0; message < log_.size(); ++message) {
      EXPECT_TRUE(arrived_.contains(message) || dead_.contains(message)) << message << " is lost";
    }
    EXPECT_EQ(metrics_.backlog_messages.value(), 0);
    const std::set<int64_t> completed = Completed();
    for (size_t offset = 0; offset < log_.size(); ++offset) {
      EXPECT_TRUE(completed.contains(static_cast<int64_t>(offset))) << offset << " holds the log";
    }
    EXPECT_EQ(ctx().failure(), absl::nullopt);
  }

  bool Ended() const {
    for (size_t message = 0; message < log_.size(); ++message) {
      if (!arrived_.contains(message) && !dead_.contains(message)) return false;
    }
    return true;
  }

  absl::optional<Random> random_;
  std::vector<subscriptions::DispatchRecord> log_;
  std::vector<std::string> keys_of_;
  size_t read_ = 0;
  size_t watermark_ = 0;
  bool restored_ = true;
  std::set<int64_t> committed_;  // completed as the last commit says
  std::set<int64_t> skipped_;    // the same as this life found it
  size_t seen_ = 0;
  absl::flat_hash_set<size_t> arrived_requests_;
  std::vector<std::vector<size_t>> late_;
  absl::flat_hash_set<size_t> arrived_;
  absl::flat_hash_set<size_t> dead_;
};

// Each in a fixture of its own.
class OneOrderingRun : public OrderingPropertyTest {
 public:
  using OrderingPropertyTest::Run;
  void TestBody() override {}
};

TEST(OrderingProperties, NothingIsReorderedOrLostWhateverFails) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    OneOrderingRun run;
    run.Run(seed);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace postrider::delivery
