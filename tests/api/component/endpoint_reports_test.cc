// The status and the attempts of endpoints over HTTP.
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/crypto/random.h"
#include "dlq/reports/attempt_report.h"
#include "tests/api/component/api_fixture.h"

namespace postrider::api {
namespace {

class EndpointReportsTest : public ApiFixture {
 protected:
  void SetUp() override {
    ApiFixture::SetUp();
    customer_ = MakeCustomer();
    id_ = MakeEndpoint(customer_).Text("id");
    path_ = absl::StrCat("/v1/endpoints/", id_);
    ASSERT_OK_AND_ASSIGN(indexer_, BlockingSession::Open(suite()->database->options().indexer_url));
  }
  std::string Ids() const {
    return absl::StrCat("'", subscriptions::EndpointId::Parse(id_)->ToUuid(), "', '",
                        subscriptions::CustomerId::Parse(customer_.id)->ToUuid(), "'");
  }
  void AddStatus(int part, const std::string& columns, const std::string& values) {
    ASSERT_OK(indexer_->Script(
        absl::StrCat("INSERT INTO postrider.endpoint_status (endpoint_id, customer_id, part, ",
                     columns, ") VALUES (", Ids(), ", ", part, ", ", values, ")")));
  }
  std::string AddAttempt(const std::string& tenant) {
    const auto attempt = NewId<dlq::AttemptId>(suite()->clock);
    EXPECT_OK(indexer_->Script(absl::StrCat(
        "SELECT postrider.keep_attempt_days(14); INSERT INTO postrider.attempts (endpoint_id, "
        "customer_id, day, id, message_id, messages, attempt, started_at, duration_ms, outcome, "
        "status, response, tenants) VALUES (",
        Ids(), ", postrider.letter_day('", attempt.ToUuid(), "'), '", attempt.ToUuid(),
        "', 'msg_1', 1, 2, now(), 15, 'other_status', 500, 'sorry', '{", tenant, "}')")));
    return attempt.ToString();
  }

  Customer customer_;
  std::string id_;
  std::string path_;
  std::unique_ptr<BlockingSession> indexer_;
};

TEST_F(EndpointReportsTest, AnEndpointThatNoWorkerHasHadIsUnknown) {
  const JsonReply status = Call("GET", path_ + "/status", customer_.key);
  EXPECT_EQ(status.status, 200) << status.text;
  EXPECT_EQ(status.Text("endpoint_id"), id_);
  EXPECT_EQ(status.Text("state"), "unknown");
  EXPECT_TRUE(status["backlog"].Find("messages")->is_null());
  EXPECT_TRUE(status["updated_at"].is_null());
}

TEST_F(EndpointReportsTest, ShowsWhatWasObserved) {
  AddStatus(0,
            "observed_at, state, reason, held_until, backlog_messages, backlog_bytes, "
            "request_window, learned_milli_rate, last_outcome, last_status, last_attempt_at",
            "'2030-01-01T00:00:00Z', 'degraded', 'timeout', '2030-01-01T00:01:00Z', 3, 700, 1, "
            "2500, 'timeout', 0, '2029-12-31T23:59:59Z'");
  const JsonReply status = Call("GET", path_ + "/status", customer_.key);
  EXPECT_EQ(status.Text("state"), "degraded");
  EXPECT_EQ(status.Text("reason"), "timeout");
  EXPECT_EQ(status.Text("held_until"), "2030-01-01T00:01:00.000Z");
  EXPECT_EQ(status["backlog"].Serialize(), R"({"messages":3,"bytes":700})");
  EXPECT_EQ(status["window"].integer(), 1);
  EXPECT_EQ(status["learned"].Serialize(),
            R"({"events_max":null,"bytes_max":null,"messages_per_second":2.5})");
  EXPECT_EQ(status.Text("last_outcome"), "timeout");
  EXPECT_TRUE(status["last_status"].is_null());
  EXPECT_EQ(status.Text("updated_at"), "2030-01-01T00:00:00.000Z");
  EXPECT_EQ(Call("GET", path_, customer_.key).Text("last_outcome"), "timeout");
}

TEST_F(EndpointReportsTest, TellsOfAllPartsTogether) {
  AddStatus(0,
            "observed_at, state, backlog_messages, request_window, learned_events_max, "
            "last_outcome, last_status, last_attempt_at",
            "'2030-01-01T00:00:02Z', 'healthy', 3, 2, 100, 'delivered', 200, "
            "'2030-01-01T00:00:00Z'");
  AddStatus(1,
            "observed_at, state, reason, auto_disabled_generation, backlog_messages, "
            "request_window, learned_events_max, last_outcome, last_status, last_attempt_at",
            "'2030-01-01T00:00:01Z', 'disabled', 'gone', 100, 4, 3, 50, 'gone', 410, "
            "'2030-01-01T00:00:01Z'");
  const JsonReply status = Call("GET", path_ + "/status", customer_.key);
  EXPECT_EQ(status.Text("state"), "disabled");
  EXPECT_EQ(status.Text("reason"), "gone");
  EXPECT_EQ(status["backlog"].Find("messages")->integer(), 7);
  EXPECT_EQ(status["window"].integer(), 5);
  EXPECT_EQ(status["learned"].Find("events_max")->integer(), 50);
  EXPECT_EQ(status.Text("last_outcome"), "gone");
  EXPECT_EQ(status["last_status"].integer(), 410);
  EXPECT_EQ(status.Text("updated_at"), "2030-01-01T00:00:02.000Z");
}

TEST_F(EndpointReportsTest, APartThatHasNotSeenAChangeDoesNotSpeakForTheOthers) {
  AddStatus(0, "observed_at, state, request_window", "'2030-01-01T00:00:02Z', 'probing', 2");
  AddStatus(1, "observed_at, state, reason, backlog_messages, request_window",
            "'2030-01-01T00:00:01Z', 'paused', 'by_customer', 4, 3");
  AddStatus(2, "observed_at, state, reason, backlog_messages, auto_disabled_generation",
            "'2030-01-01T00:00:01Z', 'disabled', 'gone', 2, 0");
  // Left over from a greater parallelism, and drained.
  AddStatus(3, "observed_at, state, reason, request_window",
            "'2030-01-01T00:00:01Z', 'degraded', 'failing', 50");
  const JsonReply status = Call("GET", path_ + "/status", customer_.key);
  EXPECT_EQ(status.Text("state"), "probing") << status.text;
  EXPECT_TRUE(status["reason"].is_null());
  EXPECT_EQ(status["backlog"].Find("messages")->integer(), 6);
  EXPECT_EQ(status["window"].integer(), 5);
}

TEST_F(EndpointReportsTest, RoundsHowLongItTookToReachNobody) {
  // A port that is closed and one that is filtered, near enough, must look the same.
  for (const auto& [outcome, status, took, shown] :
       std::vector<std::tuple<std::string, int, int, int>>{{"connect", 0, 0, 1'000},
                                                           {"connect", 0, 999, 1'000},
                                                           {"timeout", 0, 3'001, 4'000},
                                                           {"address_not_allowed", 0, 0, 0},
                                                           {"no_token", 0, 0, 0},
                                                           {"configuration", 0, 0, 0},
                                                           {"other_status", 500, 17, 17}}) {
    const auto attempt = NewId<dlq::AttemptId>(suite()->clock);
    ASSERT_OK(indexer_->Script(absl::StrCat(
        "SELECT postrider.keep_attempt_days(14); INSERT INTO postrider.attempts (endpoint_id, "
        "customer_id, day, id, message_id, messages, attempt, started_at, duration_ms, outcome, "
        "status, response, tenants) VALUES (",
        Ids(), ", postrider.letter_day('", attempt.ToUuid(), "'), '", attempt.ToUuid(),
        "', 'msg_1', 1, 1, '2030-01-01T00:00:02.345Z', ", took, ", '", outcome, "', ", status,
        ", '', '{}')")));
    const JsonReply list = Call("GET", path_ + "/attempts", customer_.key);
    bool found = false;
    for (const JsonValue& row : *list["data"].array()) {
      if (*row.Find("id")->string() != attempt.ToString()) continue;
      found = true;
      EXPECT_EQ(row.Find("duration_ms")->integer(), shown) << outcome << " " << took;
      // One beginning and the next would tell, too.
      EXPECT_EQ(*row.Find("started_at")->string(),
                status == 0 ? "2030-01-01T00:00:02.000Z" : "2030-01-01T00:00:02.345Z");
    }
    EXPECT_TRUE(found) << outcome;
  }
}

// When the last attempt ended says how long it took, to whoever knows when it began.
TEST_F(EndpointReportsTest, RoundsWhenNobodyWasReached) {
  const std::string times =
      "'2030-01-01T00:00:02.345Z', '2030-01-01T00:00:01.234Z', '2030-01-01T00:00:00.123Z'";
  const std::string columns =
      "state, last_outcome, last_status, observed_at, last_attempt_at, failing_since";
  AddStatus(0, columns, absl::StrCat("'degraded', 'address_not_allowed', 0, ", times));
  const JsonReply unanswered = Call("GET", path_ + "/status", customer_.key);
  EXPECT_EQ(unanswered.Text("updated_at"), "2030-01-01T00:00:02.000Z");
  EXPECT_EQ(unanswered.Text("last_attempt_at"), "2030-01-01T00:00:01.000Z");
  EXPECT_EQ(unanswered.Text("failing_since"), "2030-01-01T00:00:00.000Z");
  ASSERT_OK(indexer_->Script(absl::StrCat(
      "UPDATE postrider.endpoint_status SET last_outcome = 'other_status', last_status = 500 "
      "WHERE endpoint_id = '",
      subscriptions::EndpointId::Parse(id_)->ToUuid(), "'")));
  const JsonReply answered = Call("GET", path_ + "/status", customer_.key);
  EXPECT_EQ(answered.Text("updated_at"), "2030-01-01T00:00:02.345Z");
  EXPECT_EQ(answered.Text("last_attempt_at"), "2030-01-01T00:00:01.234Z");
  EXPECT_EQ(answered.Text("failing_since"), "2030-01-01T00:00:00.000Z")
      << "the first failure may have been another";
}

TEST_F(EndpointReportsTest, ListsAttemptsInPages) {
  EXPECT_EQ(Call("GET", path_ + "/attempts", customer_.key)["data"].Serialize(), "[]");
  AddAttempt("t1");
  const std::string hidden = AddAttempt("not_granted");
  const JsonReply first = Call("GET", path_ + "/attempts?limit=1", customer_.key);
  ASSERT_EQ(first["data"].array()->size(), 1u) << first.text;
  const JsonReply second =
      Call("GET", absl::StrCat(path_, "/attempts?limit=1&cursor=", first.Text("next_cursor")),
           customer_.key);
  ASSERT_EQ(second["data"].array()->size(), 1u) << second.text;
  EXPECT_TRUE(second["next_cursor"].is_null());
  for (const JsonReply* page : {&first, &second}) {
    const JsonValue& attempt = (*(*page)["data"].array())[0];
    EXPECT_EQ(*attempt.Find("outcome")->string(), "other_status");
    EXPECT_EQ(attempt.Find("status")->integer(), 500);
    if (*attempt.Find("id")->string() == hidden) {
      EXPECT_TRUE(attempt.Find("response")->is_null()) << "its tenant is not granted";
    } else {
      EXPECT_EQ(*attempt.Find("response")->string(), "sorry");
    }
  }
  // A cursor is good for its own endpoint alone.
  const std::string other = MakeEndpoint(customer_).Text("id");
  EXPECT_EQ(
      Call("GET",
           absl::StrCat("/v1/endpoints/", other, "/attempts?cursor=", first.Text("next_cursor")),
           customer_.key)
          .Faults(),
      "cursor");
}

}  // namespace
}  // namespace postrider::api
