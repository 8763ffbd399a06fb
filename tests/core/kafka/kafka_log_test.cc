#include "core/kafka/kafka_log.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/kafka/internal/kafka_producer.h"
#include "core/stream/log.h"
#include "tests/contract/log_contract.h"

namespace postrider {
namespace {

using testing::HasSubstr;

std::string Brokers() {
  const char* brokers = std::getenv("POSTRIDER_KAFKA__BROKERS");
  return brokers == nullptr ? "" : brokers;
}

std::string FreshPrefix() {
  std::random_device random;
  return absl::StrCat("t", getpid(), "x", random(), ".");
}

class KafkaEnvironment : public contract::LogContractEnvironment {
 public:
  static std::unique_ptr<contract::LogContractEnvironment> Make() {
    if (Brokers().empty()) {
      ADD_FAILURE() << "POSTRIDER_KAFKA__BROKERS is not set: tests/run starts a broker and sets it";
      return nullptr;
    }
    KafkaOptions options;
    options.brokers = Brokers();
    options.allow_single_replica = true;
    auto environment = std::make_unique<KafkaEnvironment>();
    auto log = KafkaLog::Open(options, environment->clock_, environment->metrics_);
    auto loop = EventLoop::Create(environment->clock_);
    EXPECT_TRUE(log.ok()) << log.status();
    EXPECT_TRUE(loop.ok()) << loop.status();
    if (!log.ok() || !loop.ok()) return nullptr;
    environment->log_ = *std::move(log);
    environment->loop_ = *std::move(loop);
    return environment;
  }

  Log& log() override { return *log_; }
  EventLoop& loop() override { return *loop_; }
  void Step() override { loop_->RunOnce(std::chrono::milliseconds(20)); }
  std::string prefix() override { return prefix_; }
  Metrics& metrics() { return metrics_; }

 private:
  const SystemClock clock_;
  Metrics metrics_;
  const std::string prefix_ = FreshPrefix();
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<KafkaLog> log_;
};

absl::Status OpenWith(const std::string& property, const std::string& value) {
  const SystemClock clock;
  Metrics metrics;
  KafkaOptions options;
  options.properties[property] = value;
  return KafkaLog::Open(options, clock, metrics).status();
}

TEST(KafkaLogTest, RefusesPropertiesThatCorrectnessDependsOn) {
  for (const char* name :
       {"enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset", "acks",
        "request.required.acks", "enable.idempotence", "partition.assignment.strategy", "group.id",
        "group.instance.id", "max.in.flight", "max.in.flight.requests.per.connection",
        "message.timeout.ms", "delivery.timeout.ms", "isolation.level", "enable.partition.eof",
        "bootstrap.servers", "transactional.id", "retries"}) {
    const absl::Status status = OpenWith(name, "1");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(name, " is refused")));
  }
}

TEST(KafkaLogTest, NamesAPropertyThatIsUnknownOrHasABadValue) {
  const absl::Status unknown = OpenWith("no.such.property", "1");
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("no.such.property"));
  const absl::Status bad = OpenWith("security.protocol", "magic");
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.message()), HasSubstr("security.protocol"));
  const absl::Status good = OpenWith("client.id", "mine");
  EXPECT_TRUE(good.ok()) << good;
}

TEST(KafkaLogTest, SaysWhichBrokersDoNotAnswer) {
  const SystemClock clock;
  Metrics metrics;
  KafkaOptions options;
  options.brokers = "127.0.0.1:1";
  auto log = KafkaLog::Open(options, clock, metrics);
  ASSERT_TRUE(log.ok()) << log.status();
  const auto began = std::chrono::steady_clock::now();
  const absl::Status status = (*log)->Ping(std::chrono::milliseconds(500));
  EXPECT_TRUE((*log)->Brokers(std::chrono::milliseconds(100)).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:1"));
}

TEST(KafkaLogTest, ClosesWithoutABroker) {
  const SystemClock clock;
  Metrics metrics;
  KafkaOptions options;
  options.brokers = "127.0.0.1:1";
  auto log = KafkaLog::Open(options, clock, metrics);
  ASSERT_TRUE(log.ok()) << log.status();
  auto loop = EventLoop::Create(clock);
  ASSERT_TRUE(loop.ok()) << loop.status();
  int aborted = 0;
  {
    auto producer = (*log)->OpenProducer(**loop, ProducerOptions());
    ASSERT_TRUE(producer.ok()) << producer.status();
    AppendRecord record;
    record.topic = "t";
    record.value = "v";
    EXPECT_TRUE((*producer)->Append(std::move(record), [&](absl::StatusOr<int64_t> offset) {
      EXPECT_EQ(offset.status().code(), absl::StatusCode::kAborted);
      ++aborted;
    }));
  }
  EXPECT_EQ(aborted, 1);
}

TEST(KafkaLogTest, LeavesAGroupThatItNeverReached) {
  const SystemClock clock;
  Metrics metrics;
  KafkaOptions options;
  options.brokers = "127.0.0.1:1";
  auto log = KafkaLog::Open(options, clock, metrics);
  ASSERT_TRUE(log.ok()) << log.status();
  auto loop = EventLoop::Create(clock);
  ASSERT_TRUE(loop.ok()) << loop.status();
  struct Silent : GroupHandler {
    void OnAssigned(Assignment) override { ADD_FAILURE() << "assigned by nobody"; }
    void OnRevoked() override { ADD_FAILURE() << "there is nothing to revoke"; }
    void OnLost() override { ADD_FAILURE() << "there is nothing to lose"; }
    void OnRecord(const LogRecord&) override {}
    void OnPartitionEnd(const TopicPartition&, int64_t) override {}
    void OnOutOfRange(const TopicPartition&, int64_t) override {}
    void OnReachable(bool) override {}
  } handler;
  GroupOptions group;
  group.group = "g";
  group.topics = {"t"};
  auto joined = (*log)->JoinGroup(**loop, group, handler);
  ASSERT_TRUE(joined.ok()) << joined.status();
  GroupConsumer& consumer = **joined;
  const auto poll = [&consumer](uint32_t) { consumer.Poll(1); };
  ASSERT_TRUE((*loop)->Watch(consumer.wake_fd(), kFdReadable, poll).ok());
  const auto turn_until = [&loop](const bool& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition && std::chrono::steady_clock::now() < end) {
      (*loop)->RunOnce(std::chrono::milliseconds(20));
    }
    return condition;
  };
  bool left = false;
  consumer.Leave([&left] { left = true; });
  EXPECT_FALSE(left) << "answered from inside the call";
  EXPECT_TRUE(turn_until(left));
  (*loop)->Unwatch(consumer.wake_fd());
}

class KafkaTest : public testing::Test {
 protected:
  void SetUp() override {
    environment_ = KafkaEnvironment::Make();
    ASSERT_NE(environment_, nullptr);
  }
  template <typename Condition>
  testing::AssertionResult Until(Condition condition,
                                 std::chrono::seconds patience = std::chrono::seconds(60)) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= end) {
        return testing::AssertionFailure() << "it did not come about";
      }
      environment_->Step();
    }
    return testing::AssertionSuccess();
  }
  std::unique_ptr<contract::LogContractEnvironment> environment_;
};

using Client = std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)>;

Client PlainClient(rd_kafka_type_t type, const std::map<std::string, std::string>& settings) {
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  char error[256] = "";
  rd_kafka_conf_set(conf, "bootstrap.servers", Brokers().c_str(), error, sizeof(error));
  for (const auto& [name, value] : settings) {
    EXPECT_EQ(rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error, sizeof(error)),
              RD_KAFKA_CONF_OK)
        << error;
  }
  return Client(rd_kafka_new(type, conf, error, sizeof(error)), rd_kafka_destroy);
}

void AppendToAnAbortedTransaction(const std::string& topic, const std::string& id, int records) {
  const Client client = PlainClient(RD_KAFKA_PRODUCER, {{"transactional.id", id}});
  ASSERT_NE(client, nullptr);
  const auto succeeded = [](rd_kafka_error_t* error) {
    const std::string text = error == nullptr ? "" : rd_kafka_error_string(error);
    if (error != nullptr) rd_kafka_error_destroy(error);
    return text;
  };
  ASSERT_EQ(succeeded(rd_kafka_init_transactions(client.get(), 30'000)), "");
  ASSERT_EQ(succeeded(rd_kafka_begin_transaction(client.get())), "");
  for (int i = 0; i < records; ++i) {
    ASSERT_EQ(
        rd_kafka_producev(client.get(), RD_KAFKA_V_TOPIC(topic.c_str()), RD_KAFKA_V_PARTITION(0),
                          RD_KAFKA_V_VALUE(nullptr, 0), RD_KAFKA_V_KEY("k", 1), RD_KAFKA_V_END),
        RD_KAFKA_RESP_ERR_NO_ERROR);
  }
  ASSERT_EQ(rd_kafka_flush(client.get(), 30'000), RD_KAFKA_RESP_ERR_NO_ERROR);
  ASSERT_EQ(succeeded(rd_kafka_abort_transaction(client.get(), 30'000)), "");
}

std::map<std::string, std::string> SettingsOf(const std::string& topic) {
  std::map<std::string, std::string> settings;
  const Client client = PlainClient(RD_KAFKA_PRODUCER, {});
  if (client == nullptr) return settings;
  rd_kafka_ConfigResource_t* resource =
      rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str());
  rd_kafka_queue_t* queue = rd_kafka_queue_new(client.get());
  rd_kafka_DescribeConfigs(client.get(), &resource, 1, nullptr, queue);
  rd_kafka_event_t* event = rd_kafka_queue_poll(queue, 30'000);
  if (event != nullptr && rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    size_t count = 0;
    const rd_kafka_ConfigResource_t** found = rd_kafka_DescribeConfigs_result_resources(
        rd_kafka_event_DescribeConfigs_result(event), &count);
    const rd_kafka_ConfigEntry_t** entries = rd_kafka_ConfigResource_configs(found[0], &count);
    for (size_t i = 0; i < count; ++i) {
      const char* value = rd_kafka_ConfigEntry_value(entries[i]);
      if (value != nullptr) settings[rd_kafka_ConfigEntry_name(entries[i])] = value;
    }
  }
  if (event != nullptr) rd_kafka_event_destroy(event);
  rd_kafka_queue_destroy(queue);
  rd_kafka_ConfigResource_destroy(resource);
  return settings;
}

// The ids of a group's members.
std::vector<std::string> MembersOf(const std::string& group) {
  std::vector<std::string> members;
  const Client client = PlainClient(RD_KAFKA_PRODUCER, {});
  if (client == nullptr) return members;
  const char* name = group.c_str();
  rd_kafka_queue_t* queue = rd_kafka_queue_new(client.get());
  rd_kafka_DescribeConsumerGroups(client.get(), &name, 1, nullptr, queue);
  rd_kafka_event_t* event = rd_kafka_queue_poll(queue, 30'000);
  if (event != nullptr && rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    size_t count = 0;
    const rd_kafka_ConsumerGroupDescription_t** groups =
        rd_kafka_DescribeConsumerGroups_result_groups(
            rd_kafka_event_DescribeConsumerGroups_result(event), &count);
    for (size_t i = 0; i < rd_kafka_ConsumerGroupDescription_member_count(groups[0]); ++i) {
      members.emplace_back(rd_kafka_MemberDescription_consumer_id(
          rd_kafka_ConsumerGroupDescription_member(groups[0], i)));
    }
  }
  if (event != nullptr) rd_kafka_event_destroy(event);
  rd_kafka_queue_destroy(queue);
  return members;
}

// A LeaveGroup request (version 0) in a member's name, as the broker's own watch over its session
// would do it.
void ThrowOut(const std::string& group, const std::string& member) {
  const auto number = [](uint32_t value, int bytes) {
    std::string text;
    for (int at = bytes - 1; at >= 0; --at) text.push_back(static_cast<char>(value >> (8 * at)));
    return text;
  };
  const auto text = [&number](const std::string& value) {
    return number(static_cast<uint32_t>(value.size()), 2) + value;
  };
  constexpr uint32_t kLeaveGroup = 13;
  const std::string request = number(kLeaveGroup, 2) + number(0, 2) + number(1, 4) + text("test") +
                              text(group) + text(member);
  const std::string brokers = Brokers();
  const size_t colon = brokers.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(brokers.substr(colon + 1))));
  ASSERT_EQ(inet_pton(AF_INET, brokers.substr(0, colon).c_str(), &address.sin_addr), 1) << brokers;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::string framed = number(static_cast<uint32_t>(request.size()), 4) + request;
  ASSERT_EQ(send(fd, framed.data(), framed.size(), 0), static_cast<ssize_t>(framed.size()));
  char answer[10] = "";  // size, correlation, error
  ASSERT_EQ(recv(fd, answer, sizeof(answer), MSG_WAITALL), static_cast<ssize_t>(sizeof(answer)));
  EXPECT_EQ(answer[8], 0);
  EXPECT_EQ(answer[9], 0);
  close(fd);
}

TEST_F(KafkaTest, EnsuresAHundredTopics) {
  std::vector<TopicSpec> specs;
  for (int i = 0; i < 100; ++i) {
    TopicSpec spec;
    spec.name = absl::StrCat(environment_->prefix(), "many.", i);
    spec.settings = {{"retention.ms", "-1"}};
    specs.push_back(spec);
  }
  const absl::Status made = environment_->log().EnsureTopics(specs, std::chrono::minutes(3));
  ASSERT_TRUE(made.ok()) << made;
  const absl::Status again = environment_->log().EnsureTopics(specs, std::chrono::seconds(30));
  EXPECT_TRUE(again.ok()) << again;
}

TEST_F(KafkaTest, TellsWhereBrokersSayThatTheyAre) {
  KafkaOptions options;
  options.brokers = Brokers();
  options.allow_single_replica = true;
  SystemClock clock;
  Metrics metrics;
  const auto log = KafkaLog::Open(options, clock, metrics);
  ASSERT_TRUE(log.ok()) << log.status();
  const auto brokers = (*log)->Brokers(std::chrono::seconds(10));
  ASSERT_FALSE(brokers.empty());
  const std::string port = options.brokers.substr(options.brokers.rfind(':') + 1);
  EXPECT_EQ(absl::StrCat(brokers.front().second), port);
  EXPECT_FALSE(brokers.front().first.empty());
}

TEST_F(KafkaTest, RefusesFewerThanThreeReplicasUnlessToldOtherwise) {
  const SystemClock clock;
  Metrics metrics;
  KafkaOptions options;
  options.brokers = Brokers();
  auto strict = KafkaLog::Open(options, clock, metrics);
  ASSERT_TRUE(strict.ok()) << strict.status();
  TopicSpec spec;
  spec.name = environment_->prefix() + "a";
  const absl::Status refused = (*strict)->EnsureTopics({spec}, std::chrono::seconds(30));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("kafka.allow_single_replica"));
  const absl::Status made = environment_->log().EnsureTopics({spec}, std::chrono::seconds(30));
  EXPECT_TRUE(made.ok()) << made;
  const absl::Status existing = (*strict)->EnsureTopics({spec}, std::chrono::seconds(30));
  EXPECT_EQ(existing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(existing.message()), HasSubstr("kafka.allow_single_replica"));
}

TEST_F(KafkaTest, SaysWhichSettingOfATopicIsWrong) {
  TopicSpec spec;
  spec.name = environment_->prefix() + "a";
  spec.settings = {{"cleanup.policy", "burn"}};
  const absl::Status status = environment_->log().EnsureTopics({spec}, std::chrono::seconds(30));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("burn"));
}

TEST_F(KafkaTest, SendsEverythingAgainInOrderAfterAFatalError) {
  TopicSpec spec;
  spec.name = environment_->prefix() + "a";
  ASSERT_TRUE(environment_->log().EnsureTopics({spec}, std::chrono::seconds(30)).ok());
  ProducerOptions options;
  options.linger = std::chrono::milliseconds(50);
  auto opened = environment_->log().OpenProducer(environment_->loop(), options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  auto& producer = dynamic_cast<kafka_internal::KafkaProducer&>(**opened);
  size_t answered = 0;
  int64_t last = -1;
  constexpr size_t kRecords = 1'000;
  for (size_t i = 0; i < kRecords; ++i) {
    if (i == kRecords / 2) producer.RaiseFatalError();
    AppendRecord record;
    record.topic = spec.name;
    record.key = absl::StrCat(i);
    record.tombstone = i % 5 == 0;
    if (!record.tombstone) record.value = absl::StrCat("value ", i);
    if (i % 3 == 0) record.headers = {{"n", absl::StrCat(i)}};
    while (!producer.Append(std::move(record), [&](absl::StatusOr<int64_t> offset) {
      ASSERT_TRUE(offset.ok()) << offset.status();
      EXPECT_GT(*offset, last);
      last = *offset;
      ++answered;
    })) {
      environment_->Step();
    }
  }
  ASSERT_TRUE(Until([&] { return answered == kRecords; }));
  EXPECT_EQ(producer.pending(), 0u);

  GroupOptions group;
  group.group = environment_->prefix() + "group";
  group.topics = {spec.name};
  contract::Member member(*environment_, group);
  member.Join();
  ASSERT_TRUE(Until([&] { return member.ends.contains({spec.name, 0}); }));
  // Each at least once, and the first time in order.
  size_t next = 0;
  for (const contract::SeenRecord& seen : member.records) {
    if (next >= kRecords || seen.key != absl::StrCat(next)) continue;
    EXPECT_EQ(seen.tombstone, next % 5 == 0) << next;
    EXPECT_EQ(seen.value, next % 5 == 0 ? "" : absl::StrCat("value ", next));
    EXPECT_EQ(seen.headers.size(), next % 3 == 0 ? 1u : 0u);
    ++next;
  }
  EXPECT_EQ(next, kRecords);
}

// The stack's own commands, off the thread that drives the loop.
class StackCommand {
 public:
  explicit StackCommand(const std::string& verb)
      : thread_([this, verb] {
          const std::string command = absl::StrCat(POSTRIDER_SOURCE_DIR, "/deploy/stack ", verb,
                                                   " --dir '", std::getenv("STACK_DIR"), "' >&2");
          result_ = std::system(command.c_str());
          done_ = true;
        }) {}
  ~StackCommand() { thread_.join(); }
  bool done() const { return done_; }
  bool succeeded() const { return done_ && result_ == 0; }

 private:
  std::atomic<int> result_ = -1;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

TEST_F(KafkaTest, LosesNothingWhenTheBrokerIsKilledAndComesBack) {
  if (std::getenv("STACK_DIR") == nullptr) FAIL() << "STACK_DIR is not set: run tests/run";
  // Declared before whatever answers into them.
  int appended = 0;
  std::map<int64_t, int> answered;
  bool appending = true;
  constexpr int32_t kPartitions = 4;
  constexpr auto kPause = std::chrono::milliseconds(5);
  TopicSpec spec;
  spec.name = environment_->prefix() + "a";
  spec.partitions = kPartitions;
  ASSERT_TRUE(environment_->log().EnsureTopics({spec}, std::chrono::seconds(30)).ok());
  EventLoop& loop = environment_->loop();
  auto producer = environment_->log().OpenProducer(loop, ProducerOptions());
  ASSERT_TRUE(producer.ok()) << producer.status();
  GroupOptions group;
  group.group = environment_->prefix() + "group";
  group.topics = {spec.name};
  contract::Member member(*environment_, group);
  member.Join();
  GroupOptions other_group = group;
  other_group.group += ".leaver";
  contract::Member leaver(*environment_, other_group);
  leaver.Join();
  contract::Reader plain(*environment_);
  plain.Open();
  for (int32_t partition = 0; partition < kPartitions; ++partition) {
    plain.Add({spec.name, partition}, StartPosition::At::kLogStart);
  }
  ASSERT_TRUE(Until([&] {
    return member.ends.size() == kPartitions && leaver.ends.size() == kPartitions &&
           plain.ends.size() == kPartitions;
  }));

  std::function<void()> append = [&] {
    if (!appending) return;
    AppendRecord record;
    record.topic = spec.name;
    record.partition = appended % kPartitions;
    record.value = absl::StrCat(appended);
    if ((*producer)->Append(std::move(record),
                            [&answered, id = appended](absl::StatusOr<int64_t> offset) {
                              if (offset.ok()) ++answered[id];
                            })) {
      ++appended;
    }
    loop.CallAfter(kPause, [&append] { append(); });
  };
  std::function<void()> commit = [&] {
    if (member.reading && member.commits_outstanding == 0) {
      member.Commit(member.Progress());
    }
    member.Poll();
    loop.CallAfter(std::chrono::milliseconds(200), [&commit] { commit(); });
  };
  append();
  commit();
  const auto lease_holds = [&] { return member.consumer().LeaseUntil() > loop.clock().Now(); };
  ASSERT_TRUE(Until([&] { return answered.size() > 100 && lease_holds(); }));
  {
    const StackCommand kill("kill-kafka");
    ASSERT_TRUE(Until([&] { return kill.done(); }));
    ASSERT_TRUE(kill.succeeded());
  }
  ASSERT_TRUE(Until([&] { return !member.reachable && !lease_holds(); }));
  // With positions that it cannot commit any more.
  leaver.consumer().Leave([&leaver] { leaver.left = true; });
  ASSERT_TRUE(Until([&] { return leaver.left; }, std::chrono::seconds(30)));
  const size_t answered_before = answered.size();
  {
    const StackCommand start("start-kafka");
    ASSERT_TRUE(Until([&] { return start.done(); }, std::chrono::seconds(200)));
    ASSERT_TRUE(start.succeeded());
  }
  ASSERT_TRUE(Until([&] { return member.reachable && lease_holds(); }, std::chrono::seconds(120)));
  ASSERT_TRUE(Until([&] { return answered.size() > answered_before + 100; }));
  appending = false;
  ASSERT_TRUE(Until([&] { return answered.size() == static_cast<size_t>(appended); },
                    std::chrono::seconds(120)));

  // A reader of its own: what stands in the log, in its order.
  group.group += ".reader";
  contract::Member reader(*environment_, group);
  reader.Join();
  std::map<int64_t, int> found;
  ASSERT_TRUE(Until([&] {
    found.clear();
    for (const contract::SeenRecord& seen : reader.records) ++found[std::stoll(seen.value)];
    return found.size() == static_cast<size_t>(appended);
  }));
  std::map<int32_t, int64_t> last;
  for (const contract::SeenRecord& seen : reader.records) {
    const auto [before, first] = last.try_emplace(seen.tp.partition, -1);
    EXPECT_GT(std::stoll(seen.value), before->second) << "out of order, or twice";
    before->second = std::stoll(seen.value);
  }
  for (const auto& [id, times] : answered) EXPECT_EQ(times, 1) << id;
  std::map<int64_t, int> read_through;
  ASSERT_TRUE(Until([&] {
    read_through.clear();
    for (const contract::SeenRecord& seen : member.records) ++read_through[std::stoll(seen.value)];
    return read_through.size() == static_cast<size_t>(appended);
  })) << "the member that lived through it has read "
      << read_through.size() << " of " << appended;
  ASSERT_TRUE(Until([&] { return plain.records.size() >= static_cast<size_t>(appended); }));
  for (int32_t partition = 0; partition < kPartitions; ++partition) {
    int64_t expected = 0;
    for (const int64_t offset : plain.OffsetsOf({spec.name, partition})) {
      EXPECT_EQ(offset, expected++) << "a gap or a repeat in " << partition;
    }
  }
}

// Its claim is refused: librdkafka, which waits to be told where to read, would never join again.
TEST_F(KafkaTest, ComesBackWhenItIsThrownOutBeforeItHasClaimed) {
  TopicSpec spec;
  spec.name = environment_->prefix() + "thrown-out";
  ASSERT_TRUE(environment_->log().EnsureTopics({spec}, std::chrono::seconds(30)).ok());
  GroupOptions group;
  group.group = environment_->prefix() + "thrown-out";
  group.topics = {spec.name};
  contract::Member member(*environment_, group);
  member.start_by_itself = false;
  member.Join();
  ASSERT_TRUE(Until([&] { return member.assignments == 1; }));
  const std::vector<std::string> members = MembersOf(group.group);
  ASSERT_EQ(members.size(), 1u);
  ThrowOut(group.group, members[0]);
  member.Commit({{{spec.name, 0}, {0, "a claim"}}});
  ASSERT_TRUE(Until([&] { return member.commits_outstanding == 0; }));
  ASSERT_EQ(member.commit_statuses.size(), 1u);
  EXPECT_TRUE(absl::IsAborted(member.commit_statuses[0])) << member.commit_statuses[0];
  ASSERT_TRUE(Until([&] {
    member.PollIfDue();
    return member.assignments == 2;
  }));
  member.StartAll();
  EXPECT_TRUE(Until([&] { return member.Owns(1); }));
}

// librdkafka hands what its partitions still fetch to the queue on which it tells that it has left.
TEST_F(KafkaTest, LeavesWhileRecordsComeIn) {
  constexpr int32_t kPartitions = 4;
  TopicSpec spec;
  spec.name = environment_->prefix() + "leaves";
  spec.partitions = kPartitions;
  ASSERT_TRUE(environment_->log().EnsureTopics({spec}, std::chrono::seconds(30)).ok());
  EventLoop& loop = environment_->loop();
  auto producer = environment_->log().OpenProducer(loop, ProducerOptions());
  ASSERT_TRUE(producer.ok()) << producer.status();
  int32_t appended = 0;
  TimerId timer = 0;
  std::function<void()> append = [&] {
    for (int i = 0; i < 20; ++i) {
      AppendRecord record;
      record.topic = spec.name;
      record.partition = appended % kPartitions;
      record.value = std::string(100, 'x');
      if ((*producer)->Append(std::move(record), [](absl::StatusOr<int64_t>) {})) ++appended;
    }
    timer = loop.CallAfter(std::chrono::milliseconds(1), [&append] { append(); });
  };
  append();
  GroupOptions group;
  group.group = environment_->prefix() + "leaves";
  group.topics = {spec.name};
  for (int round = 0; round < 5; ++round) {
    contract::Member member(*environment_, group);
    member.Join();
    ASSERT_TRUE(Until([&] { return member.records.size() > 100; })) << round;
    bool left = false;
    member.consumer().Leave([&left] { left = true; });
    ASSERT_TRUE(Until([&] { return left; })) << round;
    EXPECT_EQ(MembersOf(group.group), std::vector<std::string>()) << round;
  }
  loop.CancelTimer(timer);
}

TEST_F(KafkaTest, ReaderTellsTheEndBehindRecordsThatNobodyGets) {
  TopicSpec spec;
  spec.name = environment_->prefix() + "a";
  ASSERT_TRUE(environment_->log().EnsureTopics({spec}, std::chrono::seconds(30)).ok());
  const TopicPartition tp{spec.name, 0};
  contract::Reader reader(*environment_);
  reader.Open();
  reader.Add(tp, StartPosition::At::kLogStart);
  ASSERT_TRUE(Until([&] { return reader.ends[tp].size() == 1; }));
  AppendToAnAbortedTransaction(spec.name, environment_->prefix() + "transaction", 5);
  // The records and the marker, which comes after the answer to the abort.
  ASSERT_TRUE(Until([&] { return reader.ends[tp].back() >= 6; }));
  const auto range = environment_->log().Offsets(tp, std::chrono::seconds(30));
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ(reader.ends[tp].back(), range->end);
  EXPECT_TRUE(reader.records.empty());
  reader.Add(tp, StartPosition::At::kLogStart);
  reader.ends.clear();
  ASSERT_TRUE(Until([&] { return !reader.ends[tp].empty(); }));
  EXPECT_EQ(reader.ends[tp].back(), range->end);
}

TEST_F(KafkaTest, ReaderSurvivesThatPartitionsComeAndGoInAHurry) {
  constexpr int32_t kPartitions = 8;
  TopicSpec spec;
  spec.name = environment_->prefix() + "a";
  spec.partitions = kPartitions;
  ASSERT_TRUE(environment_->log().EnsureTopics({spec}, std::chrono::seconds(30)).ok());
  auto producer = environment_->log().OpenProducer(environment_->loop(), ProducerOptions());
  ASSERT_TRUE(producer.ok()) << producer.status();
  constexpr int kRecords = 800;
  int answered = 0;
  for (int i = 0; i < kRecords; ++i) {
    AppendRecord record;
    record.topic = spec.name;
    record.partition = i % kPartitions;
    record.value = std::string(1'000, 'x');
    ASSERT_TRUE(
        (*producer)->Append(std::move(record), [&](absl::StatusOr<int64_t>) { ++answered; }));
  }
  ASSERT_TRUE(Until([&] { return answered == kRecords; }));
  contract::Reader reader(*environment_);
  reader.poll_records_max = 20;
  reader.Open();
  for (int round = 0; round < 200; ++round) {
    const TopicPartition tp{spec.name, round * 7 % kPartitions};
    reader.Add(tp, StartPosition::At::kOffset, round % 100);
    if (round % 3 == 0) reader.reader().Remove({spec.name, round % kPartitions});
    if (round % 4 == 0) environment_->Step();
  }
  reader.records.clear();
  for (int32_t partition = 0; partition < kPartitions; ++partition) {
    reader.Add({spec.name, partition}, StartPosition::At::kLogStart);
  }
  ASSERT_TRUE(Until([&] { return reader.records.size() >= kRecords; }));
  for (int32_t partition = 0; partition < kPartitions; ++partition) {
    int64_t expected = 0;
    for (const int64_t offset : reader.OffsetsOf({spec.name, partition})) {
      EXPECT_EQ(offset, expected++) << "a gap or a repeat in " << partition;
    }
  }
}

TEST_F(KafkaTest, FreezingATopicKeepsItsOtherSettings) {
  TopicSpec spec;
  spec.name = environment_->prefix() + "a";
  spec.settings = {{"cleanup.policy", "compact"}, {"delete.retention.ms", "1234567"}};
  ASSERT_TRUE(environment_->log().EnsureTopics({spec}, std::chrono::seconds(30)).ok());
  const absl::Status frozen = environment_->log().FreezeTopic(spec.name, std::chrono::seconds(30));
  ASSERT_TRUE(frozen.ok()) << frozen;
  const std::map<std::string, std::string> settings = SettingsOf(spec.name);
  EXPECT_EQ(settings.at("cleanup.policy"), "compact");
  EXPECT_EQ(settings.at("delete.retention.ms"), "1234567");
  EXPECT_EQ(settings.at("unclean.leader.election.enable"), "false");
  EXPECT_EQ(settings.at("max.message.bytes"), "68");
}

TEST_F(KafkaTest, TellsThatNoTopicMatchesThePattern) {
  struct Listening : GroupHandler {
    void OnAssigned(Assignment) override {}
    void OnRevoked() override {}
    void OnLost() override {}
    void OnRecord(const LogRecord&) override {}
    void OnPartitionEnd(const TopicPartition&, int64_t) override {}
    void OnOutOfRange(const TopicPartition&, int64_t) override {}
    void OnNothingMatches() override { told = true; }
    void OnReachable(bool) override {}
    bool told = false;
  } handler;
  GroupOptions group;
  group.group = environment_->prefix() + "group";
  group.topics = {"^" + environment_->prefix() + "nothing.*"};
  auto joined = environment_->log().JoinGroup(environment_->loop(), group, handler);
  ASSERT_TRUE(joined.ok()) << joined.status();
  GroupConsumer& consumer = **joined;
  const auto poll = [&consumer](uint32_t) { consumer.Poll(1); };
  ASSERT_TRUE(environment_->loop().Watch(consumer.wake_fd(), kFdReadable, poll).ok());
  EXPECT_TRUE(Until([&] {
    environment_->Step();
    return handler.told;
  }));
  environment_->loop().Unwatch(consumer.wake_fd());
}

TEST_F(KafkaTest, RefusesABadPatternByItsName) {
  GroupOptions group;
  group.group = environment_->prefix() + "group";
  group.topics = {"^(unclosed"};
  contract::Member member(*environment_, group);
  const auto joined = environment_->log().JoinGroup(environment_->loop(), group, member);
  EXPECT_EQ(joined.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(joined.status().message()), HasSubstr("^(unclosed"));
}

}  // namespace

namespace contract {
INSTANTIATE_TEST_SUITE_P(Kafka, LogContract,
                         testing::Values(LogContractFactory(KafkaEnvironment::Make)));
}  // namespace contract
}  // namespace postrider
