// The OPS cases that the stream core decides, each named by its id; tests/README.md says which
// tests prove the others.
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/core/stream/durable_fixture.h"

namespace postrider {
namespace {

using OpsCasesTest = DurableTest;

// Whether it has worked for long before or not: a store that cannot be opened is tried less and
// less often, each time under a new epoch, and its task alone.
TEST_F(OpsCasesTest, OPS_01_AStoreThatCannotBeOpenedIsTriedLessAndLessOften) {
  Write(t0_, 1);
  auto a = Join();
  Pass(seconds(60), {a.get()}, milliseconds(50));
  ASSERT_EQ(world_.taken["t/0@0"], 1);
  broken_.insert(beside0_);
  a->At(t0_).ctx().Fail(absl::DataLossError("the files are gone"));
  const uint64_t epoch = Epoch(t0_);
  // 100 ms, doubling: 9 of them end within 51.1 s.
  Pass(seconds(50), {a.get()}, milliseconds(50));
  EXPECT_FALSE(a->Has(t0_));
  EXPECT_EQ(a->Metric("postrider_stream_task_restarts_total"), 9);
  EXPECT_LE(Epoch(t0_), epoch + 9);
  Write(t1_, 1);
  Pass(seconds(1), {a.get()}, milliseconds(50));
  EXPECT_EQ(world_.taken["t/1@0"], 1);
  broken_.clear();
  Write(t0_, 1);
  Pass(seconds(31), {a.get()}, milliseconds(50));
  EXPECT_EQ(world_.taken["t/0@1"], 1);
}

}  // namespace
}  // namespace postrider
