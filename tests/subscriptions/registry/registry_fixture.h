#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/crypto/random.h"
#include "core/postgres/blocking.h"
#include "core/postgres/pool.h"
#include "core/postgres/transaction.h"
#include "migrations/runner.h"
#include "subscriptions/registry/repository.h"
#include "tests/support/loop_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace postrider::subscriptions {

// A migrated database of the test's own, and a pool as the API's role.
class RegistryFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, tests::TestDatabase::Create());
    ASSERT_OK(Migrate(database_->options()));
    auto loop = EventLoop::Create(clock_);
    ASSERT_OK(loop);
    loop_ = *std::move(loop);
    PoolOptions options;
    options.connection.url = database_->options().api_url;
    options.connection.check_sql = ApiRoleCheckSql();
    pool_ = std::make_unique<Pool>(*loop_, options, 1);
  }
  void TearDown() override {
    pool_.reset();
    if (loop_ != nullptr) loop_->RunOnce(Duration::zero());
  }

  template <typename T>
  bool Wait(const std::optional<T>& answer) {
    return tests::RunUntil(*loop_, [&] { return answer.has_value(); });
  }

  // Runs `call(tx, done)` in a transaction with `options` and commits it if it went well.
  template <typename T, typename Call>
  absl::StatusOr<T> In(TransactionOptions options, Call call) {
    std::optional<absl::StatusOr<Transaction>> begun;
    Transaction::Begin(*pool_, std::move(options),
                       [&](absl::StatusOr<Transaction> tx) { begun.emplace(std::move(tx)); });
    if (!Wait(begun)) return absl::DeadlineExceededError("begin");
    if (!begun->ok()) return begun->status();
    std::optional<absl::StatusOr<T>> answer;
    call(**begun, [&](absl::StatusOr<T> result) { answer.emplace(std::move(result)); });
    EXPECT_FALSE(answer.has_value()) << "answered inside the call";
    if (!Wait(answer)) return absl::DeadlineExceededError("call");
    if (!answer->ok()) return *std::move(answer);
    std::optional<absl::Status> committed;
    (**begun).Commit([&](absl::Status status) { committed = std::move(status); });
    if (!Wait(committed)) return absl::DeadlineExceededError("commit");
    if (!committed->ok()) return *committed;
    return *std::move(answer);
  }
  template <typename Call>
  absl::Status Do(TransactionOptions options, Call call) {
    return In<bool>(std::move(options),
                    [&](Transaction& tx, auto done) {
                      call(tx, [done = std::move(done)](absl::Status status) mutable {
                        std::move(done)(status.ok() ? absl::StatusOr<bool>(true)
                                                    : absl::StatusOr<bool>(std::move(status)));
                      });
                    })
        .status();
  }

  CustomerId MakeCustomer(const std::vector<std::string>& tenants = {}) {
    const auto id = NewId<CustomerId>(clock_);
    EXPECT_OK(In<Customer>(AsOperator(), [&](Transaction& tx, auto done) {
      InsertCustomer(tx, id, "Acme", std::move(done));
    }));
    if (!tenants.empty()) {
      EXPECT_OK(In<int64_t>(AsOperator(), [&](Transaction& tx, auto done) {
        AddGrants(tx, id, tenants, std::move(done));
      }));
    }
    return id;
  }

  EndpointId MakeEndpoint(CustomerId customer) {
    const auto id = NewId<EndpointId>(clock_);
    EndpointSettings settings;
    settings.url = "https://example.com/hook";
    EXPECT_OK(In<Endpoint>(AsCustomer(customer), [&](Transaction& tx, auto done) {
      InsertEndpoint(tx, customer, id, settings, {}, "sealed", std::move(done));
    }));
    return id;
  }

  SubscriptionId MakeSubscription(CustomerId customer, EndpointId endpoint) {
    const auto id = NewId<SubscriptionId>(clock_);
    SubscriptionSettings settings;
    settings.endpoint = endpoint;
    settings.event_types = {"order.*"};
    EXPECT_OK(In<Subscription>(AsCustomer(customer), [&](Transaction& tx, auto done) {
      InsertSubscription(tx, customer, id, settings, std::move(done));
    }));
    return id;
  }

  SystemClock clock_;
  std::unique_ptr<tests::TestDatabase> database_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace postrider::subscriptions
