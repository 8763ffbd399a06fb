#include "core/kafka/internal/kafka_consumer.h"

#include <librdkafka/rdkafka.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/kafka/internal/message.h"

namespace postrider::kafka_internal {
namespace {

constexpr int kAskTimeoutMs = 2'000;
constexpr Duration kAskAgain = std::chrono::milliseconds(200);
constexpr Duration kLookAtClose = std::chrono::milliseconds(20);
// An acknowledgement that does not come must not keep the group waiting for ever.
constexpr Duration kReleaseWaitMax = std::chrono::seconds(5);
constexpr Duration kLeaseMargin = std::chrono::seconds(1);

std::string Millis(std::chrono::milliseconds time) { return absl::StrCat(time.count()); }

// `text` so that an extended regular expression takes it literally. A class is used instead of a
// backslash because librdkafka reads the list's commas and backslashes first.
absl::StatusOr<std::string> Literal(absl::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-';
    if (plain) {
      result.push_back(c);
    } else if (c == '.') {
      result.append("[.]");
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("kafka: excluded prefix ", text, ": not a beginning of a topic's name"));
    }
  }
  return result;
}

// What fits every text but `names` (sorted, each once): those that end or part from all of them at
// this place or later.
std::string AnyBut(const std::vector<std::string>& names) {
  std::string branches;
  std::string next;  // the characters that go on with one of them
  bool ends = false;
  for (size_t i = 0; i < names.size();) {
    if (names[i].empty()) {
      ends = true;
      ++i;
      continue;
    }
    const char c = names[i].front();
    std::vector<std::string> rest;
    for (; i < names.size() && !names[i].empty() && names[i].front() == c; ++i) {
      rest.push_back(names[i].substr(1));
    }
    next.push_back(c);
    absl::StrAppend(&branches, "|[", std::string(1, c), "]", AnyBut(rest));
  }
  // '-' stands last in a class, where it is itself.
  std::stable_partition(next.begin(), next.end(), [](char c) { return c != '-'; });
  const std::string other = next.empty() ? "." : absl::StrCat("[^", next, "]");
  return absl::StrCat("(", ends ? "" : "$|", other, branches, ")");
}

// A regular expression of the topics that `prefix` keeps away: all that begin so but for `exempt`.
absl::StatusOr<std::string> ExcludedPattern(absl::string_view prefix,
                                            const std::vector<std::string>& exempt) {
  ASSIGN_OR_RETURN(std::string pattern, Literal(prefix));
  std::set<std::string> rests;
  for (const std::string& topic : exempt) {
    RETURN_IF_ERROR(Literal(topic).status());
    if (absl::StartsWith(topic, prefix)) rests.insert(topic.substr(prefix.size()));
  }
  if (rests.empty()) return absl::StrCat("^", pattern);
  return absl::StrCat("^", pattern, AnyBut({rests.begin(), rests.end()}));
}

absl::StatusOr<std::string> WholeNamePattern(absl::string_view pattern) {
  const std::string whole = absl::StrCat("^(", pattern.substr(1), ")$");
  regex_t compiled;
  const int err = regcomp(&compiled, whole.c_str(), REG_EXTENDED | REG_NOSUB);
  if (err != 0) {
    char text[256] = "";
    regerror(err, &compiled, text, sizeof(text));
    return absl::InvalidArgumentError(absl::StrCat("kafka: topic pattern ", pattern, ": ", text));
  }
  regfree(&compiled);
  return whole;
}

bool IsFenced(rd_kafka_resp_err_t err) {
  switch (err) {
    case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
    case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION:
    case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID:
    case RD_KAFKA_RESP_ERR__FENCED:
    case RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST:
    case RD_KAFKA_RESP_ERR__FATAL:
      return true;
    default:
      return false;
  }
}

bool IsUnreachable(rd_kafka_resp_err_t err) {
  switch (err) {
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR__WAIT_COORD:
    case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_COORDINATOR:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
      return true;
    default:
      return false;
  }
}

absl::Status FencedStatus() { return absl::AbortedError("kafka: commit: the group has moved on"); }

absl::Status CommitStatus(rd_kafka_resp_err_t err) {
  switch (err) {
    case RD_KAFKA_RESP_ERR_NO_ERROR:
      return absl::OkStatus();
    case RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
      return ToStatus(err, "commit");
    default:
      break;
  }
  if (IsFenced(err)) return FencedStatus();
  return absl::UnavailableError(absl::StrCat("kafka: commit: ", rd_kafka_err2str(err)));
}

int64_t LogicalOf(const StartPosition& position) {
  switch (position.at) {
    case StartPosition::At::kOffset:
      return position.offset;
    case StartPosition::At::kLogStart:
      return RD_KAFKA_OFFSET_BEGINNING;
    case StartPosition::At::kLogEnd:
      return RD_KAFKA_OFFSET_END;
  }
  return RD_KAFKA_OFFSET_INVALID;
}

}  // namespace

struct KafkaConsumer::OutstandingCommit {
  KafkaConsumer* consumer = nullptr;
  uint64_t assignment = 0;
  MonotonicTime issued;
  std::vector<TopicPartition> partitions;
  // Entries that were not sent have their status already.
  std::vector<absl::optional<absl::Status>> known;
  CommitDone done;
};

KafkaConsumer::KafkaConsumer(const Clock& clock, EventLoop& loop, KafkaMetrics& metrics,
                             const GroupOptions& options, GroupHandler& handler)
    : clock_(clock), loop_(loop), metrics_(metrics), options_(options), handler_(handler) {}

absl::StatusOr<std::unique_ptr<KafkaConsumer>> KafkaConsumer::Create(
    const ClientConfig& config, const Clock& clock, ControlThread& control, rd_kafka_t* admin,
    EventLoop& loop, KafkaMetrics& metrics, const GroupOptions& options, GroupHandler& handler) {
  std::unique_ptr<KafkaConsumer> consumer(
      new KafkaConsumer(clock, loop, metrics, options, handler));
  RETURN_IF_ERROR(consumer->Open(config, control, admin));
  return consumer;
}

absl::Status KafkaConsumer::Open(const ClientConfig& config, ControlThread& control,
                                 rd_kafka_t* admin) {
  if (options_.group.empty()) return absl::InvalidArgumentError("kafka: a group needs a name");
  if (options_.topics.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("kafka: group ", options_.group, ": no topics"));
  }
  std::vector<std::string> topics = options_.topics;
  std::string excluded;
  if (topics.front()[0] == '^') {
    if (topics.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("kafka: group ", options_.group, ": a pattern stands alone"));
    }
    ASSIGN_OR_RETURN(topics.front(), WholeNamePattern(topics.front()));
    for (const std::string& prefix : options_.excluded_prefixes) {
      ASSIGN_OR_RETURN(const std::string pattern, ExcludedPattern(prefix, options_.exempt_topics));
      absl::StrAppend(&excluded, excluded.empty() ? "" : ",", pattern);
    }
  }
  const int64_t kbytes = std::clamp<int64_t>(options_.prefetch_bytes / 1'024, 1, 2'097'151);
  const int64_t records = std::clamp<int64_t>(options_.prefetch_records, 1, 10'000'000);
  const bool range = options_.strategy == AssignmentStrategy::kRange;
  Settings own = {
      {"group.id", options_.group},
      {"partition.assignment.strategy", range ? "range" : "roundrobin"},
      {"session.timeout.ms", Millis(options_.session_timeout)},
      {"heartbeat.interval.ms", Millis(options_.heartbeat_interval)},
      {"max.poll.interval.ms", Millis(options_.poll_interval_max)},
      {"enable.auto.commit", "false"},
      {"enable.auto.offset.store", "false"},
      {"auto.offset.reset", "error"},
      {"enable.partition.eof", "true"},
      {"isolation.level", "read_committed"},
      {"topic.metadata.refresh.interval.ms", Millis(options_.topic_refresh)},
      {"fetch.wait.max.ms", Millis(options_.fetch_wait_max)},
      {"fetch.min.bytes", absl::StrCat(options_.fetch_bytes_min)},
      {"queued.min.messages", absl::StrCat(records)},
      {"queued.max.messages.kbytes", absl::StrCat(kbytes)},
      // A broker that swallows a request must not hold a commit's answer for a minute.
      {"?socket.timeout.ms", "10000"},
  };
  if (!excluded.empty()) own.emplace_back("topic.blacklist", excluded);
  ASSIGN_OR_RETURN(ConfPtr conf, MakeConf(config, own));
  rd_kafka_conf_set_opaque(conf.get(), this);
  rd_kafka_conf_set_rebalance_cb(conf.get(), RebalanceCallback);
  rd_kafka_conf_set_error_cb(conf.get(), ErrorCallback);
  ASSIGN_OR_RETURN(wake_, WakeFd::Create());
  ASSIGN_OR_RETURN(std::unique_ptr<WakeFd> wake, wake_->Copy());
  log_starts_ = std::make_unique<RangeLookup>(
      control, admin, loop_, std::move(wake), [this](const RangeLookup::Question& question) {
        return state_ == State::kReading && question.ticket == assignment_;
      });
  ASSIGN_OR_RETURN(client_, MakeClient(RD_KAFKA_CONSUMER, std::move(conf)));
  rd_kafka_poll_set_consumer(client_.get());
  consumer_queue_.reset(rd_kafka_queue_get_consumer(client_.get()));
  answers_queue_.reset(rd_kafka_queue_new(client_.get()));
  closing_queue_.reset(rd_kafka_queue_new(client_.get()));
  wake_->Attach(consumer_queue_.get());
  wake_->Attach(answers_queue_.get());
  wake_->Attach(closing_queue_.get());

  const PartitionListPtr subscription(
      rd_kafka_topic_partition_list_new(static_cast<int>(topics.size())));
  for (const std::string& topic : topics) {
    rd_kafka_topic_partition_list_add(subscription.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
  }
  return ToStatus(rd_kafka_subscribe(client_.get(), subscription.get()),
                  absl::StrCat("group ", options_.group, ": subscribing"));
}

KafkaConsumer::~KafkaConsumer() {
  for (const TimerId timer : {ask_timer_, close_timer_, release_timer_}) {
    if (timer != 0) loop_.CancelTimer(timer);
  }
  if (!reachable_) metrics_.unreachable.Add(-1);
  by_handle_.clear();
  consumer_queue_.reset();
  answers_queue_.reset();
  closing_queue_.reset();
  if (client_ != nullptr) {
    rd_kafka_destroy_flags(client_.release(), RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
  }
  // Commits without an answer: librdkafka has dropped them with its queues.
}

void KafkaConsumer::RebalanceCallback(rd_kafka_t*, rd_kafka_resp_err_t err,
                                      rd_kafka_topic_partition_list_t* partitions, void* opaque) {
  static_cast<KafkaConsumer*>(opaque)->OnRebalance(err, *partitions);
}

void KafkaConsumer::ErrorCallback(rd_kafka_t*, int err, const char* reason, void* opaque) {
  auto* consumer = static_cast<KafkaConsumer*>(opaque);
  if (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
    consumer->down_signal_ = true;
    return;
  }
  if (err == RD_KAFKA_RESP_ERR__TRANSPORT) return;  // per connection; the log has it
  POSTRIDER_LOG(kWarn, "kafka member", {"group", consumer->options_.group}, {"text", reason});
}

// Inside librdkafka's poll: what follows is done by HandleSignals() as soon as the poll returns.
void KafkaConsumer::OnRebalance(rd_kafka_resp_err_t err,
                                const rd_kafka_topic_partition_list_t& partitions) {
  const bool closing = state_ == State::kClosing || state_ == State::kClosed;
  if (err != RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
    if (closing || state_ == State::kIdle || state_ == State::kAsking) {
      // Nothing of it has been told to the handler.
      if (!closing) state_ = State::kIdle;
      rd_kafka_assign(client_.get(), nullptr);
      return;
    }
    client_awaits_unassign_ = true;
    revoked_signal_ = true;
    lost_signal_ = rd_kafka_assignment_lost(client_.get()) != 0;
    return;
  }
  if (closing) {
    rd_kafka_assign(client_.get(), &partitions);
    return;
  }
  metrics_.assigned.Increment();
  client_awaits_assign_ = true;
  ++assignment_;
  fenced_ = false;
  lease_from_.reset();
  by_handle_.clear();
  positions_.clear();
  asked_.clear();
  for (int i = 0; i < partitions.cnt; ++i) {
    const rd_kafka_topic_partition_t& one = partitions.elems[i];
    asked_.push_back({{one.topic, one.partition}, absl::nullopt});
  }
  asking_whole_group_ = false;
  state_ = State::kAsking;
  AskCommitted();
}

// First what is committed for the assigned partitions; if nothing is, whether the group has any
// commit at all.
void KafkaConsumer::AskCommitted() {
  PartitionListPtr partitions;
  if (asked_.empty()) asking_whole_group_ = true;
  if (!asking_whole_group_) {
    partitions.reset(rd_kafka_topic_partition_list_new(static_cast<int>(asked_.size())));
    for (const AssignedPartition& one : asked_) {
      rd_kafka_topic_partition_list_add(partitions.get(), one.tp.topic.c_str(), one.tp.partition);
    }
  }
  rd_kafka_ListConsumerGroupOffsets_t* request =
      rd_kafka_ListConsumerGroupOffsets_new(options_.group.c_str(), partitions.get());
  const AdminOptionsPtr admin(
      rd_kafka_AdminOptions_new(client_.get(), RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS));
  char error[256] = "";
  rd_kafka_AdminOptions_set_request_timeout(admin.get(), kAskTimeoutMs, error, sizeof(error));
  // Offsets of transactions that are not decided yet are waited for.
  const ErrorPtr stable(rd_kafka_AdminOptions_set_require_stable_offsets(admin.get(), 1));
  rd_kafka_AdminOptions_set_opaque(admin.get(), reinterpret_cast<void*>(assignment_));
  rd_kafka_ListConsumerGroupOffsets(client_.get(), &request, 1, admin.get(), answers_queue_.get());
  rd_kafka_ListConsumerGroupOffsets_destroy(request);
}

void KafkaConsumer::AskCommittedLater() {
  if (ask_timer_ != 0) return;
  ask_timer_ = loop_.CallAfter(kAskAgain, [this, asked_for = assignment_] {
    ask_timer_ = 0;
    if (state_ == State::kAsking && assignment_ == asked_for) AskCommitted();
  });
}

void KafkaConsumer::HandleEvents() {
  while (true) {
    const EventPtr event(rd_kafka_queue_poll(answers_queue_.get(), 0));
    if (event == nullptr) return;
    if (rd_kafka_event_type(event.get()) == RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT) {
      HandleCommitted(*event);
    }
  }
}

void KafkaConsumer::HandleCommitted(const rd_kafka_event_t& event) {
  auto* raw = const_cast<rd_kafka_event_t*>(&event);
  const auto asked_for = reinterpret_cast<uint64_t>(rd_kafka_event_opaque(raw));
  if (state_ != State::kAsking || asked_for != assignment_) return;
  rd_kafka_resp_err_t err = rd_kafka_event_error(raw);
  const rd_kafka_topic_partition_list_t* found = nullptr;
  if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
    size_t count = 0;
    const rd_kafka_group_result_t** groups = rd_kafka_ListConsumerGroupOffsets_result_groups(
        rd_kafka_event_ListConsumerGroupOffsets_result(raw), &count);
    if (count == 1) {
      if (const rd_kafka_error_t* error = rd_kafka_group_result_error(groups[0])) {
        err = rd_kafka_error_code(error);
      } else {
        found = rd_kafka_group_result_partitions(groups[0]);
      }
    }
  }
  bool any = false;
  absl::flat_hash_map<TopicPartition, CommittedPosition> committed;
  for (int i = 0; found != nullptr && i < found->cnt; ++i) {
    const rd_kafka_topic_partition_t& one = found->elems[i];
    if (one.err != RD_KAFKA_RESP_ERR_NO_ERROR) err = one.err;
    if (one.offset < 0) continue;
    any = true;
    if (asking_whole_group_) continue;
    committed[{one.topic, one.partition}] = {
        one.offset, std::string(static_cast<const char*>(one.metadata), one.metadata_size)};
  }
  if (err != RD_KAFKA_RESP_ERR_NO_ERROR || found == nullptr) {
    POSTRIDER_LOG(kWarn, "kafka committed positions unknown yet", {"group", options_.group},
                  {"reason", rd_kafka_err2str(err)});
    AskCommittedLater();
    return;
  }
  SetReachable(true);
  if (!any && !asking_whole_group_) {
    asking_whole_group_ = true;
    AskCommitted();
    return;
  }
  for (AssignedPartition& one : asked_) {
    const auto position = committed.find(one.tp);
    if (position != committed.end()) one.committed = std::move(position->second);
    positions_[one.tp].tp = one.tp;
  }
  state_ = State::kOffered;
  Assignment assignment;
  assignment.partitions = std::exchange(asked_, {});
  assignment.group_has_commits = any;
  handler_.OnAssigned(std::move(assignment));
}

void KafkaConsumer::Start(std::vector<StartPosition> positions) {
  if (leaving_ || state_ != State::kOffered) return;
  for (const StartPosition& start : positions) {
    const auto found = positions_.find(start.tp);
    if (found == positions_.end()) continue;
    found->second.reading = true;
    found->second.start = LogicalOf(start);
    found->second.next = start.at == StartPosition::At::kOffset ? start.offset : -1;
  }
  state_ = State::kReading;
  client_awaits_assign_ = false;
  AssignReading();
}

void KafkaConsumer::AssignReading() {
  const PartitionListPtr list(
      rd_kafka_topic_partition_list_new(static_cast<int>(positions_.size())));
  for (const auto& [tp, position] : positions_) {
    if (!position.reading) continue;
    rd_kafka_topic_partition_list_add(list.get(), tp.topic.c_str(), tp.partition)->offset =
        position.next >= 0 ? position.next : position.start;
  }
  assign_wanted_ = false;
  assign_settling_ = list->cnt > 0;
  const rd_kafka_resp_err_t err = rd_kafka_assign(client_.get(), list.get());
  if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    POSTRIDER_LOG(kError, "kafka assign failed", {"group", options_.group},
                  {"reason", rd_kafka_err2str(err)});
  }
}

// An eager group takes whole assignments only, and a partition whose position was refused cannot
// be sought; so all of them are assigned again where they stand. What was fetched ahead is fetched
// once more.
void KafkaConsumer::Restart(const TopicPartition& tp, int64_t offset) {
  if (state_ != State::kReading) return;
  const auto found = positions_.find(tp);
  if (found == positions_.end()) return;
  found->second.reading = true;
  found->second.next = offset;
  found->second.restarting = true;
  assign_wanted_ = true;
  // Poll() assigns, also when this comes from elsewhere.
  wake_->Signal();
}

// Assigns anew what Restart() asked for, once for all of it. Not before the assignment before has
// settled: librdkafka 2.0.2 stops the process when a partition is to be stopped twice. It has when
// anything comes from a partition, for these are started only after all were stopped.
void KafkaConsumer::MaybeAssign() {
  // A revocation that is under way will end all reading anyway.
  if (!assign_wanted_ || assign_settling_ || client_awaits_unassign_) return;
  if (state_ != State::kReading) return;
  AssignReading();
  for (auto& [tp, position] : positions_) position.restarting = false;
}

void KafkaConsumer::HandleSignals() {
  if (std::exchange(down_signal_, false)) {
    SetReachable(false);
    queue_is_older_ = true;
  }
  if (std::exchange(up_signal_, false)) SetReachable(true);
  if (std::exchange(revoked_signal_, false)) HandleRevoked();
  // Until it is told where to read librdkafka (2.0.2) hears of nothing, not that it is out of the
  // group either: who cannot claim reads nothing, and is told then that all is lost.
  if (fenced_ && state_ == State::kOffered && std::exchange(client_awaits_assign_, false)) {
    const PartitionListPtr none(rd_kafka_topic_partition_list_new(0));
    rd_kafka_assign(client_.get(), none.get());
  }
  if (!leaving_) return;
  switch (state_) {
    case State::kIdle:
    case State::kAsking:
      BeginClose();
      return;
    case State::kOffered:
    case State::kReading:
      state_ = State::kRevoking;
      handler_.OnRevoked();
      return;
    case State::kRevoking:
    case State::kReleasing:
    case State::kClosing:
    case State::kClosed:
      return;
  }
}

void KafkaConsumer::HandleRevoked() {
  // librdkafka calls it a plain revocation when the group went on while nobody polled.
  if (fenced_) lost_signal_ = true;
  if (lost_signal_) {
    metrics_.lost.Increment();
    fenced_ = true;
    lease_from_.reset();
    // Mostly because the session ended without an answer; librdkafka's word that all brokers are
    // down may never come to a member of a group. The next assignment says that they are back.
    SetReachable(false);
    queue_is_older_ = true;
  } else {
    metrics_.revoked.Increment();
  }
  // The handler of a member that leaves was told before.
  if (state_ != State::kOffered && state_ != State::kReading) return;
  state_ = State::kRevoking;
  if (lost_signal_) {
    handler_.OnLost();
  } else {
    handler_.OnRevoked();
  }
}

void KafkaConsumer::Release() {
  if (state_ != State::kRevoking) return;
  state_ = State::kReleasing;
  by_handle_.clear();
  positions_.clear();
  if (outstanding_.empty()) {
    FinishRelease();
    return;
  }
  // librdkafka would send a commit that waits for its coordinator with the next generation, in
  // which the partition may be another's.
  release_timer_ = loop_.CallAfter(kReleaseWaitMax, [this] {
    release_timer_ = 0;
    if (state_ == State::kReleasing) FinishRelease();
  });
}

void KafkaConsumer::FinishRelease() {
  if (release_timer_ != 0) loop_.CancelTimer(std::exchange(release_timer_, 0));
  lease_from_.reset();
  if (leaving_) {
    BeginClose();
    return;
  }
  state_ = State::kIdle;
  client_awaits_unassign_ = false;
  rd_kafka_assign(client_.get(), nullptr);
}

void KafkaConsumer::Leave(absl::AnyInvocable<void() &&> done) {
  if (leaving_) return;
  leaving_ = true;
  leave_done_ = std::move(done);
  wake_->Signal();
}

void KafkaConsumer::BeginClose() {
  state_ = State::kClosing;
  // librdkafka ends its waiting for an answer before it closes: a close beside one could hang.
  if (std::exchange(client_awaits_assign_, false)) {
    const PartitionListPtr none(rd_kafka_topic_partition_list_new(0));
    rd_kafka_assign(client_.get(), none.get());
  }
  const ErrorPtr error(rd_kafka_consumer_close_queue(client_.get(), closing_queue_.get()));
  if (std::exchange(client_awaits_unassign_, false)) rd_kafka_assign(client_.get(), nullptr);
  if (error != nullptr) {
    POSTRIDER_LOG(kWarn, "kafka member cannot leave", {"group", options_.group},
                  {"reason", rd_kafka_error_string(error.get())});
    FinishClose();
    return;
  }
  wake_->Signal();
}

void KafkaConsumer::FinishClose() {
  if (close_timer_ != 0) loop_.CancelTimer(std::exchange(close_timer_, 0));
  state_ = State::kClosed;
  if (leave_done_ == nullptr) return;
  absl::AnyInvocable<void()&&> done = std::exchange(leave_done_, nullptr);
  std::move(done)();
}

size_t KafkaConsumer::Poll(size_t records_max) {
  wake_->Drain();
  if (state_ == State::kClosed) return 0;
  HandleEvents();
  HandleLogStarts();
  size_t records = 0;
  bool empty = false;
  // librdkafka has one queue for records and for what the group says, with what is urgent first.
  const size_t most = std::max<size_t>(records_max, 1);
  while (records < most) {
    const MessagePtr message(rd_kafka_consumer_poll(client_.get(), 0));
    HandleSignals();
    RunCommitDones();
    if (message != nullptr && message->rkt != nullptr) assign_settling_ = false;
    if (message == nullptr) {
      empty = true;
      queue_is_older_ = false;
      break;
    }
    HandleMessage(*message, &records);
  }
  MaybeAssign();
  if (state_ == State::kReleasing && outstanding_.empty()) FinishRelease();
  if (state_ == State::kClosing) {
    // What partitions still fetch comes here too. rd_kafka_queue_poll_callback() (2.0.2) would
    // abort the process at a message: it serves callbacks alone.
    while (const MessagePtr unread{rd_kafka_consume_queue(closing_queue_.get(), 0)}) {
    }
    if (rd_kafka_consumer_closed(client_.get()) != 0) {
      FinishClose();
      return records;
    }
    if (close_timer_ == 0) {
      close_timer_ = loop_.CallAfter(kLookAtClose, [this] {
        close_timer_ = 0;
        wake_->Signal();
      });
    }
  }
  if (!empty) wake_->Signal();
  return records;
}

KafkaConsumer::Position* KafkaConsumer::Find(const rd_kafka_message_t& message) {
  const std::pair<const void*, int32_t> handle(message.rkt, message.partition);
  const auto known = by_handle_.find(handle);
  if (known != by_handle_.end()) return known->second;
  const auto found = positions_.find({rd_kafka_topic_name(message.rkt), message.partition});
  if (found == positions_.end()) return nullptr;
  by_handle_.emplace(handle, &found->second);
  return &found->second;
}

void KafkaConsumer::HandleMessage(const rd_kafka_message_t& message, size_t* records) {
  if (message.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    HandlePartitionError(message);
    return;
  }
  if (state_ != State::kReading || message.rkt == nullptr) return;
  Position* position = Find(message);
  if (position == nullptr || !position->reading || position->restarting) return;
  if (message.offset < position->next) {
    metrics_.stale_records.Increment();
    return;
  }
  position->next = message.offset + 1;
  if (!queue_is_older_) SetReachable(true);

  ++*records;
  handler_.OnRecord(ToLogRecord(message, &headers_));
}

void KafkaConsumer::HandlePartitionError(const rd_kafka_message_t& message) {
  Position* position =
      state_ == State::kReading && message.rkt != nullptr ? Find(message) : nullptr;
  if (message.err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
    if (position == nullptr || !position->reading || position->restarting) return;
    // After a gap at the end (compaction, markers) this is past the last record by more than one.
    if (message.offset < position->next) return;
    position->next = message.offset;
    if (!queue_is_older_) SetReachable(true);
    handler_.OnPartitionEnd(position->tp, message.offset);
    return;
  }
  if (message.err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ||
      message.err == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE) {
    if (position == nullptr || !position->reading || position->restarting) return;
    metrics_.out_of_range.Increment();
    position->reading = false;
    POSTRIDER_LOG(kWarn, "kafka position out of range", {"partition", position->tp.ToString()},
                  {"position", position->next});
    log_starts_->Ask({position->tp, assignment_});
    return;
  }
  if (message.err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART && state_ == State::kIdle) {
    POSTRIDER_LOG(kInfo, "no topic to read yet", {"group", options_.group});
    handler_.OnNothingMatches();
    return;
  }
  POSTRIDER_LOG(kWarn, "kafka consumer error", {"group", options_.group},
                {"topic", message.rkt == nullptr ? "" : rd_kafka_topic_name(message.rkt)},
                {"partition", message.partition}, {"reason", rd_kafka_message_errstr(&message)});
}

void KafkaConsumer::HandleLogStarts() {
  for (const RangeLookup::Answer& answer : log_starts_->TakeAnswers()) {
    const auto position = positions_.find(answer.question.tp);
    // The handler of an answer before this one may have ended the assignment or begun anew.
    if (state_ != State::kReading || answer.question.ticket != assignment_) return;
    if (position == positions_.end() || position->second.reading) continue;
    handler_.OnOutOfRange(answer.question.tp, answer.range.begin);
  }
}

void KafkaConsumer::Commit(std::vector<CommitEntry> entries, CommitDone done) {
  auto commit = std::make_unique<OutstandingCommit>();
  commit->consumer = this;
  commit->assignment = assignment_;
  commit->issued = clock_.Now();
  commit->done = std::move(done);
  commit->known.resize(entries.size());
  const bool owner = !fenced_ && (state_ == State::kOffered || state_ == State::kReading ||
                                  state_ == State::kRevoking);
  const PartitionListPtr list(rd_kafka_topic_partition_list_new(static_cast<int>(entries.size())));
  for (size_t i = 0; i < entries.size(); ++i) {
    CommitEntry& entry = entries[i];
    if (!owner || !positions_.contains(entry.tp)) {
      commit->known[i] = FencedStatus();
    } else if (entry.position.offset < 0) {
      commit->known[i] = absl::InvalidArgumentError("kafka: commit: an offset is not negative");
    } else {
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
    commit->partitions.push_back(std::move(entry.tp));
  }
  OutstandingCommit* raw = commit.get();
  outstanding_.push_back(std::move(commit));
  rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_NO_ERROR;
  if (list->cnt > 0) {
    err = rd_kafka_commit_queue(client_.get(), list.get(), consumer_queue_.get(), CommitCallback,
                                raw);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) return;
  }
  HandleCommitAnswer(*raw, err, nullptr);
  wake_->Signal();
}

void KafkaConsumer::CommitCallback(rd_kafka_t*, rd_kafka_resp_err_t err,
                                   rd_kafka_topic_partition_list_t* offsets, void* commit_opaque) {
  auto* commit = static_cast<OutstandingCommit*>(commit_opaque);
  commit->consumer->HandleCommitAnswer(*commit, err, offsets);
}

// Inside librdkafka's poll, or inside Commit(): `done` runs from RunCommitDones().
void KafkaConsumer::HandleCommitAnswer(OutstandingCommit& commit, rd_kafka_resp_err_t err,
                                       const rd_kafka_topic_partition_list_t* offsets) {
  absl::flat_hash_map<TopicPartition, rd_kafka_resp_err_t> answers;
  bool stored = false;
  bool fenced = IsFenced(err);
  for (int i = 0; offsets != nullptr && i < offsets->cnt; ++i) {
    const rd_kafka_topic_partition_t& one = offsets->elems[i];
    answers[{one.topic, one.partition}] = one.err;
    stored = stored || (one.err == RD_KAFKA_RESP_ERR_NO_ERROR && err != RD_KAFKA_RESP_ERR__DESTROY);
    fenced = fenced || IsFenced(one.err);
  }
  std::vector<absl::Status> statuses;
  statuses.reserve(commit.partitions.size());
  for (size_t i = 0; i < commit.partitions.size(); ++i) {
    if (commit.known[i].has_value()) {
      statuses.push_back(*commit.known[i]);
      continue;
    }
    const auto answer = answers.find(commit.partitions[i]);
    rd_kafka_resp_err_t one = answer != answers.end() ? answer->second : err;
    if (answer == answers.end() && one == RD_KAFKA_RESP_ERR_NO_ERROR) {
      one = RD_KAFKA_RESP_ERR__FAIL;
    }
    statuses.push_back(CommitStatus(one));
  }
  metrics_.commit_seconds.Observe(
      std::chrono::duration<double>(clock_.Now() - commit.issued).count());
  if (fenced) {
    metrics_.commits_fenced.Increment();
    // Without a member id or a generation the broker would take the next one from anybody.
    if (commit.assignment == assignment_) fenced_ = true;
  } else if (stored) {
    metrics_.commits_done.Increment();
    up_signal_ = true;
    const bool grows = !lease_from_.has_value() || commit.issued > *lease_from_;
    if (commit.assignment == assignment_ && grows && !fenced_) lease_from_ = commit.issued;
  } else if (!answers.empty() || err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    metrics_.commits_failed.Increment();
    if (IsUnreachable(err)) down_signal_ = true;
  }
  answered_.emplace_back(std::move(commit.done), std::move(statuses));
  std::erase_if(outstanding_, [&commit](const auto& other) { return other.get() == &commit; });
}

void KafkaConsumer::RunCommitDones() {
  if (answered_.empty()) return;
  auto answered = std::exchange(answered_, {});
  for (auto& [done, statuses] : answered) std::move(done)(std::move(statuses));
}

MonotonicTime KafkaConsumer::LeaseUntil() const {
  if (!lease_from_.has_value()) return MonotonicTime();
  return *lease_from_ + options_.session_timeout - kLeaseMargin;
}

void KafkaConsumer::SetReachable(bool reachable) {
  if (reachable == reachable_) return;
  reachable_ = reachable;
  metrics_.unreachable.Add(reachable ? -1 : 1);
  handler_.OnReachable(reachable);
}

}  // namespace postrider::kafka_internal
