#include "delivery/endpoint_auth.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "tests/support/status_matchers.h"

namespace postrider::delivery {
namespace {

using subscriptions::AuthKind;
using subscriptions::Endpoint;
using subscriptions::SealedSetting;
using tests::StatusIs;

class EndpointAuthTest : public ::testing::Test {
 protected:
  EndpointAuthTest() {
    IdBytes id{};
    id[15] = 1;
    endpoint_.customer = subscriptions::CustomerId(id);
    id[15] = 2;
    endpoint_.id = subscriptions::EndpointId(id);
  }
  std::string Seal(SealedSetting which, const std::string& plain) {
    return subscriptions::SealSetting(keys_, endpoint_.customer, endpoint_.id, which, plain);
  }
  void SetAuth(AuthKind kind, const std::string& name, const std::string& secret) {
    endpoint_.settings.auth.kind = kind;
    endpoint_.settings.auth.name = name;
    endpoint_.auth_sealed = Seal(SealedSetting::kAuth, secret);
  }
  // "name: value"
  std::string Line() {
    const auto auth = PrepareAuth(endpoint_, keys_);
    EXPECT_OK(auth);
    if (!auth.ok() || !auth->header) return "";
    return auth->header->first + ": " + auth->header->second;
  }

  KeyRing keys_ = *KeyRing::Parse(KeyRing::NewKeyLine("k1"));
  Endpoint endpoint_;
};

TEST_F(EndpointAuthTest, MakesTheLineOfEachKind) {
  EXPECT_EQ(Line(), "");
  SetAuth(AuthKind::kBasic, "user", "pass:word");
  EXPECT_EQ(Line(), "authorization: Basic dXNlcjpwYXNzOndvcmQ=");
  SetAuth(AuthKind::kBearer, "", "abc.def");
  EXPECT_EQ(Line(), "authorization: Bearer abc.def");
  SetAuth(AuthKind::kHeader, "X-Api-Key", "key 1");
  EXPECT_EQ(Line(), "X-Api-Key: key 1");
}

TEST_F(EndpointAuthTest, OAuth2NamesWhereTokensComeFrom) {
  SetAuth(AuthKind::kOAuth2, "client", "secret");
  endpoint_.settings.auth.token_url = "https://login.example/token";
  endpoint_.settings.auth.scope = "a b";
  ASSERT_OK_AND_ASSIGN(const EndpointAuth auth, PrepareAuth(endpoint_, keys_));
  EXPECT_FALSE(auth.header);
  ASSERT_NE(auth.token, nullptr);
  EXPECT_EQ(auth.token->client_id, "client");
  EXPECT_EQ(auth.token->client_secret, "secret");
  EXPECT_EQ(auth.token->scope, "a b");
  EXPECT_EQ(auth.token->authority, "login.example:443");
  // Prepared again it is the same source.
  ASSERT_OK_AND_ASSIGN(const EndpointAuth again, PrepareAuth(endpoint_, keys_));
  EXPECT_EQ(again.token->key, auth.token->key);
}

// Put into the database past the API.
TEST_F(EndpointAuthTest, RefusesWhatMakesNoCleanLineAndNeverSaysTheSecret) {
  const auto expect_refused = [this] {
    const auto auth = PrepareAuth(endpoint_, keys_);
    EXPECT_FALSE(auth.ok());
    EXPECT_THAT(std::string(auth.status().message()), ::testing::Not(::testing::HasSubstr("s3cr")));
  };
  SetAuth(AuthKind::kBearer, "", "s3cr\r\nX-Evil: 1");
  expect_refused();
  SetAuth(AuthKind::kBasic, "us:er", "s3cret");
  expect_refused();
  SetAuth(AuthKind::kHeader, "X Y", "s3cret");
  expect_refused();
  for (const std::string name : {"Host", "webhook-id", "Content-Length", "Transfer-Encoding"}) {
    SetAuth(AuthKind::kHeader, name, "s3cret");
    expect_refused();
  }
  SetAuth(AuthKind::kHeader, "X-Key", "");
  expect_refused();
  SetAuth(AuthKind::kOAuth2, "client", "s3cret");
  endpoint_.settings.auth.token_url = "ftp://s3cret.example/";
  expect_refused();
  SetAuth(AuthKind::kBearer, "", "s3cret");
  endpoint_.auth_sealed.clear();
  expect_refused();
}

TEST_F(EndpointAuthTest, SecretsOpenInTheirOwnPlaceOnly) {
  SetAuth(AuthKind::kBearer, "", "token");
  const std::string sealed = endpoint_.auth_sealed;
  IdBytes other{};
  other[15] = 9;
  Endpoint moved = endpoint_;
  moved.customer = subscriptions::CustomerId(other);
  EXPECT_THAT(PrepareAuth(moved, keys_), StatusIs(absl::StatusCode::kDataLoss));
  moved = endpoint_;
  moved.id = subscriptions::EndpointId(other);
  EXPECT_THAT(PrepareAuth(moved, keys_), StatusIs(absl::StatusCode::kDataLoss));
  moved = endpoint_;
  moved.settings.tls.certificate_pem = "certificate";
  moved.tls_key_sealed = sealed;
  EXPECT_THAT(PrepareTls(moved, keys_), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(EndpointAuthTest, TlsMaterialHasADigestOfAllOfIt) {
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const TlsMaterial> none, PrepareTls(endpoint_, keys_));
  EXPECT_EQ(none, nullptr);
  std::vector<std::string> digests;
  for (const std::string ca : {"", "ca"}) {
    for (const std::string certificate : {"", "certificate"}) {
      for (const std::string key : {"key", "other key"}) {
        if (ca.empty() && certificate.empty()) continue;
        endpoint_.settings.tls.ca_pem = ca;
        endpoint_.settings.tls.certificate_pem = certificate;
        endpoint_.tls_key_sealed = Seal(SealedSetting::kTlsKey, key);
        ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const TlsMaterial> made,
                             PrepareTls(endpoint_, keys_));
        EXPECT_EQ(made->ca_pem, ca);
        EXPECT_EQ(made->certificate_pem, certificate);
        EXPECT_EQ(made->key_pem, certificate.empty() ? "" : key);
        ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const TlsMaterial> again,
                             PrepareTls(endpoint_, keys_));
        EXPECT_EQ(again->digest, made->digest);
        digests.push_back(made->digest);
      }
    }
  }
  // A key without a certificate is none.
  EXPECT_EQ(digests.size(), 6u);
  EXPECT_EQ((std::set<std::string>(digests.begin(), digests.end())).size(), 5u);
  endpoint_.tls_key_sealed.clear();
  EXPECT_THAT(PrepareTls(endpoint_, keys_), StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Two customers, or two credentials of one, never share a connection to one host.
TEST_F(EndpointAuthTest, TheConnectionGroupTellsCustomersAndCredentialsApart) {
  std::set<std::string> groups = {ConnectionGroup(endpoint_)};
  SetAuth(AuthKind::kBearer, "", "one");
  groups.insert(ConnectionGroup(endpoint_));
  const std::string same = ConnectionGroup(endpoint_);
  EXPECT_EQ(ConnectionGroup(endpoint_), same);
  SetAuth(AuthKind::kBearer, "", "two");
  groups.insert(ConnectionGroup(endpoint_));
  SetAuth(AuthKind::kBasic, "user", "two");
  groups.insert(ConnectionGroup(endpoint_));
  endpoint_.settings.auth.name = "other";
  groups.insert(ConnectionGroup(endpoint_));
  IdBytes id{};
  id[15] = 7;
  endpoint_.customer = subscriptions::CustomerId(id);
  groups.insert(ConnectionGroup(endpoint_));
  EXPECT_EQ(groups.size(), 6u);
}

}  // namespace
}  // namespace postrider::delivery
