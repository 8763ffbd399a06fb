#include "core/kafka/kafka_log.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/loop_answers.h"
#include "core/base/status_macros.h"
#include "core/kafka/internal/client.h"
#include "core/kafka/internal/control_thread.h"
#include "core/kafka/internal/kafka_consumer.h"
#include "core/kafka/internal/kafka_producer.h"
#include "core/kafka/internal/kafka_reader.h"
#include "core/kafka/internal/upkeep.h"

namespace postrider {

using kafka_internal::AdminOptionsPtr;
using kafka_internal::ClientPtr;
using kafka_internal::ConfPtr;
using kafka_internal::ControlThread;
using kafka_internal::Deadline;
using kafka_internal::EventPtr;
using kafka_internal::KafkaConsumer;
using kafka_internal::KafkaMetrics;
using kafka_internal::KafkaProducer;
using kafka_internal::KafkaReader;
using kafka_internal::MayPass;
using kafka_internal::MetadataPtr;
using kafka_internal::PartitionListPtr;
using kafka_internal::QueuePtr;
using kafka_internal::ToStatus;

namespace {

// A broker makes the logs of a request one by one and keeps everybody's waiting meanwhile.
constexpr size_t kTopicsPerRequest = 50;
constexpr absl::Duration kLookForLeaders = absl::Milliseconds(50);
constexpr int kTrimTimeoutMs = 5'000;
constexpr std::chrono::milliseconds kOffsetForTimeMax(10'000);
constexpr std::chrono::milliseconds kEndsMax(1'000);
constexpr int16_t kReplicasWanted = 3;

using NewTopicPtr =
    std::unique_ptr<rd_kafka_NewTopic_t, kafka_internal::Destroyer<rd_kafka_NewTopic_destroy>>;
using DeleteRecordsPtr = std::unique_ptr<rd_kafka_DeleteRecords_t,
                                         kafka_internal::Destroyer<rd_kafka_DeleteRecords_destroy>>;

struct TopicState {
  int32_t partitions = 0;
  int replicas = 0;  // of the partition that has the fewest
  bool has_leaders = true;
};

struct Cluster {
  int brokers = 0;
  absl::flat_hash_map<std::string, TopicState> topics;
};

}  // namespace

void KafkaOptions::Register(Options& options) {
  options.Add("kafka.brokers", &brokers, "The brokers to begin with: host:port, comma-separated.");
  options.Add("kafka.prefix", &prefix, "What the names of our own topics and groups begin with.");
  options.AddMap("kafka.properties", &properties,
                 "Properties of librdkafka (TLS, SASL); those that correctness depends on are "
                 "refused.",
                 Options::Secret::kYes);
  options.Add("kafka.allow_single_replica", &allow_single_replica,
              "Lets own topics have fewer than three replicas when the cluster has fewer brokers: "
              "a disk that is lost is then data that is lost.");
}

struct KafkaLog::Impl {
  Impl(const KafkaOptions& kafka_options, const Clock& log_clock, Metrics& all_metrics)
      : options(kafka_options),
        config{kafka_options.brokers, kafka_options.properties},
        clock(log_clock),
        metrics(all_metrics) {}

  absl::StatusOr<Cluster> Describe(int timeout_ms) const;
  absl::Status CheckTopic(const TopicSpec& spec, const TopicState& topic) const;
  absl::StatusOr<int16_t> ReplicasFor(const TopicSpec& spec, int brokers) const;
  absl::Status Create(const std::vector<const TopicSpec*>& specs, int brokers, int timeout_ms);
  absl::Status EnsureSome(const std::vector<const TopicSpec*>& specs, const Deadline& deadline);
  absl::StatusOr<TopicState> Find(const std::string& topic, const Deadline& deadline) const;
  absl::Status TrimNow(const TopicPartition& tp, int64_t offset) const;
  template <typename Answer>
  void Control(EventLoop& loop, absl::AnyInvocable<Answer()> call,
               absl::AnyInvocable<void(Answer) &&> done);

  const KafkaOptions options;
  const kafka_internal::ClientConfig config;
  const Clock& clock;
  KafkaMetrics metrics;
  ClientPtr admin;
  LoopAnswers answers;
  // Its jobs use `admin`: ended first.
  std::unique_ptr<ControlThread> control;
};

absl::StatusOr<std::unique_ptr<KafkaLog>> KafkaLog::Open(const KafkaOptions& options,
                                                         const Clock& clock, Metrics& metrics) {
  if (options.brokers.empty()) {
    return absl::InvalidArgumentError("kafka.brokers: must name at least one host:port");
  }
  auto impl = std::make_unique<Impl>(options, clock, metrics);
  RETURN_IF_ERROR(kafka_internal::CheckProperties(impl->config));
  ASSIGN_OR_RETURN(ConfPtr conf, kafka_internal::MakeConf(impl->config, {}));
  // A consumer without a group, since that kind never makes topics by asking for them.
  ASSIGN_OR_RETURN(impl->admin, kafka_internal::MakeClient(RD_KAFKA_CONSUMER, std::move(conf)));
  impl->control = std::make_unique<ControlThread>();
  POSTRIDER_LOG(kInfo, "kafka client library", {"version", rd_kafka_version_str()});
  return std::unique_ptr<KafkaLog>(new KafkaLog(std::move(impl)));
}

KafkaLog::KafkaLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KafkaLog::~KafkaLog() = default;

absl::StatusOr<std::unique_ptr<LogProducer>> KafkaLog::OpenProducer(
    EventLoop& loop, const ProducerOptions& options) {
  return KafkaProducer::Create(impl_->config, loop, impl_->metrics, options);
}

absl::StatusOr<std::unique_ptr<GroupConsumer>> KafkaLog::JoinGroup(EventLoop& loop,
                                                                   const GroupOptions& options,
                                                                   GroupHandler& handler) {
  return KafkaConsumer::Create(impl_->config, impl_->clock, *impl_->control, impl_->admin.get(),
                               loop, impl_->metrics, options, handler);
}

absl::StatusOr<std::unique_ptr<PartitionReader>> KafkaLog::OpenReader(EventLoop& loop,
                                                                      const ReaderOptions& options,
                                                                      ReadHandler& handler) {
  return KafkaReader::Create(impl_->config, *impl_->control, impl_->admin.get(), loop,
                             impl_->metrics, options, handler);
}

absl::StatusOr<Cluster> KafkaLog::Impl::Describe(int timeout_ms) const {
  const rd_kafka_metadata_t* raw = nullptr;
  const rd_kafka_resp_err_t err = rd_kafka_metadata(admin.get(), 1, nullptr, &raw, timeout_ms);
  const MetadataPtr metadata(raw);
  if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return ToStatus(err, absl::StrCat("asking ", options.brokers, " for its topics"));
  }
  Cluster cluster;
  cluster.brokers = metadata->broker_cnt;
  for (int i = 0; i < metadata->topic_cnt; ++i) {
    const rd_kafka_metadata_topic_t& topic = metadata->topics[i];
    if (topic.err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) continue;
    TopicState& state = cluster.topics[topic.topic];
    state.partitions = topic.partition_cnt;
    state.replicas = topic.partition_cnt == 0 ? 0 : topic.partitions[0].replica_cnt;
    state.has_leaders = topic.err == RD_KAFKA_RESP_ERR_NO_ERROR && topic.partition_cnt > 0;
    for (int j = 0; j < topic.partition_cnt; ++j) {
      const rd_kafka_metadata_partition_t& partition = topic.partitions[j];
      state.replicas = std::min(state.replicas, partition.replica_cnt);
      if (partition.leader < 0) state.has_leaders = false;
    }
  }
  return cluster;
}

absl::Status KafkaLog::Impl::CheckTopic(const TopicSpec& spec, const TopicState& topic) const {
  if (topic.partitions != spec.partitions) {
    return absl::FailedPreconditionError(absl::StrCat("kafka: topic ", spec.name, " has ",
                                                      topic.partitions, " partitions, not ",
                                                      spec.partitions));
  }
  if (topic.replicas < spec.replication && !options.allow_single_replica) {
    return absl::FailedPreconditionError(
        absl::StrCat("kafka: topic ", spec.name, " has ", topic.replicas, " replicas, fewer than ",
                     spec.replication, " (kafka.allow_single_replica accepts that)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int16_t> KafkaLog::Impl::ReplicasFor(const TopicSpec& spec, int brokers) const {
  if (options.allow_single_replica) {
    return static_cast<int16_t>(std::clamp<int>(brokers, 1, spec.replication));
  }
  if (spec.replication < kReplicasWanted || brokers < spec.replication) {
    return absl::FailedPreconditionError(absl::StrCat(
        "kafka: topic ", spec.name, " would have ", std::min<int>(spec.replication, brokers),
        " replicas, fewer than ", kReplicasWanted, " (the cluster has ", brokers,
        " brokers; kafka.allow_single_replica accepts that)"));
  }
  return spec.replication;
}

absl::Status KafkaLog::EnsureTopics(const std::vector<TopicSpec>& topics,
                                    std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  for (size_t begin = 0; begin < topics.size(); begin += kTopicsPerRequest) {
    std::vector<const TopicSpec*> some;
    for (size_t i = begin; i < std::min(topics.size(), begin + kTopicsPerRequest); ++i) {
      some.push_back(&topics[i]);
    }
    RETURN_IF_ERROR(impl_->EnsureSome(some, deadline));
  }
  return absl::OkStatus();
}

// Looks, makes what is missing, looks again, until all is there with leaders. Somebody else may be
// making the same topics.
absl::Status KafkaLog::Impl::EnsureSome(const std::vector<const TopicSpec*>& specs,
                                        const Deadline& deadline) {
  bool made = false;
  absl::Status last = absl::DeadlineExceededError("kafka: no time to look for topics");
  while (deadline.left_ms() > 0) {
    const absl::StatusOr<Cluster> cluster = Describe(deadline.left_ms());
    if (!cluster.ok()) {
      last = cluster.status();
      absl::SleepFor(kLookForLeaders);
      continue;
    }
    std::vector<const TopicSpec*> missing;
    std::string without_leader;
    for (const TopicSpec* spec : specs) {
      const auto found = cluster->topics.find(spec->name);
      if (found == cluster->topics.end()) {
        missing.push_back(spec);
        without_leader = spec->name;
      } else if (!found->second.has_leaders) {
        without_leader = spec->name;
      } else {
        RETURN_IF_ERROR(CheckTopic(*spec, found->second));
      }
    }
    if (without_leader.empty()) return absl::OkStatus();
    last = absl::DeadlineExceededError(
        absl::StrCat("kafka: topic ", without_leader, " has no leader for each partition yet"));
    if (!missing.empty() && !made) {
      const absl::Status status = Create(missing, cluster->brokers, deadline.left_ms());
      if (absl::IsUnavailable(status)) {
        last = status;
      } else {
        RETURN_IF_ERROR(status);
        // Accepted; that the metadata does not show it yet is no reason to ask once more.
        made = true;
      }
    }
    absl::SleepFor(kLookForLeaders);
  }
  return last;
}

// kUnavailable: look and try again.
absl::Status KafkaLog::Impl::Create(const std::vector<const TopicSpec*>& specs, int brokers,
                                    int timeout_ms) {
  std::vector<NewTopicPtr> owned;
  std::vector<rd_kafka_NewTopic_t*> requests;
  for (const TopicSpec* spec : specs) {
    ASSIGN_OR_RETURN(const int16_t replicas, ReplicasFor(*spec, brokers));
    char error[512] = "";
    NewTopicPtr topic(rd_kafka_NewTopic_new(spec->name.c_str(), spec->partitions, replicas, error,
                                            sizeof(error)));
    if (topic == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("kafka: topic ", spec->name, ": ", error));
    }
    absl::flat_hash_map<std::string, std::string> settings;
    settings["min.insync.replicas"] = absl::StrCat(std::max(1, replicas - 1));
    settings["unclean.leader.election.enable"] = "false";
    for (const auto& [name, value] : spec->settings) settings[name] = value;
    for (const auto& [name, value] : settings) {
      rd_kafka_NewTopic_set_config(topic.get(), name.c_str(), value.c_str());
    }
    requests.push_back(topic.get());
    owned.push_back(std::move(topic));
  }
  const AdminOptionsPtr request_options(
      rd_kafka_AdminOptions_new(admin.get(), RD_KAFKA_ADMIN_OP_CREATETOPICS));
  char error[512] = "";
  rd_kafka_AdminOptions_set_request_timeout(request_options.get(), timeout_ms, error,
                                            sizeof(error));
  rd_kafka_AdminOptions_set_operation_timeout(request_options.get(), timeout_ms, error,
                                              sizeof(error));
  const QueuePtr queue(rd_kafka_queue_new(admin.get()));
  rd_kafka_CreateTopics(admin.get(), requests.data(), requests.size(), request_options.get(),
                        queue.get());
  const EventPtr event(rd_kafka_queue_poll(queue.get(), timeout_ms + 1'000));
  if (event == nullptr) return absl::UnavailableError("kafka: making topics: no answer");
  const rd_kafka_resp_err_t err = rd_kafka_event_error(event.get());
  if (MayPass(err)) {
    return absl::UnavailableError(absl::StrCat("kafka: making topics: ", rd_kafka_err2str(err)));
  }
  RETURN_IF_ERROR(ToStatus(err, "making topics"));
  size_t count = 0;
  const rd_kafka_topic_result_t** results =
      rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event.get()), &count);
  for (size_t i = 0; i < count; ++i) {
    const rd_kafka_resp_err_t one = rd_kafka_topic_result_error(results[i]);
    if (one == RD_KAFKA_RESP_ERR_NO_ERROR || one == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) {
      continue;
    }
    const std::string what = absl::StrCat("making topic ", rd_kafka_topic_result_name(results[i]));
    if (MayPass(one)) {
      return absl::UnavailableError(absl::StrCat("kafka: ", what, ": ", rd_kafka_err2str(one)));
    }
    const char* detail = rd_kafka_topic_result_error_string(results[i]);
    const absl::Status status = ToStatus(one, what, detail == nullptr ? "" : detail);
    // Only MayPass() decides about another try.
    if (absl::IsUnavailable(status)) return absl::InternalError(status.message());
    return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<TopicState> KafkaLog::Impl::Find(const std::string& topic,
                                                const Deadline& deadline) const {
  ASSIGN_OR_RETURN(const Cluster cluster, Describe(deadline.left_ms()));
  const auto found = cluster.topics.find(topic);
  if (found == cluster.topics.end()) {
    return absl::NotFoundError(absl::StrCat("kafka: topic ", topic, " does not exist"));
  }
  return found->second;
}

absl::StatusOr<int32_t> KafkaLog::Partitions(const std::string& topic,
                                             std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const TopicState state, impl_->Find(topic, Deadline(timeout)));
  return state.partitions;
}

absl::StatusOr<Log::Range> KafkaLog::Offsets(const TopicPartition& tp,
                                             std::chrono::milliseconds timeout) {
  Range range;
  RETURN_IF_ERROR(ToStatus(
      rd_kafka_query_watermark_offsets(impl_->admin.get(), tp.topic.c_str(), tp.partition,
                                       &range.begin, &range.end, static_cast<int>(timeout.count())),
      absl::StrCat("offsets of ", tp.ToString())));
  return range;
}

// Runs `call` on the control thread and `done` with its answer on the loop.
template <typename Answer>
void KafkaLog::Impl::Control(EventLoop& loop, absl::AnyInvocable<Answer()> call,
                             absl::AnyInvocable<void(Answer) &&> done) {
  absl::StatusOr<LoopAnswers::Place> place = answers.Expect(loop);
  if (!place.ok()) {
    loop.CallAfter(Duration::zero(), [why = place.status(), done = std::move(done)]() mutable {
      std::move(done)(std::move(why));
    });
    return;
  }
  // Held outside of the job, which is gone when it was refused.
  struct Asked {
    LoopAnswers::Place place;
    absl::AnyInvocable<void(Answer) &&> done;
    void Answered(Answer result) {
      place.Give([done = std::move(done), result = std::move(result)]() mutable {
        std::move(done)(std::move(result));
      });
    }
  };
  auto asked = std::make_shared<Asked>(Asked{*std::move(place), std::move(done)});
  ControlThread::Job job = [asked, call = std::move(call)]() mutable { asked->Answered(call()); };
  if (control->Run(std::move(job))) return;
  asked->Answered(absl::ResourceExhaustedError("kafka: too many calls wait"));
}

void KafkaLog::Trim(EventLoop& loop, const TopicPartition& tp, int64_t offset,
                    absl::AnyInvocable<void(absl::Status) &&> done) {
  impl_->Control<absl::Status>(
      loop, [impl = impl_.get(), tp, offset] { return impl->TrimNow(tp, offset); },
      std::move(done));
}

void KafkaLog::OffsetForTime(EventLoop& loop, const TopicPartition& tp, WallTime time,
                             absl::AnyInvocable<void(absl::StatusOr<int64_t>) &&> done) {
  impl_->Control<absl::StatusOr<int64_t>>(
      loop,
      [impl = impl_.get(), tp, time] {
        return kafka_internal::OffsetForTime(impl->admin.get(), tp, time,
                                             Deadline(kOffsetForTimeMax));
      },
      std::move(done));
}

void KafkaLog::Ends(EventLoop& loop, std::vector<TopicPartition> partitions,
                    absl::AnyInvocable<void(std::vector<absl::optional<int64_t>>) &&> done) {
  using Known = std::vector<absl::optional<int64_t>>;
  const size_t count = partitions.size();
  impl_->Control<absl::StatusOr<Known>>(
      loop,
      [impl = impl_.get(), partitions = std::move(partitions)]() -> absl::StatusOr<Known> {
        return kafka_internal::Ends(impl->admin.get(), partitions, Deadline(kEndsMax));
      },
      [count, done = std::move(done)](absl::StatusOr<Known> ends) mutable {
        std::move(done)(ends.ok() ? *std::move(ends) : Known(count));
      });
}

absl::Status KafkaLog::Impl::TrimNow(const TopicPartition& tp, int64_t offset) const {
  const PartitionListPtr list(rd_kafka_topic_partition_list_new(1));
  rd_kafka_topic_partition_list_add(list.get(), tp.topic.c_str(), tp.partition)->offset = offset;
  const DeleteRecordsPtr request(rd_kafka_DeleteRecords_new(list.get()));
  const AdminOptionsPtr request_options(
      rd_kafka_AdminOptions_new(admin.get(), RD_KAFKA_ADMIN_OP_DELETERECORDS));
  char error[512] = "";
  rd_kafka_AdminOptions_set_request_timeout(request_options.get(), kTrimTimeoutMs, error,
                                            sizeof(error));
  rd_kafka_AdminOptions_set_operation_timeout(request_options.get(), kTrimTimeoutMs, error,
                                              sizeof(error));
  const QueuePtr queue(rd_kafka_queue_new(admin.get()));
  rd_kafka_DeleteRecords_t* requests = request.get();
  rd_kafka_DeleteRecords(admin.get(), &requests, 1, request_options.get(), queue.get());
  const EventPtr event(rd_kafka_queue_poll(queue.get(), kTrimTimeoutMs + 1'000));
  const std::string what = absl::StrCat("trimming ", tp.ToString());
  if (event == nullptr) return absl::DeadlineExceededError(absl::StrCat("kafka: ", what));
  RETURN_IF_ERROR(ToStatus(rd_kafka_event_error(event.get()), what));
  // The event is well even when the partition is not.
  const rd_kafka_topic_partition_list_t* result =
      rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(event.get()));
  for (int i = 0; i < result->cnt; ++i) RETURN_IF_ERROR(ToStatus(result->elems[i].err, what));
  return absl::OkStatus();
}

absl::StatusOr<Log::GroupState> KafkaLog::DescribeGroup(
    const std::string& group, const std::vector<TopicPartition>& partitions,
    std::chrono::milliseconds timeout) {
  return kafka_internal::DescribeGroup(impl_->admin.get(), group, partitions, Deadline(timeout));
}

absl::Status KafkaLog::ResetGroup(const std::string& group, const std::vector<CommitEntry>& entries,
                                  std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  // The broker would store the rest when it refuses one: what can be known is checked before.
  ASSIGN_OR_RETURN(const Cluster cluster, impl_->Describe(deadline.left_ms()));
  for (const CommitEntry& entry : entries) {
    const std::string name = entry.tp.ToString();
    const auto found = cluster.topics.find(entry.tp.topic);
    if (found == cluster.topics.end() || entry.tp.partition < 0 ||
        entry.tp.partition >= found->second.partitions) {
      return absl::NotFoundError(absl::StrCat("kafka: partition ", name, " does not exist"));
    }
    if (entry.position.offset < 0 || entry.position.metadata.size() > kCommitMetadataBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("kafka: position of ", name, ": a negative offset or too much metadata"));
    }
  }
  return kafka_internal::ResetGroup(impl_->admin.get(), group, entries, deadline);
}

absl::Status KafkaLog::DeleteTopic(const std::string& topic, std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  RETURN_IF_ERROR(kafka_internal::DeleteTopic(impl_->admin.get(), topic, deadline));
  while (true) {
    const absl::Status found = impl_->Find(topic, deadline).status();
    if (absl::IsNotFound(found)) return absl::OkStatus();
    if (deadline.left_ms() == 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("kafka: topic ", topic, " is deleted but still shown"));
    }
    absl::SleepFor(kLookForLeaders);
  }
}

absl::Status KafkaLog::FreezeTopic(const std::string& topic, std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  ASSIGN_OR_RETURN(const TopicState state, impl_->Find(topic, deadline));
  return kafka_internal::FreezeTopic(impl_->config, impl_->admin.get(), topic, state.partitions,
                                     deadline);
}

absl::Status KafkaLog::Ping(std::chrono::milliseconds timeout) {
  const rd_kafka_metadata_t* raw = nullptr;
  const rd_kafka_resp_err_t err =
      rd_kafka_metadata(impl_->admin.get(), 0, nullptr, &raw, static_cast<int>(timeout.count()));
  const MetadataPtr metadata(raw);
  if (err == RD_KAFKA_RESP_ERR_NO_ERROR) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "kafka: no answer from kafka.brokers=", impl_->options.brokers, ": ", rd_kafka_err2str(err)));
}

std::vector<std::pair<std::string, uint16_t>> KafkaLog::Brokers(std::chrono::milliseconds timeout) {
  std::vector<std::pair<std::string, uint16_t>> brokers;
  const rd_kafka_metadata_t* raw = nullptr;
  const rd_kafka_resp_err_t err =
      rd_kafka_metadata(impl_->admin.get(), 0, nullptr, &raw, static_cast<int>(timeout.count()));
  const MetadataPtr metadata(raw);
  if (err != RD_KAFKA_RESP_ERR_NO_ERROR) return brokers;
  for (int i = 0; i < metadata->broker_cnt; ++i) {
    const rd_kafka_metadata_broker& broker = metadata->brokers[i];
    if (broker.port <= 0 || broker.port > 65'535) continue;
    brokers.emplace_back(broker.host, static_cast<uint16_t>(broker.port));
  }
  return brokers;
}

}  // namespace postrider
