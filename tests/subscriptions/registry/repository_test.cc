#include "subscriptions/registry/repository.h"

#include <algorithm>
#include <string>
#include <vector>

#include "subscriptions/registry/own_events.h"
#include "tests/subscriptions/registry/registry_fixture.h"
#include "tests/subscriptions/registry/whole_endpoint.h"

namespace postrider::subscriptions {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using tests::StatusIs;

using RepositoryTest = RegistryFixture;

TEST_F(RepositoryTest, CustomersAreMadeRenamedListedAndDeleted) {
  std::vector<CustomerId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(MakeCustomer({"t1"}));
  ASSERT_OK_AND_ASSIGN(Customer renamed, In<Customer>(AsOperator(), [&](auto& tx, auto done) {
                         RenameCustomer(tx, ids[0], "Other", std::move(done));
                       }));
  EXPECT_EQ(renamed.name, "Other");
  EXPECT_EQ(renamed.generation, 2u);

  // Newest first, in pages, each once.
  std::vector<CustomerId> order;
  Page page;
  page.limit = 2;
  int pages = 0;
  do {
    ASSERT_OK_AND_ASSIGN(PageOf<Customer> part,
                         In<PageOf<Customer>>(AsOperator(), [&](auto& tx, auto done) {
                           ListCustomers(tx, page, std::move(done));
                         }));
    for (const Customer& customer : part.rows) order.push_back(customer.id);
    page.after = part.next;
    ++pages;
  } while (!page.after.empty() && pages < 10);
  EXPECT_EQ(pages, 3);
  ASSERT_THAT(order, SizeIs(5));
  EXPECT_TRUE(std::is_sorted(order.rbegin(), order.rend()));
  page.after = "nonsense";
  EXPECT_THAT(
      In<PageOf<Customer>>(AsOperator(),
                           [&](auto& tx, auto done) { ListCustomers(tx, page, std::move(done)); }),
      StatusIs(absl::StatusCode::kInvalidArgument));

  const EndpointId endpoint = MakeEndpoint(ids[0]);
  MakeSubscription(ids[0], endpoint);
  EXPECT_OK(Do(AsOperator(), [&](auto& tx, auto done) {
    DeleteCustomer(tx, ids[0], NewId<ErasureId>(clock_), std::move(done));
  }));
  EXPECT_THAT(Do(AsOperator(),
                 [&](auto& tx, auto done) {
                   DeleteCustomer(tx, ids[0], NewId<ErasureId>(clock_), std::move(done));
                 }),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(In<Customer>(AsOperator(),
                           [&](auto& tx, auto done) {
                             GetCustomer(tx, ids[0], RowLock::kNone, std::move(done));
                           }),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(In<Endpoint>(AsCustomer(ids[0]),
                           [&](auto& tx, auto done) {
                             GetEndpoint(tx, ids[0], endpoint, RowLock::kNone, std::move(done));
                           }),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RepositoryTest, GrantsComeAndGo) {
  const CustomerId customer = MakeCustomer();
  const auto add = [&](std::vector<std::string> tenants) {
    return In<int64_t>(AsOperator(), [&](auto& tx, auto done) {
      AddGrants(tx, customer, tenants, std::move(done));
    });
  };
  ASSERT_OK_AND_ASSIGN(int64_t added, add({"b", "a", "a"}));
  EXPECT_EQ(added, 2);
  ASSERT_OK_AND_ASSIGN(added, add({"a", "c"}));
  EXPECT_EQ(added, 1);
  EXPECT_OK(Do(AsOperator(),
               [&](auto& tx, auto done) { DeleteGrant(tx, customer, "a", std::move(done)); }));
  EXPECT_THAT(Do(AsOperator(),
                 [&](auto& tx, auto done) { DeleteGrant(tx, customer, "a", std::move(done)); }),
              StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(
      auto ungranted, (In<std::vector<std::string>>(AsCustomer(customer), [&](auto& tx, auto done) {
        FindUngranted(tx, customer, {"x", "b", "a"}, std::move(done));
      })));
  EXPECT_THAT(ungranted, ElementsAre("x", "a"));
  ASSERT_OK_AND_ASSIGN(added, add({"a"}));
  EXPECT_EQ(added, 1) << "granted anew";
  Page page;
  page.limit = 2;
  ASSERT_OK_AND_ASSIGN(PageOf<Grant> part,
                       In<PageOf<Grant>>(AsOperator(), [&](auto& tx, auto done) {
                         ListGrants(tx, customer, page, std::move(done));
                       }));
  ASSERT_THAT(part.rows, SizeIs(2));
  EXPECT_EQ(part.rows[0].tenant, "a");
  EXPECT_EQ(part.next, "b");
  const auto stranger = NewId<CustomerId>(clock_);
  EXPECT_THAT(
      In<int64_t>(AsOperator(),
                  [&](auto& tx, auto done) { AddGrants(tx, stranger, {"a"}, std::move(done)); }),
      StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RepositoryTest, ACustomerIsBornWithTheGrantOfItsReservedTenant) {
  for (int i = 0; i < 20; ++i) {
    const CustomerId customer = MakeCustomer();
    const std::string mine = ReservedTenantOf(customer);
    const std::string other = ReservedTenantOf(NewId<CustomerId>(clock_));
    ASSERT_OK_AND_ASSIGN(
        auto ungranted,
        (In<std::vector<std::string>>(AsCustomer(customer), [&](auto& tx, auto done) {
          FindUngranted(tx, customer, {mine, other}, std::move(done));
        })));
    EXPECT_THAT(ungranted, ElementsAre(other));
  }
}

TEST_F(RepositoryTest, TheReservedGrantIsNeitherListedNorWithdrawnNorAnothers) {
  const CustomerId customer = MakeCustomer();
  const std::string mine = ReservedTenantOf(customer);
  ASSERT_OK_AND_ASSIGN(PageOf<Grant> part,
                       In<PageOf<Grant>>(AsOperator(), [&](auto& tx, auto done) {
                         ListGrants(tx, customer, Page(), std::move(done));
                       }));
  EXPECT_THAT(part.rows, SizeIs(0));
  EXPECT_THAT(
      In<Grant>(AsOperator(),
                [&](auto& tx, auto done) { GetGrant(tx, customer, mine, std::move(done)); }),
      StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Do(AsOperator(),
                 [&](auto& tx, auto done) { DeleteGrant(tx, customer, mine, std::move(done)); }),
              StatusIs(absl::StatusCode::kNotFound));
  const std::string other = ReservedTenantOf(MakeCustomer());
  EXPECT_FALSE(In<int64_t>(AsOperator(), [&](auto& tx, auto done) {
                 AddGrants(tx, customer, {other}, std::move(done));
               }).ok());
}

TEST_F(RepositoryTest, KeysAreFoundByTheirIdAloneUntilRevoked) {
  const CustomerId customer = MakeCustomer();
  ApiKey key;
  key.key_id = "abcdefghijkl";
  key.customer = customer;
  key.secret_sha256 = std::string(32, '\x07');
  key.name = "ci";
  ASSERT_OK(
      In<ApiKey>(AsOperator(), [&](auto& tx, auto done) { InsertKey(tx, key, std::move(done)); }));
  const auto find = [&](const std::string& id) {
    return In<ApiKey>(AsKeyLookup(id),
                      [&](auto& tx, auto done) { FindKey(tx, id, std::move(done)); });
  };
  ASSERT_OK_AND_ASSIGN(ApiKey found, find(key.key_id));
  EXPECT_EQ(found.secret_sha256, key.secret_sha256);
  EXPECT_EQ(found.customer, customer);
  EXPECT_EQ(found.scope, KeyScope::kCustomer);
  EXPECT_THAT(find("it's'quoted'"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(In<ApiKey>(AsKeyLookup("zzzzzzzzzzzz"),
                         [&](auto& tx, auto done) { FindKey(tx, key.key_id, std::move(done)); }),
              StatusIs(absl::StatusCode::kNotFound))
      << "the setting, not the statement, says which key may be seen";

  ApiKey orphan = key;
  orphan.key_id = "orphanorphan";
  orphan.customer = NewId<CustomerId>(clock_);
  EXPECT_THAT(In<ApiKey>(AsOperator(),
                         [&](auto& tx, auto done) { InsertKey(tx, orphan, std::move(done)); }),
              StatusIs(absl::StatusCode::kFailedPrecondition));

  ApiKey publisher;
  publisher.key_id = "publisherkey";
  publisher.scope = KeyScope::kPublisher;
  publisher.event_types = {"order.*"};
  publisher.tenants = {"*"};
  publisher.secret_sha256 = std::string(32, '\x01');
  {
    ASSERT_OK_AND_ASSIGN(auto session, BlockingSession::Open(database_->options().api_url));
    ASSERT_OK_AND_ASSIGN(ApiKey kept, InsertKeyBlocking(*session, publisher));
    EXPECT_THAT(kept.event_types, ElementsAre("order.*"));
    EXPECT_THAT(InsertKeyBlocking(*session, publisher), StatusIs(absl::StatusCode::kAlreadyExists));
  }
  Page page;
  page.limit = 1;
  std::vector<std::string> order;
  do {
    ASSERT_OK_AND_ASSIGN(PageOf<ApiKey> part,
                         In<PageOf<ApiKey>>(AsOperator(), [&](auto& tx, auto done) {
                           ListKeys(tx, page, std::move(done));
                         }));
    for (const ApiKey& row : part.rows) order.push_back(row.key_id);
    page.after = part.next;
  } while (!page.after.empty() && order.size() < 10);
  EXPECT_THAT(order, ElementsAre("publisherkey", "abcdefghijkl"));

  EXPECT_OK(
      Do(AsOperator(), [&](auto& tx, auto done) { RevokeKey(tx, key.key_id, std::move(done)); }));
  EXPECT_THAT(find(key.key_id), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RepositoryTest, EventTypesArePutTwiceAsOne) {
  const auto put = [&](const std::string& description) {
    return In<PutEventTypeResult>(AsOperator(), [&](auto& tx, auto done) {
      PutEventType(tx, "order.created", description, std::move(done));
    });
  };
  ASSERT_OK_AND_ASSIGN(PutEventTypeResult result, put("a"));
  EXPECT_TRUE(result.created);
  ASSERT_OK_AND_ASSIGN(result, put("b"));
  EXPECT_FALSE(result.created);
  EXPECT_EQ(result.event_type.description, "b");
  EXPECT_OK(Do(AsOperator(), [&](auto& tx, auto done) {
    DeleteEventType(tx, "order.created", std::move(done));
  }));
  const CustomerId customer = MakeCustomer();
  ASSERT_OK_AND_ASSIGN(PageOf<EventType> part,
                       In<PageOf<EventType>>(AsCustomer(customer), [&](auto& tx, auto done) {
                         ListEventTypes(tx, Page(), std::move(done));
                       }));
  EXPECT_THAT(part.rows, IsEmpty());
  ASSERT_OK_AND_ASSIGN(result, put("c"));
  EXPECT_TRUE(result.created) << "a deleted one is made anew";
  EXPECT_THAT(In<PutEventTypeResult>(
                  AsCustomer(customer),
                  [&](auto& tx, auto done) { PutEventType(tx, "x", "", std::move(done)); }),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(RepositoryTest, EndpointsKeepWhatWasSet) {
  const CustomerId customer = MakeCustomer();
  const auto id = NewId<EndpointId>(clock_);
  EndpointSettings settings = WholeSettings();
  ASSERT_THAT(Validate(settings), IsEmpty());
  const EndpointSeals seals{std::string("\0a", 2), std::string("\0k", 2)};
  const std::string sealed("\0\xff\x01", 3);
  ASSERT_OK_AND_ASSIGN(Endpoint made, In<Endpoint>(AsCustomer(customer), [&](auto& tx, auto done) {
                         InsertEndpoint(tx, customer, id, settings, seals, sealed, std::move(done));
                       }));
  EXPECT_EQ(made.settings, settings);
  EXPECT_EQ(made.secrets_sealed, sealed);
  EXPECT_EQ(made.auth_sealed, seals.auth);
  EXPECT_EQ(made.tls_key_sealed, seals.tls_key);
  EXPECT_EQ(made.generation, 1u);
  EXPECT_GT(made.changed_xid, 0u);
  settings = EndpointSettings();
  settings.url = "https://example.com/2";
  ASSERT_OK_AND_ASSIGN(Endpoint changed,
                       In<Endpoint>(AsCustomer(customer), [&](auto& tx, auto done) {
                         UpdateEndpoint(tx, customer, id, settings, {}, std::move(done));
                       }));
  EXPECT_EQ(changed.settings, settings);
  EXPECT_EQ(changed.secrets_sealed, sealed);
  EXPECT_EQ(changed.auth_sealed, "");
  EXPECT_EQ(changed.tls_key_sealed, "");
  EXPECT_EQ(changed.generation, 2u);
  EXPECT_GT(changed.changed_xid, made.changed_xid);
  ASSERT_OK_AND_ASSIGN(changed, In<Endpoint>(AsCustomer(customer), [&](auto& tx, auto done) {
                         SetEndpointSecrets(tx, customer, id, "other", std::move(done));
                       }));
  EXPECT_EQ(changed.secrets_sealed, "other");
  ASSERT_OK_AND_ASSIGN(PageOf<Endpoint> part,
                       In<PageOf<Endpoint>>(AsCustomer(customer), [&](auto& tx, auto done) {
                         ListEndpoints(tx, customer, Page(), std::move(done));
                       }));
  ASSERT_THAT(part.rows, SizeIs(1));
  EXPECT_EQ(part.rows[0].settings, settings);
}

TEST_F(RepositoryTest, EndpointsAreDisabledAndPausedApartFromTheirSettings) {
  const CustomerId customer = MakeCustomer();
  const EndpointId id = MakeEndpoint(customer);
  ASSERT_OK_AND_ASSIGN(Endpoint changed,
                       In<Endpoint>(AsCustomer(customer), [&](auto& tx, auto done) {
                         SetEndpointEnabled(tx, customer, id, false, std::move(done));
                       }));
  EXPECT_FALSE(changed.settings.enabled);
  EXPECT_EQ(changed.generation, 2u);
  const PauseSettings pause = {.by_customer = true,
                               .by_operator = true,
                               .resume = ResumeKind::kFrom,
                               .resume_from = WallTimeFromMillis(1'700'000'000'123),
                               .resumed_at = WallTimeFromMillis(1'700'000'000'124)};
  ASSERT_OK_AND_ASSIGN(changed, In<Endpoint>(AsOperator(), [&](auto& tx, auto done) {
                         SetEndpointPause(tx, customer, id, pause, std::move(done));
                       }));
  EXPECT_EQ(changed.settings.pause, pause);
  EXPECT_EQ(changed.generation, 3u);
  // A change of settings that was read before leaves them alone.
  EndpointSettings settings;
  settings.url = "https://example.com/2";
  ASSERT_OK_AND_ASSIGN(changed, In<Endpoint>(AsCustomer(customer), [&](auto& tx, auto done) {
                         UpdateEndpoint(tx, customer, id, settings, {}, std::move(done));
                       }));
  EXPECT_FALSE(changed.settings.enabled);
  EXPECT_EQ(changed.settings.pause, pause);
  // Said again it is a change too: it overrules an automatic disable.
  for (const uint64_t generation : {5u, 6u}) {
    ASSERT_OK_AND_ASSIGN(changed, In<Endpoint>(AsCustomer(customer), [&](auto& tx, auto done) {
                           SetEndpointEnabled(tx, customer, id, true, std::move(done));
                         }));
    EXPECT_TRUE(changed.settings.enabled);
    EXPECT_EQ(changed.generation, generation);
  }
}

TEST_F(RepositoryTest, AForeignEndpointIsNotFoundWhateverNamesIt) {
  const CustomerId owner = MakeCustomer();
  const CustomerId other = MakeCustomer();
  const EndpointId endpoint = MakeEndpoint(owner);
  const auto get = [&](TransactionOptions who, CustomerId customer) {
    return In<Endpoint>(std::move(who), [&](auto& tx, auto done) {
      GetEndpoint(tx, customer, endpoint, RowLock::kForUpdate, std::move(done));
    });
  };
  EXPECT_OK(get(AsCustomer(owner), owner));
  EXPECT_THAT(get(AsCustomer(other), other), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(get(AsCustomer(other), owner), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(get(TransactionOptions(), owner), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Do(AsCustomer(other),
                 [&](auto& tx, auto done) {
                   DeleteEndpoint(tx, owner, endpoint, BacklogOnDelete::kDiscard, std::move(done));
                 }),
              StatusIs(absl::StatusCode::kNotFound));
  SubscriptionSettings settings;
  settings.endpoint = endpoint;
  settings.event_types = {"a"};
  EXPECT_THAT(In<Subscription>(AsCustomer(other),
                               [&](auto& tx, auto done) {
                                 InsertSubscription(tx, other, NewId<SubscriptionId>(clock_),
                                                    settings, std::move(done));
                               }),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(RepositoryTest, SubscriptionsGoWithTheirEndpoint) {
  const CustomerId customer = MakeCustomer({"t1"});
  const EndpointId endpoint = MakeEndpoint(customer);
  const EndpointId second = MakeEndpoint(customer);
  const SubscriptionId id = MakeSubscription(customer, endpoint);
  MakeSubscription(customer, second);
  SubscriptionSettings settings;
  settings.endpoint = endpoint;
  settings.event_types = {"a", "b.*"};
  settings.scope = ScopeKind::kDepartments;
  settings.tenants = {"t1"};
  settings.departments = {"d,1", "d\"2"};
  ASSERT_OK_AND_ASSIGN(Subscription changed,
                       In<Subscription>(AsCustomer(customer), [&](auto& tx, auto done) {
                         UpdateSubscription(tx, customer, id, settings, std::move(done));
                       }));
  EXPECT_EQ(changed.settings, settings);
  EXPECT_EQ(changed.generation, 2u);
  const auto list = [&](absl::optional<EndpointId> of) {
    return In<PageOf<Subscription>>(AsCustomer(customer), [&](auto& tx, auto done) {
      ListSubscriptions(tx, customer, of, Page(), std::move(done));
    });
  };
  ASSERT_OK_AND_ASSIGN(PageOf<Subscription> part, list(absl::nullopt));
  EXPECT_THAT(part.rows, SizeIs(2));
  ASSERT_OK_AND_ASSIGN(part, list(endpoint));
  EXPECT_THAT(part.rows, SizeIs(1));
  EXPECT_OK(Do(AsCustomer(customer), [&](auto& tx, auto done) {
    DeleteEndpoint(tx, customer, endpoint, BacklogOnDelete::kDiscard, std::move(done));
  }));
  ASSERT_OK_AND_ASSIGN(part, list(absl::nullopt));
  ASSERT_THAT(part.rows, SizeIs(1));
  EXPECT_EQ(part.rows[0].settings.endpoint, second);
  EXPECT_OK(Do(AsCustomer(customer), [&](auto& tx, auto done) {
    DeleteSubscription(tx, customer, part.rows[0].id, std::move(done));
  }));
  EXPECT_THAT(In<Subscription>(AsCustomer(customer),
                               [&](auto& tx, auto done) {
                                 GetSubscription(tx, customer, part.rows[0].id, RowLock::kNone,
                                                 std::move(done));
                               }),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace postrider::subscriptions
