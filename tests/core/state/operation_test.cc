#include "core/stream/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using testing::HasSubstr;

IdBytes IdOf(uint8_t first) {
  IdBytes id{};
  id[0] = first;
  return id;
}

std::vector<Operation> SomeOperations() {
  return {{"ep_a", IdOf(1), {0, 1, 7, int64_t{1} << 40}, WallTimeFromMillis(1'704'067'215'000)},
          {std::string("\0k", 2), IdOf(2), {}, WallTimeFromMillis(-1)},
          {"", IdOf(3), {std::numeric_limits<int64_t>::max() - 1}, WallTimeFromMillis(0)}};
}

OperationResult SomeResult() {
  return {"ep_a", IdOf(9), {3, 4, 100}, std::string(kOutcomeBytesMax, 'x')};
}

TEST(Operation, ComesBackAsItWasWritten) {
  EXPECT_THAT(DecodeOperations(EncodeOperations(SomeOperations())),
              tests::IsOkAndHolds(SomeOperations()));
  EXPECT_THAT(DecodeOperations(EncodeOperations({})),
              tests::IsOkAndHolds(std::vector<Operation>()));
  EXPECT_THAT(DecodeOperationResult(EncodeOperationResult(SomeResult())),
              tests::IsOkAndHolds(SomeResult()));
}

TEST(Operation, RefusesWhatIsCutChangedOrLonger) {
  OperationResult small = SomeResult();
  small.outcome = "ok";
  const std::string operations = EncodeOperations(SomeOperations());
  const std::string result = EncodeOperationResult(small);
  for (const std::string& encoded : {operations, result}) {
    for (size_t size = 0; size < encoded.size(); ++size) {
      const absl::string_view cut = absl::string_view(encoded).substr(0, size);
      EXPECT_THAT(DecodeOperations(cut), tests::StatusIs(absl::StatusCode::kDataLoss));
      EXPECT_THAT(DecodeOperationResult(cut), tests::StatusIs(absl::StatusCode::kDataLoss));
    }
    for (size_t bit = 0; bit < encoded.size() * 8; ++bit) {
      std::string changed = encoded;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_FALSE(DecodeOperations(changed).ok()) << "bit " << bit;
      EXPECT_FALSE(DecodeOperationResult(changed).ok()) << "bit " << bit;
    }
    EXPECT_THAT(DecodeOperations(encoded + '\0'), tests::StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(DecodeOperationResult(encoded + '\0'),
                tests::StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(Operation, TellsANewerVersionFromDamage) {
  std::string encoded = EncodeOperations(SomeOperations());
  encoded[0] = 2;
  EXPECT_THAT(DecodeOperations(encoded),
              tests::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("version 2")));
  EXPECT_THAT(DecodeOperationResult(encoded), tests::StatusIs(absl::StatusCode::kUnimplemented));
  for (const int version : {0, 10, 255}) {
    encoded[0] = static_cast<char>(version);
    EXPECT_THAT(DecodeOperations(encoded), tests::StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(Operation, IsNotReadAsTheOtherKind) {
  EXPECT_THAT(DecodeOperationResult(EncodeOperations(SomeOperations())),
              tests::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("another kind")));
  EXPECT_THAT(DecodeOperations(EncodeOperationResult(SomeResult())),
              tests::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("another kind")));
}

TEST(Operation, NamesNoMoreThanItsBound) {
  std::vector<Operation> many(kOperationsMax + 5, SomeOperations()[1]);
  const auto decoded = DecodeOperations(EncodeOperations(many));
  ASSERT_THAT(decoded, tests::IsOk());
  EXPECT_EQ(decoded->size(), kOperationsMax);
}

}  // namespace
}  // namespace postrider
