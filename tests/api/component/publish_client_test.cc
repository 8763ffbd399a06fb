#include "api/publish_client.h"

#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/router.h"
#include "core/base/event_loop.h"
#include "core/http/address_guard.h"
#include "core/http/curl_sink.h"
#include "core/http/resolver.h"
#include "tests/api/component/api_fixture.h"

namespace postrider::api {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file without a name that holds `text`, read from its begin.
class Input {
 public:
  explicit Input(const std::string& text) {
    char name[] = "/tmp/postrider-lines-XXXXXX";
    fd_ = ::mkstemp(name);
    EXPECT_GE(fd_, 0);
    ::unlink(name);
    EXPECT_EQ(::write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(::lseek(fd_, 0, SEEK_SET), 0);
  }
  ~Input() { ::close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

class PublishClientTest : public ApiFixture {
 protected:
  void SetUp() override {
    ApiFixture::SetUp();
    // A topic of the test's own.
    type_ = absl::StrCat("test.", ++made_);
    ASSERT_EQ(Call("PUT", absl::StrCat("/v1/event-types/", type_), operator_key(), "{}").status,
              201);
    loop_ = *EventLoop::Create(suite()->clock);
    resolver_ = CreateSystemResolver({}, suite()->clock, metrics_);
    AddressRulesOptions rules;
    rules.allow = {"127.0.0.0/8"};
    ASSERT_OK_AND_ASSIGN(
        sink_, CreateCurlSink(*loop_, {}, *resolver_, *AddressRules::Create(rules), metrics_));
    options_.key = MakeKey(R"({"scope":"publisher","event_types":["*"],"tenants":["t1"]})");
    options_.retry_first = milliseconds(20);
    SetPort(suite()->role->port());
  }
  void SetPort(uint16_t port) {
    options_.url = *ParseHttpUrl(absl::StrCat("http://127.0.0.1:", port));
  }

  PublishLinesReport Publish(const std::string& text) {
    const Input input(text);
    return PublishFrom(input.fd());
  }
  PublishLinesReport PublishFrom(int fd) {
    return PublishLines(*loop_, *sink_, fd, options_, [this](const RefusedLine& line) {
      refused_.push_back(absl::StrCat(line.line, " ", line.reason));
    });
  }
  std::string Event(absl::string_view members, absl::string_view tenant = "t1") const {
    return absl::StrCat("{\"type\":\"", type_, "\",\"tenant\":\"", tenant, "\",", members, "}\n");
  }
  // Of the records in the log, in their order.
  std::vector<std::string> Stored(absl::string_view header = "") const {
    std::vector<std::string> stored;
    const std::string topic = absl::StrCat("events.", type_);
    if (!suite()->log.Partitions(topic, milliseconds(0)).ok()) return stored;
    for (const auto& record : suite()->log.Records({topic, 0})) {
      if (header.empty()) stored.push_back(record.value);
      for (const auto& [name, value] : record.headers) {
        if (name == header) stored.push_back(value);
      }
    }
    return stored;
  }

  static int made_;
  std::string type_;
  Metrics metrics_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Resolver> resolver_;
  std::unique_ptr<HttpSink> sink_;
  PublishLinesOptions options_;
  std::vector<std::string> refused_;
};
int PublishClientTest::made_ = 0;

TEST_F(PublishClientTest, SendsEveryLineInItsOrder) {
  std::string text;
  std::vector<std::string> sent;
  for (int i = 0; i < 1'500; ++i) {
    absl::StrAppend(&text, Event(absl::StrCat("\"data\":", i)));
    sent.push_back(absl::StrCat(i));
  }
  const PublishLinesReport report = Publish(text);
  EXPECT_OK(report.failure);
  EXPECT_EQ(report.accepted, 1'500);
  EXPECT_EQ(report.refused, 0);
  EXPECT_EQ(report.lines_settled, 1'500);
  EXPECT_EQ(Stored(), sent);
}

TEST_F(PublishClientTest, TellsOfEachLineThatIsRefusedAndGoesOn) {
  const PublishLinesReport report = Publish(absl::StrCat(
      Event("\"data\":1"), "\n", Event("\"data\":2", "t2"), "no json\n", Event("\"x\":1"),
      std::string(kLineBytesMax + 1, ' '), "x\n", Event("\"data\":7")));
  EXPECT_OK(report.failure);
  EXPECT_EQ(report.accepted, 2);
  EXPECT_EQ(report.refused, 4);
  EXPECT_EQ(report.lines_settled, 7);
  EXPECT_THAT(Stored(), ElementsAre("1", "7"));
  EXPECT_THAT(refused_, ::testing::UnorderedElementsAre(
                            HasSubstr("6 is longer than"), HasSubstr("3 This key may not publish"),
                            HasSubstr("4 is not one JSON value"),
                            "5 /x: is no field of this; /data: is required"));
}

TEST_F(PublishClientTest, GivesLinesTheirTypeAndAnId) {
  options_.type = type_;
  const PublishLinesReport report = Publish(
      "{\"tenant\":\"t1\",\"data\":1}\n"
      "  { \"id\" : null , \"tenant\":\"t1\",\"data\":{\"id\":null}}\r\n"
      "{\"id\":\"mine\",\"tenant\":\"t1\",\"data\":3}\n"
      "{\"type\":\"other\",\"tenant\":\"t1\",\"data\":4}\n"
      "{}");
  EXPECT_OK(report.failure);
  EXPECT_EQ(report.accepted, 3);
  EXPECT_THAT(refused_,
              ElementsAre(HasSubstr("4 /type: is not test."),
                          "5 /data: is required; /type: is required; /tenant: is required"));
  EXPECT_THAT(Stored(), ElementsAre("1", "{\"id\":null}", "3"));
  EXPECT_THAT(Stored("id"),
              ElementsAre(::testing::StartsWith("evt_"), ::testing::StartsWith("evt_"), "mine"));
}

TEST_F(PublishClientTest, StopsAtTheFirstRefusalIfTold) {
  options_.at_refusal = PublishLinesOptions::AtRefusal::kStop;
  options_.request_lines_max = 2;
  const PublishLinesReport report = Publish(absl::StrCat(
      Event("\"data\":1"), "no\n", Event("\"data\":3"), Event("\"data\":4"), Event("\"data\":5")));
  EXPECT_THAT(report.failure.message(), HasSubstr("line 2 was refused"));
  EXPECT_EQ(report.accepted, 1);
  EXPECT_EQ(report.lines_settled, 2);
  EXPECT_THAT(Stored(), ElementsAre("1"));
}

TEST_F(PublishClientTest, SendsAgainWithTheSameIdsUntilTheLogTakesThem) {
  PublishOptions publish;
  publish.answer_within = milliseconds(200);
  ASSERT_OK_AND_ASSIGN(const auto role,
                       suite()->StartRole(suite()->database->options().api_url, publish));
  SetPort(role->port());
  ASSERT_EQ(Publish(Event("\"data\":0,\"id\":\"first\"")).accepted, 1);
  suite()->log.HoldAppends(true);
  loop_->CallAfter(milliseconds(500), [] { suite()->log.HoldAppends(false); });
  const PublishLinesReport report =
      Publish(absl::StrCat(Event("\"data\":1"), Event("\"data\":2"), Event("\"data\":3")));
  EXPECT_OK(report.failure);
  EXPECT_EQ(report.accepted, 3);
  EXPECT_EQ(report.lines_settled, 3);
  const std::vector<std::string> ids = Stored("id");
  ASSERT_GE(ids.size(), 4u);
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 4u);
}

TEST_F(PublishClientTest, TellsOfALineThatTheLogNeverTakesAndGoesOn) {
  PublishOptions publish;
  publish.event_bytes_max = 2 << 20;  // more than the log takes
  ASSERT_OK_AND_ASSIGN(const auto role,
                       suite()->StartRole(suite()->database->options().api_url, publish));
  SetPort(role->port());
  const PublishLinesReport report = Publish(absl::StrCat(
      Event("\"data\":1"), Event(absl::StrCat("\"data\":\"", std::string(1'000'010, 'x'), "\"")),
      Event("\"data\":3")));
  EXPECT_OK(report.failure);
  EXPECT_EQ(report.accepted, 2);
  EXPECT_EQ(report.refused, 1);
  EXPECT_EQ(report.lines_settled, 3);
  EXPECT_THAT(refused_, ElementsAre(HasSubstr("2 the log can never take this event")));
  EXPECT_THAT(Stored(), ElementsAre("1", "3"));
}

TEST_F(PublishClientTest, GivesUpOnAServiceThatIsAwayAndTellsHowFarItCame) {
  SetPort(1);
  options_.give_up_after = milliseconds(100);
  const PublishLinesReport report = Publish(absl::StrCat("\n", Event("\"data\":1")));
  EXPECT_THAT(report.failure.message(), HasSubstr("connect"));
  EXPECT_EQ(report.accepted, 0);
  EXPECT_EQ(report.lines_settled, 1);
}

TEST_F(PublishClientTest, DoesNotTryAgainWithAKeyThatIsNone) {
  options_.key = "pr_x";
  const PublishLinesReport report = Publish(Event("\"data\":1"));
  EXPECT_THAT(report.failure.message(), HasSubstr("status 401"));
  EXPECT_EQ(report.lines_settled, 0);
}

TEST_F(PublishClientTest, SendsWhatAPipeHasWithoutWaitingForItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string first = Event("\"data\":1");
  ASSERT_EQ(::write(ends[1], first.data(), first.size()), static_cast<ssize_t>(first.size()));
  // The pipe ends when the line is stored.
  std::function<void()> look = [&] {
    if (!Stored().empty()) {
      ::close(ends[1]);
    } else {
      loop_->CallAfter(milliseconds(5), look);
    }
  };
  loop_->CallAfter(milliseconds(5), look);
  const PublishLinesReport report = PublishFrom(ends[0]);
  ::close(ends[0]);
  EXPECT_OK(report.failure);
  EXPECT_EQ(report.accepted, 1);
}

}  // namespace
}  // namespace postrider::api
