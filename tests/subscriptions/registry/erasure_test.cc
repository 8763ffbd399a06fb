#include "subscriptions/registry/erasure.h"

#include <memory>
#include <string>
#include <utility>

#include "subscriptions/registry/snapshot.h"
#include "tests/subscriptions/registry/registry_fixture.h"

namespace postrider::subscriptions {
namespace {

using ::testing::SizeIs;
using tests::StatusIs;

IdBytes Bytes(uint8_t last) {
  IdBytes bytes{};
  bytes[15] = last;
  return bytes;
}

Erasure Wish(uint8_t id, absl::optional<CustomerId> customer, absl::optional<std::string> tenant,
             absl::optional<std::string> event) {
  Erasure erasure;
  erasure.id = ErasureId(Bytes(id));
  erasure.customer = customer;
  erasure.tenant = std::move(tenant);
  erasure.event_id = std::move(event);
  erasure.requested_at = WallTimeFromMillis(1'000);
  return erasure;
}

const CustomerId kOne(Bytes(1));
const CustomerId kTwo(Bytes(2));

TEST(ErasuresTest, TellWhetherOneIsNew) {
  const Erasures none;
  const Erasures one({Wish(1, kOne, absl::nullopt, absl::nullopt)});
  const Erasures two(
      {Wish(1, kOne, absl::nullopt, absl::nullopt), Wish(2, kTwo, absl::nullopt, absl::nullopt)});
  const Erasures other({Wish(2, kTwo, absl::nullopt, absl::nullopt)});
  EXPECT_FALSE(AnyWishIsNew(nullptr, none));
  EXPECT_TRUE(AnyWishIsNew(nullptr, one));
  EXPECT_TRUE(AnyWishIsNew(&one, two));
  EXPECT_FALSE(AnyWishIsNew(&two, one)) << "one that has ended";
  EXPECT_TRUE(AnyWishIsNew(&one, other)) << "one for another";
}

TEST(ErasuresTest, CoverWhatHasAllThatIsNamed) {
  const WallTime before = WallTimeFromMillis(999);
  const Erasures none;
  EXPECT_FALSE(none.Cover(kOne, "t", "e", before));
  const Erasures by_tenant({Wish(1, absl::nullopt, "t", absl::nullopt)});
  EXPECT_TRUE(by_tenant.Cover(kOne, "t", "e", before));
  EXPECT_TRUE(by_tenant.Cover(kTwo, "t", "", before));
  EXPECT_FALSE(by_tenant.Cover(kOne, "t2", "e", before));
  const Erasures by_event({Wish(1, absl::nullopt, absl::nullopt, "e")});
  EXPECT_TRUE(by_event.Cover(kOne, "any", "e", before));
  EXPECT_FALSE(by_event.Cover(kOne, "any", "e2", before));
  const Erasures by_customer({Wish(1, kOne, absl::nullopt, absl::nullopt)});
  EXPECT_TRUE(by_customer.Cover(kOne, "any", "any", before));
  EXPECT_FALSE(by_customer.Cover(kTwo, "any", "any", before));
  const Erasures by_all({Wish(1, kOne, "t", "e")});
  EXPECT_TRUE(by_all.Cover(kOne, "t", "e", before));
  EXPECT_FALSE(by_all.Cover(kTwo, "t", "e", before));
  EXPECT_FALSE(by_all.Cover(kOne, "t2", "e", before));
  EXPECT_FALSE(by_all.Cover(kOne, "t", "e2", before));
}

TEST(ErasuresTest, CoverNothingThatCameLater) {
  const Erasures wishes({Wish(1, absl::nullopt, "t", absl::nullopt)});
  EXPECT_TRUE(wishes.Cover(kOne, "t", "e", WallTimeFromMillis(1'000)));
  EXPECT_FALSE(wishes.Cover(kOne, "t", "e", WallTimeFromMillis(1'001)));
}

TEST(ErasuresTest, AnyOfManyAboutOneTenantCounts) {
  Erasure late = Wish(2, kTwo, "t", absl::nullopt);
  late.requested_at = WallTimeFromMillis(5'000);
  const Erasures wishes({Wish(1, kOne, "t", absl::nullopt), late});
  EXPECT_FALSE(wishes.Cover(kOne, "t", "e", WallTimeFromMillis(3'000)));
  EXPECT_TRUE(wishes.Cover(kTwo, "t", "e", WallTimeFromMillis(3'000)));
}

// Its row changes as it goes on; matchers and workers shall not begin anew each time.
TEST(ErasuresTest, AWishThatIsKnownChangesNoSnapshot) {
  const auto build = [](std::shared_ptr<const Snapshot> previous, const Erasure& wish) {
    SnapshotBuilder builder(std::move(previous));
    builder.PutErasure(wish);
    return builder.Build(PgSnapshot(), WallTimeFromMillis(1), "origin");
  };
  const Erasure wish = Wish(1, kOne, absl::nullopt, absl::nullopt);
  const auto first = build(nullptr, wish);
  const auto second = build(first, wish);
  EXPECT_EQ(second->contents_version(), first->contents_version());
  Erasure other = wish;
  other.tenant = "t";
  const auto third = build(second, other);
  EXPECT_GT(third->contents_version(), first->contents_version());
  ASSERT_EQ(third->erasures()->all().size(), 1u);
  EXPECT_EQ(third->erasures()->all()[0], other);
}

class ErasureRepositoryTest : public RegistryFixture {
 protected:
  absl::StatusOr<Erasure> Insert(Erasure wish) {
    wish.id = NewId<ErasureId>(clock_);
    return In<Erasure>(AsOperator(), [&](Transaction& tx, auto done) {
      InsertErasure(tx, wish, std::move(done));
    });
  }
};

TEST_F(ErasureRepositoryTest, WishesAreKeptAndListedNewestFirst) {
  const CustomerId customer = MakeCustomer();
  ASSERT_OK_AND_ASSIGN(const Erasure first,
                       Insert(Wish(0, customer, "t", std::string("e\xff", 2))));
  EXPECT_EQ(first.customer, customer);
  EXPECT_EQ(first.tenant, "t");
  EXPECT_EQ(first.event_id, std::string("e\xff", 2));
  EXPECT_FALSE(first.progress.erased);
  ASSERT_OK_AND_ASSIGN(const Erasure second, Insert(Wish(0, absl::nullopt, "t", absl::nullopt)));
  ASSERT_OK_AND_ASSIGN(const auto page, In<PageOf<Erasure>>(AsOperator(), [&](auto& tx, auto done) {
                         ListErasures(tx, Page(), std::move(done));
                       }));
  ASSERT_THAT(page.rows, SizeIs(2));
  EXPECT_EQ(page.rows[0], second);
  EXPECT_EQ(page.rows[1], first);
  ASSERT_OK_AND_ASSIGN(const Erasure got, In<Erasure>(AsOperator(), [&](auto& tx, auto done) {
                         GetErasure(tx, first.id, std::move(done));
                       }));
  EXPECT_EQ(got, first);
  ASSERT_OK_AND_ASSIGN(const int64_t count, In<int64_t>(AsOperator(), [&](auto& tx, auto done) {
                         CountErasures(tx, std::move(done));
                       }));
  EXPECT_EQ(count, 2);
}

TEST_F(ErasureRepositoryTest, AWishAboutNoCustomerOfOursIsRefused) {
  EXPECT_THAT(Insert(Wish(0, NewId<CustomerId>(clock_), absl::nullopt, absl::nullopt)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(Insert(Wish(0, absl::nullopt, absl::nullopt, absl::nullopt)).ok());
}

TEST_F(ErasureRepositoryTest, ADeletedCustomerIsToBeForgotten) {
  const CustomerId customer = MakeCustomer();
  const auto id = NewId<ErasureId>(clock_);
  ASSERT_OK(Do(AsOperator(),
               [&](auto& tx, auto done) { DeleteCustomer(tx, customer, id, std::move(done)); }));
  ASSERT_OK_AND_ASSIGN(const Erasure wish, In<Erasure>(AsOperator(), [&](auto& tx, auto done) {
                         GetErasure(tx, id, std::move(done));
                       }));
  EXPECT_EQ(wish.customer, customer);
  EXPECT_FALSE(wish.tenant || wish.event_id);
}

}  // namespace
}  // namespace postrider::subscriptions
