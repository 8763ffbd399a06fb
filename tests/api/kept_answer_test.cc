#include "api/internal/kept_answer.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using tests::StatusIs;

KeyRing Ring(const std::string& lines) { return *KeyRing::Parse(lines); }

IdempotencyKey SomeKey() {
  return {.owner = "abcdefghijkl",
          .route = "createThing",
          .key = Sha256("key"),
          .request = Sha256("request"),
          .customer = absl::nullopt};
}

Response SomeAnswer() {
  Response answer;
  answer.status = 201;
  answer.headers = {{"etag", "\"g1\""}};
  answer.body = R"({"secret":"whsec_x","text":"é\u0000\"\\"})";
  return answer;
}

TEST(KeptAnswerTest, ComesBackAsItWas) {
  const KeyRing keys = Ring(KeyRing::NewKeyLine("k1"));
  ASSERT_OK_AND_ASSIGN(const std::string sealed, SealAnswer(SomeKey(), keys, SomeAnswer()));
  ASSERT_OK_AND_ASSIGN(const Kept kept, OpenAnswer(SomeKey(), keys, sealed));
  EXPECT_EQ(kept.state, Kept::State::kDone);
  EXPECT_EQ(kept.answer.status, 201);
  EXPECT_EQ(kept.answer.body, SomeAnswer().body);
  EXPECT_EQ(kept.answer.content_type, "application/json");
  EXPECT_THAT(kept.answer.headers,
              ElementsAre(Pair("etag", "\"g1\""), Pair("idempotency-replayed", "true")));
}

TEST(KeptAnswerTest, ShowsNothingOfItselfWhereItIsKept) {
  const KeyRing keys = Ring(KeyRing::NewKeyLine("k1"));
  ASSERT_OK_AND_ASSIGN(const std::string sealed, SealAnswer(SomeKey(), keys, SomeAnswer()));
  EXPECT_THAT(sealed, Not(HasSubstr("whsec_")));
  EXPECT_THAT(sealed, Not(HasSubstr("\"g1\"")));
  // Nor the request's hash: a body's password could be guessed by it.
  EXPECT_THAT(sealed, Not(HasSubstr(HexDigest(SomeKey().request))));
  EXPECT_THAT(sealed, Not(HasSubstr(DigestView(SomeKey().request))));
}

TEST(KeptAnswerTest, IsNotToldToAnotherRequest) {
  const KeyRing keys = Ring(KeyRing::NewKeyLine("k1"));
  ASSERT_OK_AND_ASSIGN(const std::string sealed, SealAnswer(SomeKey(), keys, SomeAnswer()));
  IdempotencyKey other = SomeKey();
  other.request = Sha256("another");
  ASSERT_OK_AND_ASSIGN(const Kept kept, OpenAnswer(other, keys, sealed));
  EXPECT_EQ(kept.state, Kept::State::kOther);
  EXPECT_EQ(kept.answer.body, "");
}

TEST(KeptAnswerTest, OpensInItsOwnRowOnly) {
  const KeyRing keys = Ring(KeyRing::NewKeyLine("k1"));
  ASSERT_OK_AND_ASSIGN(const std::string sealed, SealAnswer(SomeKey(), keys, SomeAnswer()));
  IdempotencyKey other = SomeKey();
  other.owner = "mnopqrstuvwx";
  EXPECT_THAT(OpenAnswer(other, keys, sealed), StatusIs(absl::StatusCode::kDataLoss));
  other = SomeKey();
  other.route = "createOther";
  EXPECT_THAT(OpenAnswer(other, keys, sealed), StatusIs(absl::StatusCode::kDataLoss));
  other = SomeKey();
  other.key = Sha256("other");
  EXPECT_THAT(OpenAnswer(other, keys, sealed), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(KeptAnswerTest, OpensWithAFormerMasterKeyAndNotWithoutIt) {
  const std::string former = KeyRing::NewKeyLine("k1");
  const std::string fresh = KeyRing::NewKeyLine("k2");
  ASSERT_OK_AND_ASSIGN(const std::string sealed, SealAnswer(SomeKey(), Ring(former), SomeAnswer()));
  EXPECT_OK(OpenAnswer(SomeKey(), Ring(fresh + "\n" + former), sealed));
  EXPECT_THAT(OpenAnswer(SomeKey(), Ring(fresh), sealed), StatusIs(absl::StatusCode::kNotFound));
}

TEST(KeptAnswerTest, RefusesABodyPastItsBound) {
  const KeyRing keys = Ring(KeyRing::NewKeyLine("k1"));
  Response answer;
  answer.body = std::string(kKeptBytesMax, '"');
  ASSERT_OK_AND_ASSIGN(const std::string sealed, SealAnswer(SomeKey(), keys, answer));
  ASSERT_OK_AND_ASSIGN(const Kept kept, OpenAnswer(SomeKey(), keys, sealed));
  EXPECT_EQ(kept.answer.body, answer.body);
  answer.body += '"';
  EXPECT_THAT(SealAnswer(SomeKey(), keys, answer), StatusIs(absl::StatusCode::kInternal));
}

}  // namespace
}  // namespace postrider::api
