#include "loadtest/generate.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loadtest/event_source.h"
#include "loadtest/http_request.h"
#include "loadtest/plan.h"

namespace postrider::loadtest {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// The numbers of the events in a body, in their order.
std::vector<uint64_t> NumbersIn(absl::string_view body) {
  constexpr absl::string_view kId = R"("id":")";
  std::vector<uint64_t> numbers;
  for (size_t at = body.find(kId); at != absl::string_view::npos; at = body.find(kId, at)) {
    at += kId.size();
    uint32_t run = 0;
    uint64_t number = 0;
    const absl::string_view id = body.substr(at, body.find('"', at) - at);
    // A payload names its event by other members.
    if (ParseEventId(id, &run, &number)) numbers.push_back(number);
  }
  return numbers;
}

// A server for one connection at a time. `answer` gives the status for each request, or 0 to close
// the connection without one.
class ScriptedApi {
 public:
  using Answer = std::function<int(size_t request, const std::vector<uint64_t>& events)>;

  explicit ScriptedApi(Answer answer)
      : answer_(std::move(answer)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    socklen_t size = sizeof(at);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    url_ = absl::StrCat("http://127.0.0.1:", ntohs(at.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  // After the client has closed its connection.
  ~ScriptedApi() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const std::string& url() const { return url_; }

 private:
  void Serve() {
    for (;;) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      Talk(fd);
      close(fd);
    }
  }
  void Talk(int fd) {
    HttpRequestReader reader;
    for (;;) {
      HttpRequest request;
      const HttpRequestReader::Result result = reader.Next(&request);
      if (result == HttpRequestReader::Result::kMalformed) return;
      if (result == HttpRequestReader::Result::kNeedMore) {
        const ssize_t got = recv(fd, reader.Space(4096), 4096, 0);
        if (got <= 0) return;
        reader.Commit(static_cast<size_t>(got));
        continue;
      }
      EXPECT_EQ(request.target, "/v1/events");
      EXPECT_EQ(request.Header("authorization"), "Bearer key");
      const int status = answer_(requests_++, NumbersIn(request.body));
      reader.Consume();
      if (status == 0) return;
      const std::string head =
          absl::StrCat("HTTP/1.1 ", status, " x\r\ncontent-length: 4\r\n\r\nwhat");
      if (send(fd, head.data(), head.size(), MSG_NOSIGNAL) < 0) return;
    }
  }

  const Answer answer_;
  const int listener_;
  std::string url_;
  size_t requests_ = 0;
  std::thread thread_;
};

class GenerateToApiTest : public ::testing::Test {
 protected:
  GenerateToApiTest() {
    options_.publisher_key = "key";
    options_.connections = 1;
  }
  static Plan MakePlan() {
    PlanOptions options;
    options.topics = 20;
    options.tenants = 100;
    options.customers = 10;
    options.large_customers = 4;
    options.endpoints = 30;
    options.subscriptions = 60;
    options.addresses = 5;
    return *Plan::Build(options);
  }
  const Plan plan_ = MakePlan();
  const std::atomic<bool> stop_{false};
  GenerateOptions options_;
};

TEST_F(GenerateToApiTest, RepeatsInOrderWhatWasNotAcknowledgedAndCountsWhatMayBeStoredTwice) {
  std::vector<uint64_t> stored;
  uint64_t uncertain = 0;
  const ScriptedApi api([&](size_t request, const std::vector<uint64_t>& events) {
    EXPECT_FALSE(events.empty());
    constexpr int kBegin[] = {503, 0, 429};
    const int status = request < 3 ? kBegin[request] : 202;
    if (status == 202) stored.insert(stored.end(), events.begin(), events.end());
    // Who says that there were too many requests has stored none of this one.
    if (status == 503 || status == 0) uncertain += events.size();
    return status;
  });
  options_.api = api.url();
  options_.events = 700;  // more than a request takes
  const absl::StatusOr<GenerateResult> result = Generate(plan_, options_, stop_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->events, 700U);
  EXPECT_EQ(result->acknowledged, 700U);
  EXPECT_GT(uncertain, 0U);
  EXPECT_EQ(result->sent_again, uncertain);
  std::vector<uint64_t> in_order(700);
  for (size_t i = 0; i < in_order.size(); ++i) in_order[i] = i;
  EXPECT_THAT(stored, ElementsAreArray(in_order));
}

TEST_F(GenerateToApiTest, EndsAtAnAnswerThatNoRepeatWillChange) {
  const ScriptedApi api([](size_t, const std::vector<uint64_t>&) { return 403; });
  options_.api = api.url();
  options_.events = 10;
  const absl::StatusOr<GenerateResult> result = Generate(plan_, options_, stop_);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("answered 403: what"));
}

}  // namespace
}  // namespace postrider::loadtest
