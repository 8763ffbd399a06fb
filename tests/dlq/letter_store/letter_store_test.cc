#include "dlq/letters/letter_store.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "subscriptions/registry/repository.h"
#include "tests/dlq/letter_database.h"

namespace postrider::dlq {
namespace {

using std::chrono::seconds;
using subscriptions::AsCustomer;
using subscriptions::CustomerId;
using subscriptions::EndpointId;
using subscriptions::LetterId;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using tests::RunUntil;
using tests::StatusIs;

constexpr absl::StatusCode kAborted = absl::StatusCode::kAborted;
constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;

class LetterStoreTest : public LetterDatabaseTest {
 protected:
  void SetUp() override {
    LetterDatabaseTest::SetUp();
    pool_ = std::make_unique<Pool>(*loop_, PoolFor(database()->options().api_url), 1);
    ASSERT_OK_AND_ASSIGN(operator_, BlockingSession::Open(database()->options().api_url));
    ASSERT_OK(operator_->Script("SET postrider.operator = 'on'"));
    AddCustomer(customer_);
  }
  void TearDown() override {
    if (pool_ != nullptr) {
      EXPECT_TRUE(RunUntil(*loop_, [this] { return pool_->in_use() == 0; }));
    }
  }

  void AddCustomer(CustomerId id) {
    ASSERT_OK(operator_->Script(absl::StrCat(
        "INSERT INTO postrider.customers (id, name) VALUES ('", id.ToUuid(), "', 'n'); ",
        "INSERT INTO postrider.grants (customer_id, tenant) VALUES ('", id.ToUuid(), "', 't1')")));
  }

  // Letter number `number`, the higher the newer, `age` old in Postgres' time.
  DeadLetterRecord Add(int number, std::chrono::milliseconds age = {},
                       std::function<void(DeadLetterRecord&)> change = {}) {
    DeadLetterRecord letter = NewLetter(customer_);
    letter.letter =
        MakeLetterId(clock_.Wall() - age - seconds(1'000) + seconds(number), letter.letter.bytes());
    letter.event_id = absl::StrCat("e", number);
    if (change) change(letter);
    const auto inserted = indexer_->Query(Statement{
        absl::StrCat("INSERT INTO postrider.dead_letters (day, id, customer_id, endpoint_id, "
                     "message_id, event_id, type, tenant, department, event_time, reason, "
                     "attempts, last_status, last_outcome, data, created_at, available_at) SELECT "
                     "postrider.letter_day($1::uuid), $1::uuid, $2::uuid, $3::uuid, $4, $5::bytea, "
                     "$6, $7, $8::bytea, $9::timestamptz, 'gone', $10::int, 410, 'gone', "
                     "$11::bytea, now() - interval '",
                     age.count(), " ms', now() - interval '1 h' + interval '", number, " s'"),
        {SqlParam::Uuid(letter.letter.bytes()), SqlParam::Uuid(letter.customer.bytes()),
         SqlParam::Uuid(letter.endpoint.bytes()), SqlParam(letter.message_id),
         SqlParam::Bytes(letter.event_id), SqlParam(letter.type), SqlParam(letter.tenant),
         letter.department ? SqlParam::Bytes(*letter.department) : SqlParam::Null(),
         SqlParam::Time(letter.event_time), SqlParam::Int(letter.attempts),
         SqlParam::Bytes(letter.data)}});
    EXPECT_OK(inserted);
    return letter;
  }

  // `set` is an assignment of SQL.
  void Change(LetterId id, const std::string& set) {
    ASSERT_OK_AND_ASSIGN(QueryResult result,
                         indexer_->Query(absl::StrCat("UPDATE postrider.dead_letters SET ", set,
                                                      " WHERE id = '", id.ToUuid(), "'")));
    ASSERT_EQ(result.affected(), 1);
  }

  template <typename T>
  T Await(std::function<void(absl::AnyInvocable<void(T) &&>)> call) {
    std::optional<T> answer;
    call([&answer](T result) { answer.emplace(std::move(result)); });
    EXPECT_TRUE(RunUntil(*loop_, [&answer] { return answer.has_value(); }));
    return *std::move(answer);
  }

  std::unique_ptr<Transaction> Begin(CustomerId customer) {
    auto begun = Await<absl::StatusOr<Transaction>>([&](Transaction::Begun done) {
      Transaction::Begin(*pool_, AsCustomer(customer), std::move(done));
    });
    EXPECT_OK(begun);
    return std::make_unique<Transaction>(*std::move(begun));
  }
  void Commit(std::unique_ptr<Transaction> tx) {
    EXPECT_OK(
        Await<absl::Status>([&](Transaction::Committed done) { tx->Commit(std::move(done)); }));
  }
  // Runs `call` in a transaction of its own and commits it.
  template <typename T>
  T InTransaction(CustomerId customer,
                  std::function<void(Transaction&, absl::AnyInvocable<void(T) &&>)> call) {
    std::unique_ptr<Transaction> tx = Begin(customer);
    T result = Await<T>([&](absl::AnyInvocable<void(T) &&> done) { call(*tx, std::move(done)); });
    Commit(std::move(tx));
    return result;
  }

  using Letters = absl::StatusOr<std::vector<Letter>>;
  using Leased = absl::StatusOr<std::vector<LeasedLetter>>;

  Letters List(const LetterFilter& filter, size_t limit,
               absl::optional<CustomerId> as = absl::nullopt) {
    const CustomerId customer = as.value_or(customer_);
    return InTransaction<Letters>(customer, [&](Transaction& tx, auto done) {
      ListLetters(tx, customer, filter, limit, std::move(done));
    });
  }
  absl::StatusOr<Letter> Get(LetterId id, absl::optional<CustomerId> as = absl::nullopt) {
    const CustomerId customer = as.value_or(customer_);
    return InTransaction<absl::StatusOr<Letter>>(customer, [&](Transaction& tx, auto done) {
      GetLetter(tx, customer, id, std::move(done));
    });
  }
  Leased PollIn(Transaction& tx, size_t limit, seconds lease = seconds(60),
                absl::optional<EndpointId> endpoint = absl::nullopt,
                absl::optional<CustomerId> as = absl::nullopt) {
    return Await<Leased>([&](LettersDone<std::vector<LeasedLetter>> done) {
      PollLetters(tx, as.value_or(customer_), endpoint, limit, lease, std::move(done));
    });
  }
  std::vector<LeasedLetter> Poll(size_t limit, seconds lease = seconds(60),
                                 absl::optional<EndpointId> endpoint = absl::nullopt,
                                 absl::optional<CustomerId> as = absl::nullopt) {
    std::unique_ptr<Transaction> tx = Begin(as.value_or(customer_));
    Leased leased = PollIn(*tx, limit, lease, endpoint, as);
    Commit(std::move(tx));
    EXPECT_OK(leased);
    return leased.ok() ? *std::move(leased) : std::vector<LeasedLetter>();
  }
  absl::Status Ack(LetterId id, const std::string& receipt,
                   absl::optional<CustomerId> as = absl::nullopt) {
    const CustomerId customer = as.value_or(customer_);
    return InTransaction<absl::Status>(customer, [&](Transaction& tx, auto done) {
      AckLetter(tx, customer, id, receipt, std::move(done));
    });
  }
  absl::Status Nack(LetterId id, const std::string& receipt, seconds delay,
                    absl::optional<CustomerId> as = absl::nullopt) {
    const CustomerId customer = as.value_or(customer_);
    return InTransaction<absl::Status>(customer, [&](Transaction& tx, auto done) {
      NackLetter(tx, customer, id, receipt, delay, std::move(done));
    });
  }
  absl::StatusOr<WallTime> Extend(LetterId id, const std::string& receipt, seconds lease,
                                  absl::optional<CustomerId> as = absl::nullopt) {
    const CustomerId customer = as.value_or(customer_);
    return InTransaction<absl::StatusOr<WallTime>>(customer, [&](Transaction& tx, auto done) {
      ExtendLease(tx, customer, id, receipt, lease, std::move(done));
    });
  }

  // Event ids, which Add() numbers.
  static std::vector<std::string> Names(const std::vector<Letter>& letters) {
    std::vector<std::string> names;
    for (const Letter& letter : letters) names.push_back(letter.event_id);
    return names;
  }
  static std::vector<std::string> Names(const std::vector<LeasedLetter>& letters) {
    std::vector<std::string> names;
    for (const LeasedLetter& leased : letters) names.push_back(leased.letter.event_id);
    return names;
  }

  std::unique_ptr<Pool> pool_;
  std::unique_ptr<BlockingSession> operator_;
};

TEST_F(LetterStoreTest, GivesALetterAsItIs) {
  const DeadLetterRecord letter = Add(1, {}, [](DeadLetterRecord& record) {
    record.event_id = std::string("a\0\xff", 3);
    record.department = std::string("\0d", 2);
    record.data = "{\"a\": \"\\u0000\"}\n";
    record.event_time = WallTimeFromMillis(1'700'000'000'123);
  });
  ASSERT_OK_AND_ASSIGN(const Letter got, Get(letter.letter));
  EXPECT_EQ(got.id, letter.letter);
  EXPECT_EQ(got.endpoint, endpoint_);
  EXPECT_EQ(got.message_id, "msg_x");
  EXPECT_EQ(got.event_id, letter.event_id);
  EXPECT_EQ(got.type, "order.created");
  EXPECT_EQ(got.tenant, "t1");
  EXPECT_EQ(got.department, letter.department);
  EXPECT_EQ(got.event_time, letter.event_time);
  EXPECT_EQ(got.reason, "gone");
  EXPECT_EQ(got.attempts, 3);
  EXPECT_EQ(got.last_status, 410);
  EXPECT_EQ(got.last_outcome, "gone");
  EXPECT_EQ(got.data, letter.data);
  EXPECT_EQ(got.state, LetterState::kOpen);
  EXPECT_EQ(got.closed_as, absl::nullopt);
  EXPECT_NEAR(static_cast<double>(MillisSinceEpoch(got.created_at)),
              static_cast<double>(MillisSinceEpoch(clock_.Wall())), 60'000);
  EXPECT_THAT(Get(NewId<LetterId>(clock_)), StatusIs(kNotFound));
}

TEST_F(LetterStoreTest, ListsTheNewestFirstAndEachOnceWhateverThePage) {
  for (int i = 0; i < 20; ++i) {
    // Several of one millisecond, and days that have partitions and days that have none.
    Add(i / 4, std::chrono::hours(24) * (i % 2 == 0 ? 0 : 3),
        [i](DeadLetterRecord& record) { record.event_id = absl::StrCat("e", i); });
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<Letter> whole, List({}, 1'000));
  ASSERT_THAT(whole, SizeIs(20));
  for (size_t i = 1; i < whole.size(); ++i) EXPECT_GT(whole[i - 1].id, whole[i].id);
  for (const size_t page : {1u, 3u, 7u, 10u, 19u, 20u, 21u}) {
    std::vector<std::string> seen;
    LetterFilter filter;
    while (true) {
      ASSERT_OK_AND_ASSIGN(const std::vector<Letter> letters, List(filter, page));
      for (const Letter& letter : letters) seen.push_back(letter.event_id);
      if (letters.size() < page) break;
      filter.before = letters.back().id;
    }
    EXPECT_EQ(seen, Names(whole)) << page;
  }
}

TEST_F(LetterStoreTest, APageAndAPollEndWhenTheirDataAreManyBytes) {
  const size_t each = static_cast<size_t>(kLetterPageBytesMax) / 4;
  for (int number = 1; number <= 9; ++number) {
    Add(number, {}, [each](DeadLetterRecord& letter) {
      letter.data = absl::StrCat("\"", std::string(each - 2, 'x'), "\"");
    });
  }
  std::vector<std::string> seen;
  LetterFilter filter;
  for (const size_t want : {4U, 4U, 1U}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<Letter> page, List(filter, 1'000));
    ASSERT_EQ(page.size(), want);
    for (const Letter& letter : page) seen.push_back(letter.event_id);
    filter.before = page.back().id;
    EXPECT_EQ(MoreMayFollow(page, 1'000), want == 4);
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"e9", "e8", "e7", "e6", "e5", "e4", "e3", "e2", "e1"}));
  std::vector<std::string> polled;
  for (const size_t want : {4U, 4U, 1U, 0U}) {
    const std::vector<LeasedLetter> leased = Poll(100);
    ASSERT_EQ(leased.size(), want);
    for (const LeasedLetter& one : leased) polled.push_back(one.letter.event_id);
  }
  EXPECT_EQ(polled,
            (std::vector<std::string>{"e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8", "e9"}));
}

TEST_F(LetterStoreTest, FiltersByEndpointAndState) {
  const EndpointId other = NewId<EndpointId>(clock_);
  Add(1);
  const DeadLetterRecord leased = Add(2);
  const DeadLetterRecord run_out = Add(3);
  const DeadLetterRecord closed = Add(4);
  Add(5, {}, [&](DeadLetterRecord& record) { record.endpoint = other; });
  Change(leased.letter, "state = 'leased', available_at = now() + interval '1 min'");
  Change(run_out.letter, "state = 'leased', available_at = now() - interval '1 ms'");
  Change(closed.letter, "state = 'closed', closed_as = 'acked'");

  const auto names = [this](absl::optional<EndpointId> endpoint,
                            absl::optional<LetterState> state) {
    LetterFilter filter;
    filter.endpoint = endpoint;
    filter.state = state;
    Letters letters = List(filter, 100);
    EXPECT_OK(letters);
    return letters.ok() ? Names(*letters) : std::vector<std::string>();
  };
  EXPECT_THAT(names(absl::nullopt, absl::nullopt), ElementsAre("e5", "e4", "e3", "e2", "e1"));
  EXPECT_THAT(names(endpoint_, absl::nullopt), ElementsAre("e4", "e3", "e2", "e1"));
  EXPECT_THAT(names(other, absl::nullopt), ElementsAre("e5"));
  EXPECT_THAT(names(absl::nullopt, LetterState::kOpen), ElementsAre("e5", "e3", "e1"))
      << "a lease that has run out is open";
  EXPECT_THAT(names(absl::nullopt, LetterState::kLeased), ElementsAre("e2"));
  EXPECT_THAT(names(endpoint_, LetterState::kClosed), ElementsAre("e4"));
  EXPECT_THAT(names(absl::nullopt, LetterState::kReplaying), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const Letter open_again, Get(run_out.letter));
  EXPECT_EQ(open_again.state, LetterState::kOpen);
  ASSERT_OK_AND_ASSIGN(const Letter acked, Get(closed.letter));
  EXPECT_EQ(acked.closed_as, "acked");
}

TEST_F(LetterStoreTest, PollsTheOldestFirstAndLeasesThem) {
  for (int i : {3, 1, 2, 5, 4}) Add(i);
  const std::vector<LeasedLetter> first = Poll(2);
  ASSERT_THAT(Names(first), ElementsAre("e1", "e2"));
  EXPECT_EQ(first[0].letter.state, LetterState::kLeased);
  EXPECT_NEAR(static_cast<double>(MillisSinceEpoch(first[0].letter.available_at)),
              static_cast<double>(MillisSinceEpoch(clock_.Wall() + seconds(60))), 30'000);
  EXPECT_THAT(first[0].receipt, SizeIs(32));
  EXPECT_NE(first[0].receipt, first[1].receipt);
  EXPECT_THAT(Names(Poll(100)), ElementsAre("e3", "e4", "e5"));
  EXPECT_THAT(Poll(100), IsEmpty());
  EXPECT_EQ(Ask(absl::StrCat("SELECT count(*) FROM postrider.dead_letters WHERE receipt_sha256 = "
                             "'\\x",
                             first[0].receipt, "'")),
            "0")
      << "the receipt itself is not stored";
}

TEST_F(LetterStoreTest, PollsOneEndpointsLetters) {
  const EndpointId other = NewId<EndpointId>(clock_);
  Add(1);
  Add(2, {}, [&](DeadLetterRecord& record) { record.endpoint = other; });
  Add(3);
  EXPECT_THAT(Names(Poll(10, seconds(60), other)), ElementsAre("e2"));
  EXPECT_THAT(Names(Poll(10, seconds(60), endpoint_)), ElementsAre("e1", "e3"));
}

TEST_F(LetterStoreTest, TwoPollsAtOnceNeverGetTheSameLetter) {
  for (int i = 1; i <= 9; ++i) Add(i);
  std::unique_ptr<Transaction> one = Begin(customer_);
  std::unique_ptr<Transaction> two = Begin(customer_);
  std::unique_ptr<Transaction> three = Begin(customer_);
  ASSERT_OK_AND_ASSIGN(const auto by_one, PollIn(*one, 4));
  ASSERT_OK_AND_ASSIGN(const auto by_two, PollIn(*two, 4));
  EXPECT_THAT(Names(by_one), ElementsAre("e1", "e2", "e3", "e4"));
  EXPECT_THAT(Names(by_two), ElementsAre("e5", "e6", "e7", "e8")) << "without waiting";
  Commit(std::move(one));
  two.reset();  // rolled back: its letters are open again
  ASSERT_TRUE(RunUntil(*loop_, [this] { return pool_->in_use() == 1; }));
  // The third one began before the first one's commit and does not see it.
  ASSERT_OK_AND_ASSIGN(const auto by_three, PollIn(*three, 100));
  EXPECT_THAT(Names(by_three), ElementsAre("e5", "e6", "e7", "e8", "e9"));
  Commit(std::move(three));
  EXPECT_OK(Ack(by_one[0].letter.id, by_one[0].receipt));
  EXPECT_THAT(Ack(by_two[0].letter.id, by_two[0].receipt), StatusIs(kAborted));
  EXPECT_OK(Ack(by_three[0].letter.id, by_three[0].receipt));
}

TEST_F(LetterStoreTest, ALeaseHoldsUntilItsEndAndNotLonger) {
  const DeadLetterRecord letter = Add(1);
  const std::vector<LeasedLetter> first = Poll(1, seconds(30));
  ASSERT_THAT(first, SizeIs(1));
  const auto left = [&](const std::string& interval) {
    Change(letter.letter, absl::StrCat("available_at = now() + interval '", interval, "'"));
  };
  left("1 s");
  EXPECT_THAT(Poll(1), IsEmpty());
  EXPECT_OK(Extend(letter.letter, first[0].receipt, seconds(30)));
  left("-1 ms");
  EXPECT_THAT(Extend(letter.letter, first[0].receipt, seconds(30)), StatusIs(kAborted));
  EXPECT_THAT(Ack(letter.letter, first[0].receipt), StatusIs(kAborted));
  EXPECT_THAT(Nack(letter.letter, first[0].receipt, seconds(0)), StatusIs(kAborted));
  const std::vector<LeasedLetter> second = Poll(1, seconds(30));
  ASSERT_THAT(Names(second), ElementsAre("e1"));
  EXPECT_NE(second[0].receipt, first[0].receipt);
  EXPECT_THAT(Ack(letter.letter, first[0].receipt), StatusIs(kAborted)) << "a stale receipt";
  EXPECT_OK(Ack(letter.letter, second[0].receipt));
  EXPECT_EQ(Ask(absl::StrCat("SELECT leases FROM postrider.dead_letters WHERE id = '",
                             letter.letter.ToUuid(), "'")),
            "2");
}

TEST_F(LetterStoreTest, AnAcknowledgedLetterIsClosedForGood) {
  const DeadLetterRecord letter = Add(1);
  const std::vector<LeasedLetter> leased = Poll(1);
  ASSERT_THAT(leased, SizeIs(1));
  // Hex digits of either case, as people copy them.
  EXPECT_OK(Ack(letter.letter, absl::AsciiStrToUpper(leased[0].receipt)));
  ASSERT_OK_AND_ASSIGN(const Letter closed, Get(letter.letter));
  EXPECT_EQ(closed.state, LetterState::kClosed);
  EXPECT_EQ(closed.closed_as, "acked");
  EXPECT_THAT(Ack(letter.letter, leased[0].receipt), StatusIs(kAborted));
  EXPECT_THAT(Nack(letter.letter, leased[0].receipt, seconds(0)), StatusIs(kAborted));
  Change(letter.letter, "available_at = now() - interval '1 h'");
  EXPECT_THAT(Poll(10), IsEmpty());
}

TEST_F(LetterStoreTest, ANackedLetterComesBackAfterItsDelay) {
  const DeadLetterRecord letter = Add(1);
  std::vector<LeasedLetter> leased = Poll(1);
  ASSERT_THAT(leased, SizeIs(1));
  EXPECT_OK(Nack(letter.letter, leased[0].receipt, seconds(3'600)));
  ASSERT_OK_AND_ASSIGN(const Letter open, Get(letter.letter));
  EXPECT_EQ(open.state, LetterState::kOpen);
  EXPECT_NEAR(static_cast<double>(MillisSinceEpoch(open.available_at)),
              static_cast<double>(MillisSinceEpoch(clock_.Wall() + seconds(3'600))), 30'000);
  EXPECT_THAT(Poll(1), IsEmpty());
  EXPECT_THAT(Ack(letter.letter, leased[0].receipt), StatusIs(kAborted));
  Change(letter.letter, "available_at = now()");
  leased = Poll(1);
  ASSERT_THAT(leased, SizeIs(1));
  EXPECT_OK(Nack(letter.letter, leased[0].receipt, seconds(0)));
  EXPECT_THAT(Names(Poll(1)), ElementsAre("e1")) << "at once";
}

TEST_F(LetterStoreTest, WhatWasGivenBackGoesBehindWhatWaits) {
  for (int i = 1; i <= 3; ++i) Add(i);
  const std::vector<LeasedLetter> first = Poll(1);
  ASSERT_THAT(Names(first), ElementsAre("e1"));
  EXPECT_OK(Nack(first[0].letter.id, first[0].receipt, seconds(0)));
  EXPECT_THAT(Names(Poll(10)), ElementsAre("e2", "e3", "e1"));
}

TEST_F(LetterStoreTest, LettersThatBecameAvailableAtOnceComeOldestFirst) {
  for (int i : {3, 1, 2}) {
    const DeadLetterRecord letter = Add(i);
    Change(letter.letter, "available_at = '2026-01-01T00:00:00Z'");
  }
  EXPECT_THAT(Names(Poll(2)), ElementsAre("e1", "e2"));
}

TEST_F(LetterStoreTest, ExtendCountsFromNow) {
  const DeadLetterRecord letter = Add(1);
  const std::vector<LeasedLetter> leased = Poll(1, seconds(3'600));
  ASSERT_THAT(leased, SizeIs(1));
  ASSERT_OK_AND_ASSIGN(const WallTime until, Extend(letter.letter, leased[0].receipt, seconds(30)));
  EXPECT_NEAR(static_cast<double>(MillisSinceEpoch(until)),
              static_cast<double>(MillisSinceEpoch(clock_.Wall() + seconds(30))), 20'000);
  ASSERT_OK_AND_ASSIGN(const Letter got, Get(letter.letter));
  EXPECT_EQ(got.available_at, until);
  EXPECT_EQ(got.state, LetterState::kLeased);
  EXPECT_OK(Ack(letter.letter, leased[0].receipt)) << "the receipt is still the lease's";
}

TEST_F(LetterStoreTest, ReceiptsThatAreNotTheLeasesAreRefused) {
  const DeadLetterRecord letter = Add(1);
  Add(2);
  const DeadLetterRecord never = Add(3);
  const std::vector<LeasedLetter> leased = Poll(2);
  ASSERT_THAT(leased, SizeIs(2));
  for (const std::string& receipt :
       {leased[1].receipt, std::string(), std::string("xyz"), std::string(32, '0'),
        std::string(32, 'g'), leased[0].receipt + "00", leased[0].receipt.substr(0, 31),
        std::string(31, 'a') + std::string(1, '\0')}) {
    EXPECT_THAT(Ack(letter.letter, receipt), StatusIs(kAborted)) << receipt;
    EXPECT_THAT(Nack(letter.letter, receipt, seconds(0)), StatusIs(kAborted));
    EXPECT_THAT(Extend(letter.letter, receipt, seconds(30)), StatusIs(kAborted));
    EXPECT_THAT(Ack(never.letter, receipt), StatusIs(kAborted)) << "it was never leased";
    EXPECT_THAT(Ack(NewId<LetterId>(clock_), receipt), StatusIs(kNotFound));
  }
  ASSERT_OK_AND_ASSIGN(const Letter still, Get(letter.letter));
  EXPECT_EQ(still.state, LetterState::kLeased);
}

TEST_F(LetterStoreTest, AnotherCustomersLetterDoesNotExist) {
  const DeadLetterRecord letter = Add(1);
  const CustomerId other = NewId<CustomerId>(clock_);
  AddCustomer(other);
  const std::vector<LeasedLetter> leased = Poll(1);
  ASSERT_THAT(leased, SizeIs(1));
  const std::string& receipt = leased[0].receipt;
  EXPECT_THAT(Get(letter.letter, other), StatusIs(kNotFound));
  EXPECT_THAT(Ack(letter.letter, receipt, other), StatusIs(kNotFound));
  EXPECT_THAT(Nack(letter.letter, receipt, seconds(0), other), StatusIs(kNotFound));
  EXPECT_THAT(Extend(letter.letter, receipt, seconds(30), other), StatusIs(kNotFound));
  Change(letter.letter, "available_at = now() - interval '1 s'");
  EXPECT_THAT(Poll(10, seconds(60), absl::nullopt, other), IsEmpty());
  EXPECT_THAT(Poll(10, seconds(60), endpoint_, other), IsEmpty()) << "its endpoint's id neither";
  ASSERT_OK_AND_ASSIGN(const std::vector<Letter> listed, List({}, 10, other));
  EXPECT_THAT(listed, IsEmpty());
  // Each wall alone is enough: the statement names one customer, the session is another one.
  const Letters through = InTransaction<Letters>(other, [&](Transaction& tx, auto done) {
    ListLetters(tx, customer_, {}, 10, std::move(done));
  });
  ASSERT_OK(through);
  EXPECT_THAT(*through, IsEmpty());
  EXPECT_THAT(Names(Poll(10)), ElementsAre("e1")) << "its owner has it still";
}

TEST_F(LetterStoreTest, AWithdrawnGrantHidesALetterInEveryCall) {
  const DeadLetterRecord letter = Add(1);
  Add(2, {}, [](DeadLetterRecord& record) { record.tenant = "never-granted"; });
  const std::vector<LeasedLetter> leased = Poll(10);
  ASSERT_THAT(Names(leased), ElementsAre("e1"));
  const std::string& receipt = leased[0].receipt;
  const auto grant = [this](const std::string& deleted_at) {
    ASSERT_OK(
        operator_->Script(absl::StrCat("UPDATE postrider.grants SET deleted_at = ", deleted_at,
                                       " WHERE customer_id = '", customer_.ToUuid(), "'")));
  };
  grant("now()");
  EXPECT_THAT(Get(letter.letter), StatusIs(kNotFound));
  EXPECT_THAT(Ack(letter.letter, receipt), StatusIs(kNotFound));
  EXPECT_THAT(Nack(letter.letter, receipt, seconds(0)), StatusIs(kNotFound));
  EXPECT_THAT(Extend(letter.letter, receipt, seconds(30)), StatusIs(kNotFound));
  ASSERT_OK_AND_ASSIGN(const std::vector<Letter> listed, List({}, 10));
  EXPECT_THAT(listed, IsEmpty());
  Change(letter.letter, "available_at = now() - interval '1 s'");
  EXPECT_THAT(Poll(10), IsEmpty());
  grant("NULL");
  EXPECT_OK(Get(letter.letter));
  EXPECT_THAT(Names(Poll(10)), ElementsAre("e1"));
}

TEST_F(LetterStoreTest, ALetterIsThereForFourteenDaysExactly) {
  using std::chrono::hours;
  using std::chrono::minutes;
  const DeadLetterRecord kept = Add(1, kLetterRetention - minutes(1));
  const DeadLetterRecord gone = Add(2, kLetterRetention + std::chrono::milliseconds(1));
  EXPECT_OK(Get(kept.letter));
  EXPECT_THAT(Get(gone.letter), StatusIs(kNotFound));
  ASSERT_OK_AND_ASSIGN(const std::vector<Letter> listed, List({}, 10));
  EXPECT_THAT(Names(listed), ElementsAre("e1"));
  const std::vector<LeasedLetter> leased = Poll(10);
  ASSERT_THAT(Names(leased), ElementsAre("e1"));
  // A lease does not make it last longer.
  Change(kept.letter, "created_at = now() - interval '14 days'");
  EXPECT_THAT(Ack(kept.letter, leased[0].receipt), StatusIs(kNotFound));
}

TEST_F(LetterStoreTest, TheDispatchDayDoesNotHideALetterThatWasGivenUpLater) {
  using std::chrono::hours;
  // Given up now; dispatched yesterday, ten and twenty days ago, or by a clock that was wrong.
  for (const int days : {1, 10, 20, 100, 19'000, -30}) {
    const DeadLetterRecord letter = Add(1, {}, [&](DeadLetterRecord& record) {
      record.letter = MakeLetterId(clock_.Wall() - hours(24) * days, record.letter.bytes());
      record.event_id = absl::StrCat(days);
    });
    EXPECT_OK(Get(letter.letter)) << days;
  }
  EXPECT_THAT(Names(Poll(10)), ElementsAre("1", "10", "20", "100", "19000", "-30"));
  ASSERT_OK_AND_ASSIGN(const std::vector<Letter> listed, List({}, 10));
  EXPECT_THAT(Names(listed), ElementsAre("-30", "1", "10", "20", "100", "19000"));
}

}  // namespace
}  // namespace postrider::dlq
