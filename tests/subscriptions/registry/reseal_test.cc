#include "subscriptions/registry/reseal.h"

#include <string>

#include "subscriptions/registry/endpoint_secrets.h"
#include "tests/subscriptions/registry/registry_fixture.h"
#include "tests/subscriptions/registry/whole_endpoint.h"

namespace postrider::subscriptions {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::IsOkAndHolds;

class ResealTest : public RegistryFixture {
 protected:
  void SetUp() override {
    RegistryFixture::SetUp();
    ASSERT_OK_AND_ASSIGN(session_, BlockingSession::Open(database_->options().api_url));
  }

  // With everything that may be sealed.
  EndpointId MakeSealed(CustomerId customer, const KeyRing& keys) {
    const auto id = NewId<EndpointId>(clock_);
    const std::string secrets =
        *SealEndpointSecrets(keys, customer, id, {{"whsec_AAAA", clock_.Wall(), absl::nullopt}});
    EndpointSeals seals;
    seals.auth = SealSetting(keys, customer, id, SealedSetting::kAuth, "password");
    seals.tls_key = SealSetting(keys, customer, id, SealedSetting::kTlsKey, "pem");
    EXPECT_OK(In<Endpoint>(AsCustomer(customer), [&](Transaction& tx, auto done) {
      InsertEndpoint(tx, customer, id, WholeSettings(), seals, secrets, std::move(done));
    }));
    return id;
  }
  Endpoint Read(CustomerId customer, EndpointId id) {
    return *In<Endpoint>(AsCustomer(customer), [&](Transaction& tx, auto done) {
      GetEndpoint(tx, customer, id, RowLock::kNone, std::move(done));
    });
  }

  const std::string line1_ = KeyRing::NewKeyLine("k1");
  const std::string line2_ = KeyRing::NewKeyLine("k2");
  const KeyRing old_ = *KeyRing::Parse(line1_);
  const KeyRing both_ = *KeyRing::Parse(line2_ + line1_);
  const KeyRing new_ = *KeyRing::Parse(line2_);
  std::unique_ptr<BlockingSession> session_;
};

TEST_F(ResealTest, TheNewKeyAloneOpensAllThatTheOldOneSealed) {
  const CustomerId one = MakeCustomer();
  const CustomerId other = MakeCustomer();
  const EndpointId first = MakeSealed(one, old_);
  const EndpointId second = MakeSealed(other, old_);
  const EndpointId current = MakeSealed(other, both_);
  const Endpoint before = Read(one, first);
  const Endpoint untouched = Read(other, current);

  ASSERT_OK_AND_ASSIGN(const ResealReport report, ResealEndpoints(*session_, both_));
  EXPECT_EQ(report.endpoints, 3);
  EXPECT_EQ(report.resealed, 2);
  EXPECT_EQ(report.unreadable, 0);

  for (const auto& [customer, id] : {std::pair(one, first), std::pair(other, second)}) {
    const Endpoint endpoint = Read(customer, id);
    ASSERT_OK_AND_ASSIGN(const auto secrets,
                         OpenEndpointSecrets(new_, customer, id, endpoint.secrets_sealed));
    EXPECT_EQ(secrets.front().secret, "whsec_AAAA");
    EXPECT_THAT(OpenSetting(new_, customer, id, SealedSetting::kAuth, endpoint.auth_sealed),
                IsOkAndHolds("password"));
    EXPECT_THAT(OpenSetting(new_, customer, id, SealedSetting::kTlsKey, endpoint.tls_key_sealed),
                IsOkAndHolds("pem"));
  }
  // It is the endpoint that it was; snapshots take it up.
  const Endpoint after = Read(one, first);
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(after.updated_at, before.updated_at);
  EXPECT_EQ(after.settings, before.settings);
  EXPECT_GT(after.changed_xid, before.changed_xid);
  EXPECT_EQ(Read(other, current).changed_xid, untouched.changed_xid);

  ASSERT_OK_AND_ASSIGN(const ResealReport again, ResealEndpoints(*session_, both_));
  EXPECT_EQ(again.resealed, 0);
}

TEST_F(ResealTest, TellsOfWhatItCannotOpenAndGoesOn) {
  const CustomerId customer = MakeCustomer();
  const EndpointId lost = MakeSealed(customer, *KeyRing::Parse(KeyRing::NewKeyLine("gone")));
  const EndpointId good = MakeSealed(customer, old_);
  const std::string before = Read(customer, lost).secrets_sealed;
  ASSERT_OK_AND_ASSIGN(const ResealReport report, ResealEndpoints(*session_, both_));
  EXPECT_EQ(report.resealed, 1);
  EXPECT_EQ(report.unreadable, 1);
  EXPECT_THAT(report.unreadable_first,
              ElementsAre(testing::AllOf(HasSubstr(lost.ToString()), HasSubstr("gone"))));
  EXPECT_EQ(Read(customer, lost).secrets_sealed, before);
  EXPECT_TRUE(new_.IsCurrent(Read(customer, good).secrets_sealed));
}

TEST_F(ResealTest, ReadsAllPages) {
  const CustomerId customer = MakeCustomer();
  constexpr int kEndpoints = 401;
  for (int i = 0; i < kEndpoints; ++i) MakeSealed(customer, i % 2 == 0 ? old_ : both_);
  ASSERT_OK_AND_ASSIGN(const ResealReport report, ResealEndpoints(*session_, both_));
  EXPECT_EQ(report.endpoints, kEndpoints);
  EXPECT_EQ(report.resealed, 201);
  EXPECT_THAT(report.unreadable_first, IsEmpty());
}

// The setting lets a generation stand for what is sealed only.
TEST_F(ResealTest, NoOtherChangeKeepsItsGeneration) {
  const CustomerId customer = MakeCustomer();
  const EndpointId id = MakeSealed(customer, old_);
  ASSERT_OK(session_->Script(
      "BEGIN; SELECT set_config('postrider.operator', 'on', true), "
      "set_config('postrider.resealing', 'on', true); "
      "UPDATE postrider.endpoints SET secrets_sealed = 'x', url = 'https://other.example/'; "
      "COMMIT"));
  EXPECT_EQ(Read(customer, id).generation, 2u);
  ASSERT_OK(
      session_->Script("BEGIN; SELECT set_config('postrider.operator', 'on', true); "
                       "UPDATE postrider.endpoints SET secrets_sealed = 'y'; COMMIT"));
  EXPECT_EQ(Read(customer, id).generation, 3u);
}

}  // namespace
}  // namespace postrider::subscriptions
