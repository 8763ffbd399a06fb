#include "loadtest/receiver.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loadtest/account.h"
#include "loadtest/event_source.h"
#include "loadtest/ledger.h"
#include "loadtest/signature.h"
#include "loadtest/state.h"

namespace postrider::loadtest {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kSecret[] = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

class Peer {
 public:
  Peer(const char* address, uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    inet_pton(AF_INET, address, &to.sin_addr);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    const timeval wait{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
  }
  ~Peer() { close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  bool connected() const { return connected_; }

  void Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // One answer without a body; empty: the connection ended.
  std::string Answer() {
    while (in_.find("\r\n\r\n") == std::string::npos) {
      char bytes[4096];
      const ssize_t got = recv(fd_, bytes, sizeof(bytes), 0);
      if (got <= 0) return "";
      in_.append(bytes, static_cast<size_t>(got));
    }
    const size_t end = in_.find("\r\n\r\n") + 4;
    std::string answer = in_.substr(0, end);
    in_.erase(0, end);
    return answer;
  }

 private:
  int fd_;
  bool connected_ = false;
  std::string in_;
};

class ReceiverTest : public ::testing::Test {
 protected:
  ReceiverTest() {
    PlanOptions options;
    options.topics = 20;
    options.tenants = 100;
    options.customers = 10;
    options.large_customers = 4;
    options.endpoints = 30;
    options.subscriptions = 60;
    options.addresses = 5;
    plan_ = std::make_unique<Plan>(*Plan::Build(options));
    source_ = std::make_unique<EventSource>(*plan_, 3, 500, 900);
    base_ = absl::StrCat(::testing::TempDir(), "receiver_", getpid(), "_");
    State state;
    state.fingerprint = plan_->fingerprint();
    for (int i = 0; i < 30; ++i) state.endpoints.push_back({absl::StrCat("ep_", i), kSecret});
    EXPECT_TRUE(state.Save(base_ + "state").ok());
    ReceiverOptions receive;
    receive.state_file = base_ + "state";
    receive.ledger_file = base_ + "ledger";
    receive.metrics_file = base_ + "metrics";
    auto receiver = Receiver::Create(*plan_, receive);
    EXPECT_TRUE(receiver.ok()) << receiver.status();
    receiver_ = *std::move(receiver);
    thread_ = std::thread([this] { EXPECT_TRUE(receiver_->Run().ok()); });
  }
  ~ReceiverTest() override {
    Stop();
    for (const char* name : {"state", "ledger", "metrics"}) std::remove((base_ + name).c_str());
  }
  void Stop() {
    if (!thread_.joinable()) return;
    receiver_->Stop();
    thread_.join();
  }

  std::string Envelope(uint64_t event) const {
    const EventFields fields = source_->At(event);
    std::string payload;
    source_->Payload(event, NowUs(), &payload);
    const std::string department =
        fields.department == kNoDepartment
            ? "null"
            : absl::StrCat("\"", Plan::DepartmentName(fields.department), "\"");
    return absl::StrCat(R"({"id":"msg_)", event, R"(","event_id":")", source_->Id(event),
                        R"(","type":")", plan_->TypeName(fields.type),
                        R"(","timestamp":"2026-01-01T00:00:00.000Z","tenant":")",
                        plan_->TenantName(fields.tenant), R"(","department":)", department,
                        R"(,"data":)", payload, "}");
  }
  static int64_t NowUs() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  static std::string Request(absl::string_view path, absl::string_view id, absl::string_view body,
                             int batch_size, absl::string_view secret = kSecret) {
    const std::string timestamp = absl::StrCat(NowUs() / 1000000);
    return absl::StrCat("POST ", path, " HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n",
                        "webhook-id: ", id, "\r\nwebhook-timestamp: ", timestamp,
                        "\r\nwebhook-attempt: 1\r\nwebhook-batch-size: ", batch_size,
                        "\r\nwebhook-signature: ", Sign(*DecodeSecret(secret), id, timestamp, body),
                        "\r\ncontent-length: ", body.size(), "\r\n\r\n", body);
  }
  std::vector<ReceivedRecord> Records() {
    Stop();
    auto ledger = ReadLedger<ReceivedRecord>(base_ + "ledger");
    EXPECT_TRUE(ledger.ok()) << ledger.status();
    return ledger->records;
  }

  std::unique_ptr<Plan> plan_;
  std::unique_ptr<EventSource> source_;
  std::string base_;
  std::unique_ptr<Receiver> receiver_;
  std::thread thread_;
};

TEST_F(ReceiverTest, VerifiesAndWritesDownSinglesAndBatchesOnOneConnection) {
  Peer peer("127.16.0.2", receiver_->port());
  ASSERT_TRUE(peer.connected());
  const std::string single = Envelope(1);
  peer.Send(Request("/e/7", "msg_1", single, 1));
  EXPECT_THAT(peer.Answer(), StartsWith("HTTP/1.1 200 "));
  const std::string batch = absl::StrCat("[", Envelope(2), ",", Envelope(3), "]");
  peer.Send(Request("/e/7", "bat_1", batch, 2));
  EXPECT_THAT(peer.Answer(), StartsWith("HTTP/1.1 200 "));
  const std::vector<ReceivedRecord> records = Records();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].number, 1U);
  EXPECT_EQ(records[0].endpoint, 7U);
  EXPECT_EQ(records[0].run, source_->run());
  EXPECT_EQ(records[0].flags, ReceivedRecord::kAccepted);
  EXPECT_EQ(records[2].number, 3U);
  EXPECT_EQ(records[2].flags, ReceivedRecord::kAccepted | ReceivedRecord::kBatch);
  EXPECT_EQ(records[2].batch_size, 2);
  const Receiver::Counts& counts = receiver_->counts();
  EXPECT_EQ(counts.requests, 2U);
  EXPECT_EQ(counts.accepted, 3U);
  EXPECT_EQ(counts.addresses, 1U);
  EXPECT_EQ(counts.signatures_bad + counts.contents_bad + counts.envelopes_bad, 0U);
  EXPECT_THAT(receiver_->Summary(), HasSubstr("\"batch_max\":2"));
}

TEST_F(ReceiverTest, FindsWhatIsWrongWithARequest) {
  Peer peer("127.0.0.1", receiver_->port());
  const std::string body = Envelope(1);
  peer.Send(Request("/e/7", "msg_1", body, 1, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"));
  peer.Answer();
  std::string changed = body;
  changed.replace(changed.find("\"text\":\"") + 8, 1, "#");
  peer.Send(Request("/e/7", "msg_1", changed, 1));
  peer.Answer();
  std::string moved = body;
  moved.replace(moved.find("\"tenant\":\"t") + 11, 1, "9");
  peer.Send(Request("/e/7", "msg_1", moved, 1));
  peer.Answer();
  peer.Send(Request("/e/7", "bat_1", absl::StrCat("[", body, "]"), 2));
  peer.Answer();
  peer.Send(Request("/elsewhere", "msg_1", body, 1));
  peer.Answer();
  const std::vector<ReceivedRecord> records = Records();
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[0].flags, ReceivedRecord::kAccepted | ReceivedRecord::kBadSignature);
  EXPECT_EQ(records[1].flags, ReceivedRecord::kAccepted | ReceivedRecord::kBadContent);
  EXPECT_EQ(records[2].flags, ReceivedRecord::kAccepted | ReceivedRecord::kBadEnvelope);
  EXPECT_EQ(receiver_->counts().signatures_bad, 1U);
  EXPECT_EQ(receiver_->counts().contents_bad, 1U);
  EXPECT_EQ(receiver_->counts().envelopes_bad, 2U);  // the last for its batch size
  EXPECT_EQ(receiver_->counts().foreign, 1U);
}

TEST_F(ReceiverTest, AnswersAsThePathSays) {
  const std::string body = Envelope(1);
  Peer peer("127.0.0.1", receiver_->port());
  peer.Send(Request("/answer/500/e/1", "msg_1", body, 1));
  EXPECT_THAT(peer.Answer(), StartsWith("HTTP/1.1 500 "));
  peer.Send(Request("/answer/429/3/e/1", "msg_1", body, 1));
  EXPECT_THAT(peer.Answer(), HasSubstr("Retry-After: 3\r\n"));
  const auto start = std::chrono::steady_clock::now();
  peer.Send(Request("/answer/slow/60/e/1", "msg_1", body, 1));
  // Behind a slow answer nothing overtakes it.
  peer.Send(Request("/answer/204/e/1", "msg_1", body, 1));
  EXPECT_THAT(peer.Answer(), StartsWith("HTTP/1.1 200 "));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(59));
  EXPECT_THAT(peer.Answer(), StartsWith("HTTP/1.1 204 "));
  peer.Send(Request("/answer/reset/e/1", "msg_1", body, 1));
  EXPECT_EQ(peer.Answer(), "");
  Peer closing("127.0.0.1", receiver_->port());
  closing.Send("GARBAGE\r\n\r\n");
  EXPECT_EQ(closing.Answer(), "");
  const std::vector<ReceivedRecord> records = Records();
  ASSERT_EQ(records.size(), 5U);
  EXPECT_EQ(receiver_->counts().accepted, 2U);
  EXPECT_EQ(receiver_->counts().malformed, 1U);
}

TEST_F(ReceiverTest, ItsLedgerBalancesWithWhatWasProduced) {
  AccountInput input;
  input.run = source_->run();
  std::vector<uint32_t> matched;
  Peer peer("127.0.0.1", receiver_->port());
  for (uint64_t n = 0; n < 200; ++n) {
    ProducedRecord record;
    record.number = n;
    record.event = source_->At(n);
    record.sent_us = NowUs();
    record.acknowledged = true;
    input.produced.push_back(record);
    plan_->Match(record.event, &matched);
    for (uint32_t endpoint : matched) {
      peer.Send(Request(absl::StrCat("/e/", endpoint), "msg_x", Envelope(n), 1));
      ASSERT_THAT(peer.Answer(), StartsWith("HTTP/1.1 200 "));
    }
  }
  input.received = Records();
  const AccountResult result = Account(*plan_, input);
  EXPECT_TRUE(result.good()) << result.ToJson();
  EXPECT_GT(result.delivered, 200U);
  EXPECT_EQ(result.delivered, result.expected);
  EXPECT_GT(result.p50_ms, 0);
}

}  // namespace
}  // namespace postrider::loadtest
