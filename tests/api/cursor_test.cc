#include <string>

#include "api/internal/listing.h"
#include "core/crypto/key_ring.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider::api {
namespace {

TEST(CursorTest, OpensForItsListFilterAndOwnerAlone) {
  ASSERT_OK_AND_ASSIGN(const KeyRing keys, KeyRing::Parse(KeyRing::NewKeyLine("k1")));
  const CursorScope scope{"endpoints", ";state=4:open", "cus_a"};
  const std::string cursor = SealCursor(keys, scope, "the last row");
  EXPECT_EQ(OpenCursor(keys, scope, cursor), "the last row");
  EXPECT_FALSE(OpenCursor(keys, {"customers", scope.filter, scope.owner}, cursor).has_value());
  EXPECT_FALSE(OpenCursor(keys, {scope.list, ";state", scope.owner}, cursor).has_value());
  EXPECT_FALSE(OpenCursor(keys, {scope.list, scope.filter, "cus_b"}, cursor).has_value());
}

TEST(CursorTest, RefusesOneThatIsNotOurs) {
  ASSERT_OK_AND_ASSIGN(const KeyRing keys, KeyRing::Parse(KeyRing::NewKeyLine("k1")));
  const CursorScope scope{"endpoints", "", "cus_a"};
  const std::string cursor = SealCursor(keys, scope, "x");
  EXPECT_FALSE(OpenCursor(keys, scope, "").has_value());
  EXPECT_FALSE(OpenCursor(keys, scope, "!!").has_value());
  EXPECT_FALSE(OpenCursor(keys, scope, "AAAA").has_value());
  for (size_t i = 0; i + 2 < cursor.size(); ++i) {
    std::string wrong = cursor;
    wrong[i] = wrong[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(OpenCursor(keys, scope, wrong).has_value()) << i;
  }
}

}  // namespace
}  // namespace postrider::api
