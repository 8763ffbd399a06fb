#include "subscriptions/registry/snapshot_loader.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/metrics.h"
#include "core/postgres/url.h"
#include "subscriptions/registry/snapshot_file.h"
#include "tests/subscriptions/registry/registry_fixture.h"
#include "tests/support/tcp_relay.h"

namespace postrider::subscriptions {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::SizeIs;
using tests::RunUntil;
using tests::StatusIs;
using tests::TcpRelay;

class SnapshotLoaderTest : public RegistryFixture {
 protected:
  void SetUp() override {
    RegistryFixture::SetUp();
    if (HasFatalFailure()) return;
    char pattern[] = "/tmp/postrider-loader-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    connection_.url = database_->options().reader_url;
    connection_.check_sql = VersionCheckSql();
    // A test that hears of a change within its patience has been woken, or has polled.
    options_.poll_interval = milliseconds(100);
    options_.file_after = milliseconds(300);
    options_.write_interval = milliseconds(50);
    options_.file = folder_ + "/snapshot";
  }
  void TearDown() override {
    loader_.reset();
    unlink(options_.file.c_str());
    rmdir(folder_.c_str());
    RegistryFixture::TearDown();
  }

  void Start() {
    loader_ = std::make_unique<SnapshotLoader>(*loop_, connection_, options_, metrics_, 1,
                                               [this](std::shared_ptr<const Snapshot> snapshot) {
                                                 published_.push_back(std::move(snapshot));
                                               });
  }
  bool Loaded(seconds most = seconds(20)) {
    return RunUntil(
        *loop_, [&] { return !published_.empty(); }, most);
  }
  const Snapshot& last() const { return *published_.back(); }
  bool Eventually(absl::FunctionRef<bool()> what) { return RunUntil(*loop_, what); }

  std::unique_ptr<BlockingSession> OperatorSession() {
    auto session = BlockingSession::Open(database_->options().api_url);
    EXPECT_OK(session);
    EXPECT_OK((*session)->Script("SET postrider.operator = 'on'"));
    return *std::move(session);
  }

  void Relay() {
    auto url = DatabaseUrl::Parse(connection_.url);
    const std::vector<std::string> parts = absl::StrSplit(url->hosts, ':');
    int port = 0;
    ASSERT_TRUE(parts.size() == 2 && absl::SimpleAtoi(parts[1], &port));
    relay_ = std::make_unique<TcpRelay>(static_cast<uint16_t>(port));
    url->hosts = absl::StrCat("127.0.0.1:", relay_->port());
    connection_.url = url->ToString();
  }

  std::string folder_;
  ConnectionOptions connection_;
  SnapshotLoaderOptions options_;
  Metrics metrics_;
  std::unique_ptr<TcpRelay> relay_;
  std::vector<std::shared_ptr<const Snapshot>> published_;
  std::unique_ptr<SnapshotLoader> loader_;
};

TEST_F(SnapshotLoaderTest, LoadsAllAndFollowsEveryChange) {
  const CustomerId customer = MakeCustomer({"t1", "t2"});
  const EndpointId endpoint = MakeEndpoint(customer);
  MakeSubscription(customer, endpoint);
  Start();
  ASSERT_TRUE(Loaded());
  EXPECT_OK(loader_->health());
  EXPECT_EQ(loader_->current(), published_.back());
  EXPECT_TRUE(last().Granted(customer, "t1"));
  ASSERT_NE(last().FindEndpoint(endpoint), nullptr);
  EXPECT_EQ(last().FindEndpoint(endpoint)->secrets_sealed, "sealed") << "as sealed as it was";
  ASSERT_THAT(last().subscriptions(), SizeIs(1));
  EXPECT_TRUE(last().Sees(last().FindEndpoint(endpoint)->changed_xid));
  EXPECT_TRUE(last().Sees(*last().GrantXid(customer, "t2")));

  const EndpointId second = MakeEndpoint(customer);
  EXPECT_TRUE(Eventually([&] { return last().FindEndpoint(second) != nullptr; }));
  MakeSubscription(customer, second);
  EXPECT_TRUE(Eventually([&] { return last().subscriptions().size() == 2; }));
  ASSERT_OK(Do(AsOperator(),
               [&](auto& tx, auto done) { DeleteGrant(tx, customer, "t1", std::move(done)); }));
  EXPECT_TRUE(Eventually([&] { return !last().Granted(customer, "t1"); }));
  EXPECT_TRUE(last().Granted(customer, "t2"));
  ASSERT_OK(Do(AsCustomer(customer), [&](auto& tx, auto done) {
    DeleteEndpoint(tx, customer, endpoint, BacklogOnDelete::kDiscard, std::move(done));
  }));
  EXPECT_TRUE(Eventually([&] { return last().FindEndpoint(endpoint) == nullptr; }));
  EXPECT_THAT(last().subscriptions(), SizeIs(1));
  ASSERT_OK(In<PutEventTypeResult>(AsOperator(), [&](auto& tx, auto done) {
    PutEventType(tx, "order.created", "", std::move(done));
  }));
  EXPECT_TRUE(Eventually([&] { return last().event_types().size() == 1; }));
  EXPECT_FALSE(last().DeadLettersBacklogOf(endpoint));
  ASSERT_OK(Do(AsOperator(), [&](auto& tx, auto done) {
    DeleteCustomer(tx, customer, NewId<ErasureId>(clock_), std::move(done));
  }));
  EXPECT_TRUE(Eventually([&] { return last().customers().empty(); }));
  EXPECT_TRUE(last().endpoints().empty() && last().subscriptions().empty());
  for (size_t i = 1; i < published_.size(); ++i) {
    EXPECT_EQ(published_[i]->version(), published_[i - 1]->version() + 1);
  }
}

TEST_F(SnapshotLoaderTest, KnowsWhatIsToBeForgottenAndWhoseBacklogIsKept) {
  const CustomerId customer = MakeCustomer({"t1"});
  const EndpointId endpoint = MakeEndpoint(customer);
  Erasure wish;
  wish.id = NewId<ErasureId>(clock_);
  wish.tenant = "t1";
  ASSERT_OK(In<Erasure>(AsOperator(),
                        [&](auto& tx, auto done) { InsertErasure(tx, wish, std::move(done)); }));
  options_.reconcile_interval = std::chrono::milliseconds(300);
  Start();
  ASSERT_TRUE(Loaded());
  ASSERT_THAT(last().erasures()->all(), SizeIs(1));
  EXPECT_TRUE(last().erasures()->Cover(customer, "t1", "e", WallTimeFromMillis(1)));
  EXPECT_FALSE(last().erasures()->Cover(customer, "t2", "e", WallTimeFromMillis(1)));

  ASSERT_OK(Do(AsCustomer(customer), [&](auto& tx, auto done) {
    DeleteEndpoint(tx, customer, endpoint, BacklogOnDelete::kDeadLetter, std::move(done));
  }));
  EXPECT_TRUE(Eventually([&] { return last().DeadLettersBacklogOf(endpoint); }));
  EXPECT_EQ(last().FindEndpoint(endpoint), nullptr);
  ASSERT_OK(Do(AsOperator(), [&](auto& tx, auto done) {
    DeleteCustomer(tx, customer, NewId<ErasureId>(clock_), std::move(done));
  }));
  EXPECT_TRUE(Eventually([&] { return last().erasures()->all().size() == 2; }));
  EXPECT_TRUE(last().erasures()->Cover(customer, "t2", "e", WallTimeFromMillis(1)));
  // Loads of everything change nothing, and nobody looks through backlogs for them.
  const std::shared_ptr<const Erasures> before = last().erasures();
  const size_t published = published_.size();
  EXPECT_TRUE(Eventually([&] { return published_.size() >= published + 2; }));
  EXPECT_EQ(last().erasures(), before);
  EXPECT_TRUE(last().DeadLettersBacklogOf(endpoint));
}

TEST_F(SnapshotLoaderTest, ATransactionThatCommitsLateIsNotMissed) {
  const CustomerId customer = MakeCustomer();
  const EndpointId early = MakeEndpoint(customer);
  const EndpointId late = MakeEndpoint(customer);
  Start();
  ASSERT_TRUE(Loaded());

  // It takes its number first, and commits after later ones were loaded.
  auto session = OperatorSession();
  ASSERT_OK(
      session->Script(absl::StrCat("BEGIN; UPDATE postrider.endpoints SET description = "
                                   "'late' WHERE id = '",
                                   late.ToUuid(), "'")));
  ASSERT_OK_AND_ASSIGN(QueryResult xid, session->Query("SELECT pg_current_xact_id()"));
  uint64_t late_xid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(xid.text(0, 0), &late_xid));
  {
    auto other = OperatorSession();
    ASSERT_OK(other->Script(absl::StrCat(
        "UPDATE postrider.endpoints SET description = 'early' WHERE id = '", early.ToUuid(), "'")));
  }
  ASSERT_TRUE(
      Eventually([&] { return last().FindEndpoint(early)->settings.description == "early"; }));
  EXPECT_GT(last().FindEndpoint(early)->changed_xid, late_xid);
  EXPECT_EQ(last().FindEndpoint(late)->settings.description, "");
  EXPECT_FALSE(last().Sees(late_xid)) << "a greater number seen says nothing of this one";
  ASSERT_OK(session->Script("COMMIT"));
  EXPECT_TRUE(
      Eventually([&] { return last().FindEndpoint(late)->settings.description == "late"; }));
  EXPECT_TRUE(last().Sees(late_xid));
  EXPECT_EQ(last().FindEndpoint(late)->changed_xid, late_xid);
}

TEST_F(SnapshotLoaderTest, ANotificationBringsAChangeWithoutWaitingForThePoll) {
  options_.poll_interval = std::chrono::hours(1);
  options_.confirm_interval = std::chrono::hours(1);
  Start();
  ASSERT_TRUE(Loaded());
  const CustomerId customer = MakeCustomer();
  EXPECT_TRUE(Eventually([&] { return last().FindCustomer(customer) != nullptr; }));
}

TEST_F(SnapshotLoaderTest, APollBringsAChangeWithoutANotification) {
  const CustomerId customer = MakeCustomer();
  Start();
  ASSERT_TRUE(Loaded());
  ASSERT_OK_AND_ASSIGN(auto owner, BlockingSession::Open(database_->options().url));
  ASSERT_OK(owner->Script("ALTER TABLE postrider.customers DISABLE TRIGGER notify_change"));
  auto session = OperatorSession();
  ASSERT_OK(session->Script("UPDATE postrider.customers SET name = 'x'"));
  EXPECT_TRUE(Eventually([&] { return last().FindCustomer(customer)->generation == 2; }));
}

TEST_F(SnapshotLoaderTest, AnUnchangedSnapshotIsConfirmed) {
  options_.confirm_interval = milliseconds(200);
  MakeCustomer();
  Start();
  ASSERT_TRUE(Loaded());
  ASSERT_TRUE(Eventually([&] { return published_.size() >= 3; }));
  EXPECT_EQ(last().contents_version(), published_[0]->contents_version());
  EXPECT_GT(last().confirmed_at(), published_[0]->confirmed_at());
}

TEST_F(SnapshotLoaderTest, AReconcileFindsWhatNoPollCould) {
  options_.reconcile_interval = milliseconds(300);
  const CustomerId customer = MakeCustomer();
  Start();
  ASSERT_TRUE(Loaded());
  // Rows that were taken out, as after a restore of a part: no poll sees them.
  ASSERT_OK_AND_ASSIGN(auto owner, BlockingSession::Open(database_->options().url));
  ASSERT_OK(
      owner->Script("ALTER TABLE postrider.customers NO FORCE ROW LEVEL SECURITY; "
                    "ALTER TABLE postrider.grants NO FORCE ROW LEVEL SECURITY; "
                    "ALTER TABLE postrider.customers DISABLE TRIGGER notify_change; "
                    "ALTER TABLE postrider.grants DISABLE TRIGGER notify_change; "
                    "DELETE FROM postrider.grants; DELETE FROM postrider.customers"));
  EXPECT_TRUE(Eventually([&] { return last().FindCustomer(customer) == nullptr; }));
}

TEST_F(SnapshotLoaderTest, KeepsItsSnapshotWhileTheDatabaseIsAwayAndCatchesUp) {
  Relay();
  const CustomerId customer = MakeCustomer();
  Start();
  ASSERT_TRUE(Loaded());
  relay_->Set(TcpRelay::Mode::kClosed);
  ASSERT_TRUE(Eventually([&] { return !loader_->health().ok(); }));
  EXPECT_THAT(loader_->health(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_NE(loader_->current()->FindCustomer(customer), nullptr);
  const CustomerId second = MakeCustomer();
  relay_->Set(TcpRelay::Mode::kOpen);
  EXPECT_TRUE(Eventually([&] { return last().FindCustomer(second) != nullptr; }));
  EXPECT_TRUE(Eventually([&] { return loader_->health().ok(); }));
}

TEST_F(SnapshotLoaderTest, StartsFromItsFileWhenTheDatabaseDoesNotAnswer) {
  Relay();
  const CustomerId customer = MakeCustomer({"t1"});
  MakeSubscription(customer, MakeEndpoint(customer));
  Start();
  ASSERT_TRUE(Loaded());
  ASSERT_TRUE(Eventually([&] {
    auto kept = ReadSnapshotFile(options_.file);
    return kept.ok() && (*kept)->subscriptions().size() == 1;
  }));
  loader_.reset();
  published_.clear();

  for (const TcpRelay::Mode mode : {TcpRelay::Mode::kClosed, TcpRelay::Mode::kSilent}) {
    relay_->Set(mode);
    Start();
    ASSERT_TRUE(Loaded());
    EXPECT_THAT(last().subscriptions(), SizeIs(1));
    EXPECT_FALSE(loader_->health().ok());
    if (mode == TcpRelay::Mode::kClosed) {
      loader_.reset();
      published_.clear();
    }
  }
  const uint64_t version = last().version();
  const CustomerId second = MakeCustomer();
  relay_->Set(TcpRelay::Mode::kOpen);
  EXPECT_TRUE(Eventually([&] { return last().FindCustomer(second) != nullptr; }));
  EXPECT_GT(last().version(), version);
  EXPECT_TRUE(last().Granted(customer, "t1"));
}

TEST_F(SnapshotLoaderTest, DoesNotStartFromADamagedOrTooOldFile) {
  Relay();
  MakeCustomer();
  Start();
  ASSERT_TRUE(Loaded());
  ASSERT_TRUE(Eventually([&] { return ReadSnapshotFile(options_.file).ok(); }));
  loader_.reset();
  published_.clear();
  relay_->Set(TcpRelay::Mode::kClosed);

  ASSERT_OK_AND_ASSIGN(auto kept, ReadSnapshotFile(options_.file));
  SnapshotLoaderOptions strict = options_;
  EXPECT_TRUE(strict.Usable(*kept, kept->confirmed_at() + strict.age_max));
  EXPECT_FALSE(strict.Usable(*kept, kept->confirmed_at() + strict.age_max + milliseconds(1)));

  // The file is looked at once; afterwards the loader is still without a snapshot.
  const auto stays_without = [&] {
    bool looked = false;
    Start();
    loop_->CallAfter(options_.file_after + milliseconds(50), [&] { looked = true; });
    EXPECT_TRUE(Eventually([&] { return looked; }));
    const bool without = published_.empty();
    loader_.reset();
    published_.clear();
    return without;
  };
  options_.age_max = milliseconds(0);
  EXPECT_TRUE(stays_without());
  options_.age_max = std::chrono::hours(24);
  EXPECT_FALSE(stays_without());
  std::fstream file(options_.file, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(40);
  file.put('~');
  file.close();
  EXPECT_TRUE(stays_without());
}

TEST_F(SnapshotLoaderTest, LoadsAllAnewWhenTheDatabaseIsAnotherOne) {
  // The other one has the same roles, and a customer of its own that no poll of ours would show.
  ASSERT_OK_AND_ASSIGN(auto other, tests::TestDatabase::Create());
  DatabaseOptions options = database_->options();
  options.url = other->options().url;
  for (std::string* url : {&options.api_url, &options.indexer_url, &options.reader_url}) {
    ASSERT_OK_AND_ASSIGN(*url, WithDatabase(*url, other->name()));
  }
  ASSERT_OK(Migrate(options));
  const auto restored = NewId<CustomerId>(clock_);
  {
    ASSERT_OK_AND_ASSIGN(auto session, BlockingSession::Open(options.api_url));
    ASSERT_OK(session->Script(absl::StrCat(
        "SET postrider.operator = 'on'; INSERT INTO postrider.customers (id, name) VALUES ('",
        restored.ToUuid(), "', 'n')")));
  }
  Relay();
  const CustomerId customer = MakeCustomer();
  Start();
  ASSERT_TRUE(Loaded());
  const uint64_t version = last().version();
  relay_->Set(TcpRelay::Mode::kClosed);
  pool_.reset();

  // A database is renamed when its last session has ended, which takes the server a moment.
  const auto rename = [&](const std::string& url, const std::string& from, const std::string& to) {
    return RunUntil(*loop_, [&] {
      auto owner = BlockingSession::Open(url);
      if (!owner.ok()) return false;
      return (*owner)->Script(absl::StrCat("ALTER DATABASE ", from, " RENAME TO ", to)).ok();
    });
  };
  ASSERT_OK_AND_ASSIGN(DatabaseUrl server, DatabaseUrl::Parse(database_->server_url()));
  ASSERT_OK_AND_ASSIGN(const std::string owner,
                       WithDatabase(database_->options().url, server.database));
  ASSERT_OK_AND_ASSIGN(const std::string other_owner,
                       WithDatabase(other->options().url, server.database));
  const std::string name = database_->name();
  ASSERT_TRUE(rename(owner, name, name + "_away"));
  ASSERT_TRUE(rename(other_owner, other->name(), name));
  relay_->Set(TcpRelay::Mode::kOpen);
  EXPECT_TRUE(Eventually([&] { return last().FindCustomer(restored) != nullptr; }));
  EXPECT_EQ(last().FindCustomer(customer), nullptr);
  EXPECT_GT(last().version(), version);
  loader_.reset();
  ASSERT_TRUE(rename(other_owner, name, other->name()));
  ASSERT_TRUE(rename(owner, name + "_away", name));
  // What the shared roles may do there goes before the roles do.
  other.reset();
}

TEST_F(SnapshotLoaderTest, SaysWhenTheDatabaseIsOfAnotherVersion) {
  ASSERT_OK_AND_ASSIGN(auto owner, BlockingSession::Open(database_->options().url));
  ASSERT_OK(owner->Script("DELETE FROM postrider.schema_migrations"));
  Start();
  ASSERT_TRUE(Eventually([&] { return absl::IsFailedPrecondition(loader_->health()); }));
  EXPECT_THAT(loader_->health(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          ::testing::HasSubstr("postrider migrate")));
  EXPECT_TRUE(published_.empty());
}

TEST_F(SnapshotLoaderTest, LoadsMoreRowsThanOnePortionHolds) {
  const CustomerId customer = MakeCustomer({"t1"});
  const EndpointId endpoint = MakeEndpoint(customer);
  auto session = OperatorSession();
  ASSERT_OK(session->Script(absl::StrCat(
      "INSERT INTO postrider.subscriptions (id, customer_id, endpoint_id, event_types, "
      "scope_kind, tenants) SELECT gen_random_uuid(), '",
      customer.ToUuid(), "', '", endpoint.ToUuid(),
      "', ARRAY['a' || n % 500, 'b.*'], 'tenants', ARRAY['t1'] FROM "
      "generate_series(1, 12000) AS n")));
  Start();
  ASSERT_TRUE(Loaded());
  EXPECT_THAT(last().subscriptions(), SizeIs(12'000));
}

}  // namespace
}  // namespace postrider::subscriptions
