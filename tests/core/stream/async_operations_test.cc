#include "core/stream/async_operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "tests/fakes/fake_result_sink.h"

namespace postrider {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

using Sink = AsyncOperations<std::string>;

IdBytes IdOf(uint64_t number) {
  IdBytes id{};
  id[0] = static_cast<uint8_t>(number);
  return id;
}

class SomeFunction final : public Sink::Owner {
 public:
  void OnEnded(const std::string& key, uint64_t number, std::string result) override {
    ended.emplace_back(number, absl::StrCat(key, "=", result));
  }
  absl::optional<Operation> Describe(const std::string& key, uint64_t number) const override {
    if (key == "ends with its owner") return absl::nullopt;
    return Operation{key, IdOf(number), {}, {}};
  }
  Sink::Telling Leave(const std::string& key, uint64_t number) override {
    left.push_back(number);
    if (key == "ends with its owner") return nullptr;
    return [key, number](const std::string& result) {
      return OperationResult{key, IdOf(number), {}, result};
    };
  }
  std::vector<std::pair<uint64_t, std::string>> ended;
  std::vector<uint64_t> left;
};

class AsyncOperationsTest : public testing::Test {
 protected:
  static OperationResult Told(const std::string& key, uint64_t number, const std::string& result) {
    return {key, IdOf(number), {}, result};
  }
  FakeResultSink results_;
  SomeFunction a_;
  SomeFunction b_;
  const TopicPartition tp_{"t", 3};
};

TEST_F(AsyncOperationsTest, AnEndGoesToWhoBeganIt) {
  Sink sink(results_);
  const uint64_t one = sink.Begin(a_, "x");
  const uint64_t two = sink.Begin(b_, "x");
  EXPECT_NE(one, two);
  EXPECT_EQ(sink.in_flight(a_), 1u);
  sink.End(two, "yes");
  EXPECT_THAT(a_.ended, IsEmpty());
  EXPECT_THAT(b_.ended, ElementsAre(Pair(two, "x=yes")));
  EXPECT_EQ(sink.in_flight(b_), 0u);
  sink.End(two, "again");
  EXPECT_EQ(b_.ended.size(), 1u);
}

TEST_F(AsyncOperationsTest, IsBoundedPerKeyOfAFunctionAndInAll) {
  Sink sink(results_, {4, 2});
  const uint64_t first = sink.Begin(a_, "x");
  EXPECT_TRUE(sink.CanBegin(a_, "x"));
  sink.Begin(a_, "x");
  EXPECT_FALSE(sink.CanBegin(a_, "x"));
  EXPECT_TRUE(sink.CanBegin(a_, "y"));
  EXPECT_TRUE(sink.CanBegin(b_, "x"));
  sink.Begin(b_, "x");
  sink.Begin(b_, "y");
  EXPECT_FALSE(sink.CanBegin(a_, "y"));
  EXPECT_FALSE(sink.CanBegin(b_, "z"));
  sink.End(first, "yes");
  EXPECT_TRUE(sink.CanBegin(a_, "x"));
  sink.Begin(a_, "y");
  EXPECT_FALSE(sink.CanBegin(a_, "x"));
}

TEST_F(AsyncOperationsTest, WhatHasMovedTakesNoRoom) {
  Sink sink(results_, {2, 1});
  sink.Begin(a_, "x");
  sink.Begin(a_, "y");
  sink.Move(a_, tp_);
  EXPECT_EQ(sink.moved(), 2u);
  EXPECT_TRUE(sink.CanBegin(b_, "x"));
}

TEST_F(AsyncOperationsTest, EndsAfterAGiveBackAreKeptUntilItComesStraightBack) {
  Sink sink(results_);
  const uint64_t one = sink.Begin(a_, "x");
  const uint64_t two = sink.Begin(a_, "y");
  const uint64_t other = sink.Begin(b_, "x");
  sink.GiveBack(a_);
  sink.End(one, "yes");
  sink.End(other, "yes");
  EXPECT_THAT(a_.ended, IsEmpty());
  EXPECT_EQ(b_.ended.size(), 1u);
  EXPECT_EQ(sink.in_flight(a_), 1u);
  // Asked for once more, both are to be named: nobody knows yet what came of the first.
  EXPECT_THAT(sink.Operations(a_), ElementsAre(*a_.Describe("x", one), *a_.Describe("y", two)));
  sink.Resume(a_);
  EXPECT_THAT(a_.ended, ElementsAre(Pair(one, "x=yes")));
  sink.End(two, "no");
  EXPECT_EQ(a_.ended.size(), 2u);
  EXPECT_THAT(results_.appended, IsEmpty());
}

TEST_F(AsyncOperationsTest, WhatHasMovedEndsAsAResultOfItsPartition) {
  Sink sink(results_);
  const uint64_t one = sink.Begin(a_, "x");
  const uint64_t two = sink.Begin(a_, "y");
  const uint64_t other = sink.Begin(b_, "x");
  sink.GiveBack(a_);
  sink.End(two, "kept");
  sink.Move(a_, tp_);
  EXPECT_THAT(a_.left, ElementsAre(two, one));
  EXPECT_THAT(results_.appended, ElementsAre(Pair(tp_, Told("y", two, "kept"))));
  EXPECT_EQ(sink.moved(), 1u);
  EXPECT_EQ(sink.in_flight(a_), 0u);
  sink.End(one, "late");
  EXPECT_EQ(results_.appended.size(), 2u);
  EXPECT_EQ(results_.appended.back().second, Told("x", one, "late"));
  EXPECT_EQ(sink.moved(), 0u);
  EXPECT_THAT(a_.ended, IsEmpty());
  sink.End(other, "yes");
  EXPECT_EQ(b_.ended.size(), 1u);
}

TEST_F(AsyncOperationsTest, NobodyHearsOfWhatWasAborted) {
  Sink sink(results_, {2, 1});
  const uint64_t one = sink.Begin(a_, "x");
  const uint64_t two = sink.Begin(a_, "y");
  sink.GiveBack(a_);
  sink.End(one, "kept");
  sink.Abort(a_);
  sink.End(two, "late");
  EXPECT_THAT(a_.ended, IsEmpty());
  EXPECT_THAT(a_.left, IsEmpty());
  EXPECT_THAT(results_.appended, IsEmpty());
  EXPECT_TRUE(sink.CanBegin(a_, "x"));
  sink.Begin(a_, "x");
  sink.Begin(a_, "y");
  EXPECT_EQ(sink.in_flight(a_), 2u);
}

TEST_F(AsyncOperationsTest, WhatEndsWithItsOwnerIsNeitherNamedNorPassedOn) {
  Sink sink(results_);
  const uint64_t one = sink.Begin(a_, "ends with its owner");
  const uint64_t two = sink.Begin(a_, "ends with its owner");
  EXPECT_THAT(sink.Operations(a_), IsEmpty());
  sink.GiveBack(a_);
  sink.End(one, "kept");
  EXPECT_THAT(sink.Operations(a_), IsEmpty());
  sink.Move(a_, tp_);
  EXPECT_EQ(sink.moved(), 0u);
  sink.End(two, "late");
  EXPECT_THAT(results_.appended, IsEmpty());
  EXPECT_THAT(a_.ended, IsEmpty());
}

TEST_F(AsyncOperationsTest, AResumeWithoutAGiveBackChangesNothing) {
  Sink sink(results_);
  const uint64_t one = sink.Begin(a_, "x");
  sink.Resume(a_);
  sink.End(one, "yes");
  EXPECT_THAT(a_.ended, ElementsAre(Pair(one, "x=yes")));
}

// A function goes on from inside of its result.
TEST_F(AsyncOperationsTest, MayBeginTheNextOneFromAnEnd) {
  Sink sink(results_, {1, 1});
  class Again final : public Sink::Owner {
   public:
    explicit Again(Sink& sink) : sink_(sink) {}
    void OnEnded(const std::string& key, uint64_t, std::string) override {
      if (sink_.CanBegin(*this, key)) last = sink_.Begin(*this, key);
    }
    absl::optional<Operation> Describe(const std::string&, uint64_t) const override { return {}; }
    Sink::Telling Leave(const std::string&, uint64_t) override { return nullptr; }
    uint64_t last = 0;

   private:
    Sink& sink_;
  } again(sink);
  const uint64_t first = sink.Begin(again, "x");
  sink.End(first, "yes");
  EXPECT_GT(again.last, first);
  EXPECT_EQ(sink.in_flight(again), 1u);
  sink.Abort(again);
}

}  // namespace
}  // namespace postrider
