#include "core/kafka/internal/upkeep.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/kafka/internal/client.h"

namespace postrider::kafka_internal {
namespace {

constexpr absl::Duration kAgain = absl::Milliseconds(100);
// One try ends well before the deadline, so that a broker that swallowed it costs no more.
constexpr int kTryMs = 10'000;
constexpr int kEndTryMs = 200;

// The size of a batch of one record with neither key, value nor header: 61 bytes of the batch and
// 7 of the record. Nothing that a LogProducer sends is that small.
constexpr char kNothingFits[] = "68";
// So many such records in one batch do not fit.
constexpr int kTooMany = 4;
constexpr int kLookMs = 50;

using ConfigResourcePtr =
    std::unique_ptr<rd_kafka_ConfigResource_t, Destroyer<rd_kafka_ConfigResource_destroy>>;
using DeleteTopicPtr =
    std::unique_ptr<rd_kafka_DeleteTopic_t, Destroyer<rd_kafka_DeleteTopic_destroy>>;
using ListOffsetsPtr = std::unique_ptr<rd_kafka_ListConsumerGroupOffsets_t,
                                       Destroyer<rd_kafka_ListConsumerGroupOffsets_destroy>>;
using AlterOffsetsPtr = std::unique_ptr<rd_kafka_AlterConsumerGroupOffsets_t,
                                        Destroyer<rd_kafka_AlterConsumerGroupOffsets_destroy>>;

// kUnavailable means that another try may do better; ToStatus() has more errors under that code.
absl::Status Judge(rd_kafka_resp_err_t err, absl::string_view what,
                   absl::string_view detail = absl::string_view()) {
  const absl::Status status = ToStatus(err, what, detail);
  if (status.ok()) return status;
  if (MayPass(err)) return absl::UnavailableError(status.message());
  if (absl::IsUnavailable(status)) return absl::InternalError(status.message());
  return status;
}

absl::Status Persist(const Deadline& deadline, const std::function<absl::Status()>& attempt) {
  while (true) {
    absl::Status status = attempt();
    if (!absl::IsUnavailable(status) || deadline.left_ms() == 0) return status;
    absl::SleepFor(kAgain);
  }
}

// Sends one request of the admin interface and waits for its event.
absl::StatusOr<EventPtr> Ask(
    rd_kafka_t* admin, rd_kafka_admin_op_t op, const std::string& what, const Deadline& deadline,
    const std::function<void(const rd_kafka_AdminOptions_t*, rd_kafka_queue_t*)>& send) {
  const int timeout_ms = std::clamp(deadline.left_ms(), 1, kTryMs);
  const AdminOptionsPtr options(rd_kafka_AdminOptions_new(admin, op));
  char error[512] = "";
  rd_kafka_AdminOptions_set_request_timeout(options.get(), timeout_ms, error, sizeof(error));
  // Not all requests have it.
  rd_kafka_AdminOptions_set_operation_timeout(options.get(), timeout_ms, error, sizeof(error));
  const QueuePtr queue(rd_kafka_queue_new(admin));
  send(options.get(), queue.get());
  EventPtr event(rd_kafka_queue_poll(queue.get(), timeout_ms + 1'000));
  if (event == nullptr) return absl::UnavailableError(absl::StrCat("kafka: ", what, ": no answer"));
  const char* detail = rd_kafka_event_error_string(event.get());
  RETURN_IF_ERROR(Judge(rd_kafka_event_error(event.get()), what, detail == nullptr ? "" : detail));
  return event;
}

PartitionListPtr ListOf(const std::vector<TopicPartition>& partitions) {
  PartitionListPtr list(rd_kafka_topic_partition_list_new(static_cast<int>(partitions.size())));
  for (const TopicPartition& tp : partitions) {
    rd_kafka_topic_partition_list_add(list.get(), tp.topic.c_str(), tp.partition);
  }
  return list;
}

absl::StatusOr<int> CountMembers(rd_kafka_t* admin, const std::string& group,
                                 const Deadline& deadline) {
  const std::string what = absl::StrCat("describing group ", group);
  const char* name = group.c_str();
  ASSIGN_OR_RETURN(const EventPtr event,
                   Ask(admin, RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS, what, deadline,
                       [&](const rd_kafka_AdminOptions_t* options, rd_kafka_queue_t* queue) {
                         rd_kafka_DescribeConsumerGroups(admin, &name, 1, options, queue);
                       }));
  size_t count = 0;
  const rd_kafka_ConsumerGroupDescription_t** groups =
      rd_kafka_DescribeConsumerGroups_result_groups(
          rd_kafka_event_DescribeConsumerGroups_result(event.get()), &count);
  if (count != 1) return absl::InternalError(absl::StrCat("kafka: ", what, ": no group told of"));
  if (const rd_kafka_error_t* error = rd_kafka_ConsumerGroupDescription_error(groups[0])) {
    // What nobody ever joined, or what was forgotten.
    if (rd_kafka_error_code(error) == RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND) return 0;
    RETURN_IF_ERROR(Judge(rd_kafka_error_code(error), what));
  }
  return static_cast<int>(rd_kafka_ConsumerGroupDescription_member_count(groups[0]));
}

absl::StatusOr<Log::GroupState> DescribeOnce(rd_kafka_t* admin, const std::string& group,
                                             const std::vector<TopicPartition>& partitions,
                                             const Deadline& deadline) {
  Log::GroupState state;
  ASSIGN_OR_RETURN(state.members, CountMembers(admin, group, deadline));
  if (partitions.empty()) return state;
  const std::string what = absl::StrCat("offsets of group ", group);
  const PartitionListPtr list = ListOf(partitions);
  const ListOffsetsPtr request(rd_kafka_ListConsumerGroupOffsets_new(group.c_str(), list.get()));
  rd_kafka_ListConsumerGroupOffsets_t* requests = request.get();
  ASSIGN_OR_RETURN(const EventPtr event,
                   Ask(admin, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS, what, deadline,
                       [&](const rd_kafka_AdminOptions_t* options, rd_kafka_queue_t* queue) {
                         rd_kafka_ListConsumerGroupOffsets(admin, &requests, 1, options, queue);
                       }));
  size_t count = 0;
  const rd_kafka_group_result_t** groups = rd_kafka_ListConsumerGroupOffsets_result_groups(
      rd_kafka_event_ListConsumerGroupOffsets_result(event.get()), &count);
  if (count != 1) return absl::InternalError(absl::StrCat("kafka: ", what, ": no group told of"));
  std::map<TopicPartition, CommittedPosition> committed;
  if (const rd_kafka_error_t* error = rd_kafka_group_result_error(groups[0])) {
    if (rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND) {
      RETURN_IF_ERROR(Judge(rd_kafka_error_code(error), what));
    }
  } else {
    const rd_kafka_topic_partition_list_t* found = rd_kafka_group_result_partitions(groups[0]);
    for (int i = 0; i < found->cnt; ++i) {
      const rd_kafka_topic_partition_t& one = found->elems[i];
      // One that does not exist has nothing committed.
      if (one.err != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) RETURN_IF_ERROR(Judge(one.err, what));
      if (one.offset < 0) continue;
      committed[{one.topic, one.partition}] = {
          one.offset, std::string(static_cast<const char*>(one.metadata), one.metadata_size)};
    }
  }
  for (const TopicPartition& tp : partitions) {
    AssignedPartition one;
    one.tp = tp;
    const auto position = committed.find(tp);
    if (position != committed.end()) one.committed = position->second;
    state.partitions.push_back(std::move(one));
  }
  return state;
}

absl::Status HasMembers(const std::string& group) {
  return absl::FailedPreconditionError(absl::StrCat("kafka: group ", group, " has members"));
}

absl::Status ResetOnce(rd_kafka_t* admin, const std::string& group,
                       const std::vector<CommitEntry>& entries, const Deadline& deadline) {
  const std::string what = absl::StrCat("storing positions of group ", group);
  ASSIGN_OR_RETURN(const int members, CountMembers(admin, group, deadline));
  if (members > 0) return HasMembers(group);
  if (entries.empty()) return absl::OkStatus();
  const PartitionListPtr list(rd_kafka_topic_partition_list_new(static_cast<int>(entries.size())));
  for (const CommitEntry& entry : entries) {
    rd_kafka_topic_partition_t* one =
        rd_kafka_topic_partition_list_add(list.get(), entry.tp.topic.c_str(), entry.tp.partition);
    one->offset = entry.position.offset;
    // librdkafka frees what it finds here, with free().
    one->metadata_size = entry.position.metadata.size();
    if (one->metadata_size > 0) {
      one->metadata = malloc(one->metadata_size);
      memcpy(one->metadata, entry.position.metadata.data(), one->metadata_size);
    }
  }
  const AlterOffsetsPtr request(rd_kafka_AlterConsumerGroupOffsets_new(group.c_str(), list.get()));
  rd_kafka_AlterConsumerGroupOffsets_t* requests = request.get();
  ASSIGN_OR_RETURN(const EventPtr event,
                   Ask(admin, RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS, what, deadline,
                       [&](const rd_kafka_AdminOptions_t* options, rd_kafka_queue_t* queue) {
                         rd_kafka_AlterConsumerGroupOffsets(admin, &requests, 1, options, queue);
                       }));
  size_t count = 0;
  const rd_kafka_group_result_t** groups = rd_kafka_AlterConsumerGroupOffsets_result_groups(
      rd_kafka_event_AlterConsumerGroupOffsets_result(event.get()), &count);
  if (count != 1) return absl::InternalError(absl::StrCat("kafka: ", what, ": no group told of"));
  // The broker takes positions from outside of a group's generations only while it is empty: this
  // holds against a member that joined since it was counted.
  const auto judge = [&](rd_kafka_resp_err_t err) -> absl::Status {
    switch (err) {
      case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
      case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION:
      case RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS:
      case RD_KAFKA_RESP_ERR_NON_EMPTY_GROUP:
      case RD_KAFKA_RESP_ERR_GROUP_SUBSCRIBED_TO_TOPIC:
        return HasMembers(group);
      default:
        return Judge(err, what);
    }
  };
  if (const rd_kafka_error_t* error = rd_kafka_group_result_error(groups[0])) {
    RETURN_IF_ERROR(judge(rd_kafka_error_code(error)));
  }
  const rd_kafka_topic_partition_list_t* stored = rd_kafka_group_result_partitions(groups[0]);
  for (int i = 0; stored != nullptr && i < stored->cnt; ++i) {
    RETURN_IF_ERROR(judge(stored->elems[i].err));
  }
  return absl::OkStatus();
}

// The settings that were given to this topic itself.
absl::StatusOr<std::map<std::string, std::string>> OwnSettings(rd_kafka_t* admin,
                                                               const std::string& topic,
                                                               const Deadline& deadline) {
  const std::string what = absl::StrCat("settings of topic ", topic);
  const ConfigResourcePtr resource(
      rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str()));
  rd_kafka_ConfigResource_t* resources = resource.get();
  ASSIGN_OR_RETURN(const EventPtr event,
                   Ask(admin, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, what, deadline,
                       [&](const rd_kafka_AdminOptions_t* options, rd_kafka_queue_t* queue) {
                         rd_kafka_DescribeConfigs(admin, &resources, 1, options, queue);
                       }));
  size_t count = 0;
  const rd_kafka_ConfigResource_t** found = rd_kafka_DescribeConfigs_result_resources(
      rd_kafka_event_DescribeConfigs_result(event.get()), &count);
  if (count != 1) return absl::InternalError(absl::StrCat("kafka: ", what, ": no topic told of"));
  RETURN_IF_ERROR(Judge(rd_kafka_ConfigResource_error(found[0]), what));
  std::map<std::string, std::string> settings;
  const rd_kafka_ConfigEntry_t** entries = rd_kafka_ConfigResource_configs(found[0], &count);
  for (size_t i = 0; i < count; ++i) {
    if (rd_kafka_ConfigEntry_source(entries[i]) != RD_KAFKA_CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG) {
      continue;
    }
    const char* value = rd_kafka_ConfigEntry_value(entries[i]);
    const std::string name = rd_kafka_ConfigEntry_name(entries[i]);
    if (value == nullptr) {
      return absl::InternalError(absl::StrCat("kafka: ", what, ": ", name, " is not told"));
    }
    settings[name] = value;
  }
  return settings;
}

// librdkafka 2.0.2 knows only the request that replaces all of a topic's own settings.
absl::Status SetNothingFits(rd_kafka_t* admin, const std::string& topic, const Deadline& deadline) {
  using Settings = std::map<std::string, std::string>;
  ASSIGN_OR_RETURN(const Settings before, OwnSettings(admin, topic, deadline));
  Settings settings = before;
  settings["max.message.bytes"] = kNothingFits;
  // Compressing anew could make the smallest batch larger.
  settings["compression.type"] = "producer";
  if (settings == before) return absl::OkStatus();
  const std::string what = absl::StrCat("freezing topic ", topic);
  const ConfigResourcePtr resource(
      rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str()));
  for (const auto& [name, value] : settings) {
    rd_kafka_ConfigResource_set_config(resource.get(), name.c_str(), value.c_str());
  }
  rd_kafka_ConfigResource_t* resources = resource.get();
  ASSIGN_OR_RETURN(const EventPtr event,
                   Ask(admin, RD_KAFKA_ADMIN_OP_ALTERCONFIGS, what, deadline,
                       [&](const rd_kafka_AdminOptions_t* options, rd_kafka_queue_t* queue) {
                         rd_kafka_AlterConfigs(admin, &resources, 1, options, queue);
                       }));
  size_t count = 0;
  const rd_kafka_ConfigResource_t** found = rd_kafka_AlterConfigs_result_resources(
      rd_kafka_event_AlterConfigs_result(event.get()), &count);
  if (count != 1) return absl::InternalError(absl::StrCat("kafka: ", what, ": no topic told of"));
  const char* detail = rd_kafka_ConfigResource_error_string(found[0]);
  return Judge(rd_kafka_ConfigResource_error(found[0]), what, detail == nullptr ? "" : detail);
}

// Tries a topic with records that say nothing.
class Prober {
 public:
  static absl::StatusOr<std::unique_ptr<Prober>> Create(const ClientConfig& config,
                                                        const std::string& topic) {
    const Settings own = {
        {"acks", "all"},
        {"enable.idempotence", "false"},
        {"message.timeout.ms", absl::StrCat(kTryMs)},
        {"linger.ms", "20"},
        {"compression.type", "none"},
    };
    auto prober = std::make_unique<Prober>();
    ASSIGN_OR_RETURN(ConfPtr conf, MakeConf(config, own));
    rd_kafka_conf_set_dr_msg_cb(
        conf.get(), [](rd_kafka_t*, const rd_kafka_message_t* message, void*) {
          auto* answers = static_cast<std::vector<rd_kafka_resp_err_t>*>(message->_private);
          answers->push_back(message->err);
        });
    ASSIGN_OR_RETURN(prober->client_, MakeClient(RD_KAFKA_PRODUCER, std::move(conf)));
    prober->topic_.reset(rd_kafka_topic_new(prober->client_.get(), topic.c_str(), nullptr));
    if (prober->topic_ == nullptr) {
      return ToStatus(rd_kafka_last_error(), absl::StrCat("trying ", topic));
    }
    return prober;
  }
  ~Prober() {
    if (client_ == nullptr) return;
    rd_kafka_purge(client_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    while (rd_kafka_outq_len(client_.get()) > 0) rd_kafka_poll(client_.get(), kLookMs);
    topic_.reset();
  }

  // One answer for each of `count` records, which go out together as far as possible.
  std::vector<rd_kafka_resp_err_t> Try(int32_t partition, int count) {
    std::vector<rd_kafka_resp_err_t> answers;
    for (int i = 0; i < count; ++i) {
      // A key that is empty: compaction takes no record without one.
      if (rd_kafka_produce(topic_.get(), partition, RD_KAFKA_MSG_F_COPY, nullptr, 0, "", 0,
                           &answers) != 0) {
        answers.push_back(rd_kafka_last_error());
      }
    }
    while (answers.size() < static_cast<size_t>(count)) rd_kafka_poll(client_.get(), kLookMs);
    return answers;
  }

 private:
  ClientPtr client_;
  TopicPtr topic_;
};

bool IsRefused(rd_kafka_resp_err_t err) { return err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE; }

}  // namespace

Deadline::Deadline(std::chrono::milliseconds timeout)
    : end_(std::chrono::steady_clock::now() + timeout) {}

int Deadline::left_ms() const {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      end_ - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 600'000));
}

bool MayPass(rd_kafka_resp_err_t err) {
  switch (err) {
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR__WAIT_COORD:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_NOT_CONTROLLER:
    case RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS:
    case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_COORDINATOR:
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<int64_t> OffsetForTime(rd_kafka_t* admin, const TopicPartition& tp, WallTime time,
                                      const Deadline& deadline) {
  const std::string what = absl::StrCat("offset for a time in ", tp.ToString());
  int64_t low = 0;
  int64_t high = 0;
  const PartitionListPtr list = ListOf({tp});
  rd_kafka_topic_partition_t& one = list->elems[0];
  RETURN_IF_ERROR(Persist(deadline, [&] {
    // The end first: what is appended between the questions must not be passed over.
    const absl::Status known =
        Judge(rd_kafka_query_watermark_offsets(admin, tp.topic.c_str(), tp.partition, &low, &high,
                                               std::clamp(deadline.left_ms(), 1, kTryMs)),
              what);
    if (!known.ok()) return known;
    one.offset = MillisSinceEpoch(time);
    const absl::Status asked = Judge(
        rd_kafka_offsets_for_times(admin, list.get(), std::clamp(deadline.left_ms(), 1, kTryMs)),
        what);
    return asked.ok() ? Judge(one.err, what) : asked;
  }));
  return one.offset >= 0 ? one.offset : high;
}

// One question for all; but one partition without a leader spoils it, and then each is asked alone,
// as far as the time goes.
std::vector<absl::optional<int64_t>> Ends(rd_kafka_t* admin,
                                          const std::vector<TopicPartition>& partitions,
                                          const Deadline& deadline) {
  std::vector<absl::optional<int64_t>> ends(partitions.size());
  if (partitions.empty()) return ends;
  const PartitionListPtr list = ListOf(partitions);
  for (int i = 0; i < list->cnt; ++i) list->elems[i].offset = RD_KAFKA_OFFSET_END;
  if (rd_kafka_offsets_for_times(admin, list.get(), std::max(1, deadline.left_ms() / 2)) ==
      RD_KAFKA_RESP_ERR_NO_ERROR) {
    for (size_t i = 0; i < ends.size(); ++i) {
      const rd_kafka_topic_partition_t& one = list->elems[i];
      if (one.err == RD_KAFKA_RESP_ERR_NO_ERROR && one.offset >= 0) ends[i] = one.offset;
    }
    return ends;
  }
  for (size_t i = 0; i < ends.size() && deadline.left_ms() > 0; ++i) {
    int64_t low = 0;
    int64_t high = 0;
    const rd_kafka_resp_err_t err = rd_kafka_query_watermark_offsets(
        admin, partitions[i].topic.c_str(), partitions[i].partition, &low, &high,
        std::clamp(deadline.left_ms(), 1, kEndTryMs));
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) ends[i] = high;
  }
  return ends;
}

absl::StatusOr<Log::GroupState> DescribeGroup(rd_kafka_t* admin, const std::string& group,
                                              const std::vector<TopicPartition>& partitions,
                                              const Deadline& deadline) {
  absl::StatusOr<Log::GroupState> state;
  RETURN_IF_ERROR(Persist(deadline, [&] {
    state = DescribeOnce(admin, group, partitions, deadline);
    return state.status();
  }));
  return state;
}

absl::Status ResetGroup(rd_kafka_t* admin, const std::string& group,
                        const std::vector<CommitEntry>& entries, const Deadline& deadline) {
  return Persist(deadline, [&] { return ResetOnce(admin, group, entries, deadline); });
}

absl::Status DeleteTopic(rd_kafka_t* admin, const std::string& topic, const Deadline& deadline) {
  const std::string what = absl::StrCat("deleting topic ", topic);
  return Persist(deadline, [&]() -> absl::Status {
    const DeleteTopicPtr request(rd_kafka_DeleteTopic_new(topic.c_str()));
    rd_kafka_DeleteTopic_t* requests = request.get();
    ASSIGN_OR_RETURN(const EventPtr event,
                     Ask(admin, RD_KAFKA_ADMIN_OP_DELETETOPICS, what, deadline,
                         [&](const rd_kafka_AdminOptions_t* options, rd_kafka_queue_t* queue) {
                           rd_kafka_DeleteTopics(admin, &requests, 1, options, queue);
                         }));
    size_t count = 0;
    const rd_kafka_topic_result_t** results = rd_kafka_DeleteTopics_result_topics(
        rd_kafka_event_DeleteTopics_result(event.get()), &count);
    if (count != 1) return absl::InternalError(absl::StrCat("kafka: ", what, ": not told of"));
    const rd_kafka_resp_err_t err = rd_kafka_topic_result_error(results[0]);
    if (err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) return absl::OkStatus();
    return Judge(err, what);
  });
}

// First the topic's setting; then, for each partition, a batch that must not fit any more, which
// proves that its leader knows; last a record that fits, which is acknowledged only after all that
// was appended before it: nothing waits for its replicas any longer, and the end covers it.
absl::Status FreezeTopic(const ClientConfig& config, rd_kafka_t* admin, const std::string& topic,
                         int32_t partitions, const Deadline& deadline) {
  RETURN_IF_ERROR(Persist(deadline, [&] { return SetNothingFits(admin, topic, deadline); }));
  ASSIGN_OR_RETURN(const std::unique_ptr<Prober> prober, Prober::Create(config, topic));
  for (int32_t partition = 0; partition < partitions; ++partition) {
    const std::string what = absl::StrCat("freezing ", topic, "/", partition);
    const auto closed = [&]() -> absl::Status {
      const std::vector<rd_kafka_resp_err_t> answers = prober->Try(partition, kTooMany);
      if (std::all_of(answers.begin(), answers.end(), IsRefused)) return absl::OkStatus();
      for (const rd_kafka_resp_err_t err : answers) {
        if (!IsRefused(err)) RETURN_IF_ERROR(Judge(err, what));
      }
      return absl::UnavailableError(absl::StrCat("kafka: ", what, ": not effective yet"));
    };
    RETURN_IF_ERROR(Persist(deadline, closed));
    RETURN_IF_ERROR(
        Persist(deadline, [&] { return Judge(prober->Try(partition, 1).front(), what); }));
  }
  return absl::OkStatus();
}

}  // namespace postrider::kafka_internal
