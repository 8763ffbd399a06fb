#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/crypto/random.h"
#include "core/postgres/blocking.h"
#include "core/postgres/pool.h"
#include "dlq/letters/dead_letter_record.h"
#include "migrations/runner.h"
#include "tests/support/loop_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace postrider::dlq {

// A migrated database for a whole suite, a loop with the real clock, and a session as the indexer,
// which sees letters of all customers. Tests keep apart by customers and topics of their own.
class LetterDatabaseTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto created = tests::TestDatabase::Create();
    if (created.ok()) {
      database() = *std::move(created);
      *fault() = Migrate(database()->options()).status();
    } else {
      *fault() = created.status();
    }
  }
  static void TearDownTestSuite() { database().reset(); }

  void SetUp() override {
    ASSERT_OK(*fault());
    ASSERT_OK_AND_ASSIGN(loop_, EventLoop::Create(clock_));
    ASSERT_OK_AND_ASSIGN(indexer_, BlockingSession::Open(database()->options().indexer_url));
  }

  static std::unique_ptr<tests::TestDatabase>& database() {
    static std::unique_ptr<tests::TestDatabase> instance;
    return instance;
  }
  static absl::Status* fault() {
    static absl::Status status;
    return &status;
  }

  static PoolOptions PoolFor(const std::string& url) {
    PoolOptions options;
    options.connection.url = url;
    options.connection.reconnect_first = std::chrono::milliseconds(5);
    options.connection.reconnect_last = std::chrono::milliseconds(20);
    options.acquire_timeout = std::chrono::seconds(10);
    options.connections_max = 4;
    return options;
  }

  // The first column of the first row, as the indexer; the SQLSTATE of what failed.
  std::string Ask(const std::string& sql) {
    auto result = indexer_->Query(sql);
    if (!result.ok()) return result.status().ToString();
    return result->rows() == 0 ? "none" : std::string(result->text(0, 0));
  }

  // An erasure of so many seconds ago, of a customer that there is or of none.
  std::string Wish(const std::string& columns, const std::string& values, int ago) {
    auto api = BlockingSession::Open(database()->options().api_url);
    EXPECT_OK(api);
    const std::string id = NewId<subscriptions::ErasureId>(clock_).ToUuid();
    EXPECT_OK((*api)->Script(absl::StrCat(
        "SET postrider.operator = 'on'; INSERT INTO postrider.customers (id, name) VALUES ('",
        customer_.ToUuid(),
        "', 'n') ON CONFLICT DO NOTHING; INSERT INTO postrider.erasures (id, created_at, ", columns,
        ") VALUES ('", id, "', now() - interval '", ago, " seconds', ", values, ")")));
    return id;
  }

  DeadLetterRecord NewLetter(subscriptions::CustomerId customer) {
    DeadLetterRecord record;
    record.letter = NewId<subscriptions::LetterId>(clock_);
    record.customer = customer;
    record.endpoint = endpoint_;
    record.reason = DeadReason::kGone;
    record.attempts = 3;
    record.last_status = 410;
    record.last_outcome = "gone";
    record.message_id = "msg_x";
    record.event_id = "e1";
    record.type = "order.created";
    record.tenant = "t1";
    record.event_time = clock_.Wall();
    record.given_up_at = clock_.Wall();
    record.data = "{}";
    return record;
  }

  SystemClock clock_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<BlockingSession> indexer_;
  subscriptions::CustomerId customer_ = NewId<subscriptions::CustomerId>(clock_);
  subscriptions::EndpointId endpoint_ = NewId<subscriptions::EndpointId>(clock_);
};

}  // namespace postrider::dlq
