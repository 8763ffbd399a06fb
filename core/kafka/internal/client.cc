#include "core/kafka/internal/client.h"

#include <errno.h>
#include <fcntl.h>
#include <librdkafka/rdkafka.h>
#include <sys/eventfd.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"

namespace postrider::kafka_internal {
namespace {

// What correctness depends on, or what an option of ours says already.
constexpr absl::string_view kRefused[] = {
    "acks",
    "allow.auto.create.topics",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "bootstrap.servers",
    "consume.callback.max.messages",
    "delivery.report.only.error",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "enable.partition.eof",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "group.id",
    "group.instance.id",
    "heartbeat.interval.ms",
    "isolation.level",
    "linger.ms",
    "log.queue",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "max.poll.interval.ms",
    "message.send.max.retries",
    "message.timeout.ms",
    "metadata.broker.list",
    "offset.store.method",
    "offset.store.path",
    "offset.store.sync.interval.ms",
    "partition.assignment.strategy",
    "partitioner",
    "produce.offset.report",
    "queue.buffering.backpressure.threshold",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "queuing.strategy",
    "request.required.acks",
    "retries",
    "session.timeout.ms",
    "topic.blacklist",
    "topic.metadata.refresh.interval.ms",
    "transaction.timeout.ms",
    "transactional.id",
};

LogLevel LevelOf(int syslog_level) {
  if (syslog_level <= LOG_ERR) return LogLevel::kError;
  if (syslog_level == LOG_WARNING) return LogLevel::kWarn;
  return syslog_level >= LOG_DEBUG ? LogLevel::kDebug : LogLevel::kInfo;
}

// On any thread of librdkafka's.
void OnLog(const rd_kafka_t* client, int level, const char* facility, const char* text) {
  const absl::string_view kind(facility);
  // "Property X is a consumer property and will be ignored": one map serves all clients.
  if (kind == "CONFWARN") return;
  const char* name = client == nullptr ? "" : rd_kafka_name(client);
  // A broker that is away says so per connection and per try; readiness and the metrics tell it,
  // one line per ten seconds is enough for the log.
  if (kind == "FAIL" || kind == "ERROR") {
    POSTRIDER_LOG(kWarn, "kafka connection", {"client", name}, {"text", text});
    return;
  }
  switch (LevelOf(level)) {
    case LogLevel::kError:
      POSTRIDER_LOG(kError, "kafka client", {"client", name}, {"kind", facility}, {"text", text});
      return;
    case LogLevel::kWarn:
      POSTRIDER_LOG(kWarn, "kafka client", {"client", name}, {"kind", facility}, {"text", text});
      return;
    case LogLevel::kInfo:
      POSTRIDER_LOG(kInfo, "kafka client", {"client", name}, {"kind", facility}, {"text", text});
      return;
    case LogLevel::kDebug:
      POSTRIDER_LOG(kDebug, "kafka client", {"client", name}, {"kind", facility}, {"text", text});
      return;
  }
}

absl::Status Set(rd_kafka_conf_t* conf, const std::string& name, const std::string& value) {
  char error[512] = "";
  if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error, sizeof(error)) ==
      RD_KAFKA_CONF_OK) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("kafka.properties: ", name, ": ", error));
}

absl::StatusCode CodeOf(rd_kafka_resp_err_t err) {
  switch (err) {
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
      return absl::StatusCode::kDeadlineExceeded;
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
      return absl::StatusCode::kNotFound;
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
      return absl::StatusCode::kOutOfRange;
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
    case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR_INVALID_PARTITIONS:
    case RD_KAFKA_RESP_ERR_INVALID_REPLICATION_FACTOR:
    case RD_KAFKA_RESP_ERR_INVALID_CONFIG:
    case RD_KAFKA_RESP_ERR_INVALID_REQUEST:
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE:
    case RD_KAFKA_RESP_ERR__INVALID_ARG:
      return absl::StatusCode::kInvalidArgument;
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<WakeFd>> WakeFd::Create() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "kafka: eventfd");
  return std::unique_ptr<WakeFd>(new WakeFd(fd));
}

absl::StatusOr<std::unique_ptr<WakeFd>> WakeFd::Copy() const {
  const int fd = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "kafka: copying an eventfd");
  return std::unique_ptr<WakeFd>(new WakeFd(fd));
}

WakeFd::~WakeFd() { close(fd_); }

void WakeFd::Signal() {
  const uint64_t one = 1;
  // It fails only when the counter is full, and then the fd is readable anyway.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

void WakeFd::Drain() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
}

void WakeFd::Attach(rd_kafka_queue_t* queue) {
  const uint64_t one = 1;
  rd_kafka_queue_io_event_enable(queue, fd_, &one, sizeof(one));
}

KafkaMetrics::KafkaMetrics(Metrics& metrics)
    : appends_failed(metrics.AddCounter("postrider_kafka_appends_failed_total",
                                        "Records that can never be written.")),
      producer_restarts(metrics.AddCounter("postrider_kafka_producer_restarts_total",
                                           "Producers made anew after a fatal error.")),
      commits_done(metrics.AddCounter("postrider_kafka_commits_total", "Commits by their result.",
                                      {{"result", "stored"}})),
      commits_failed(metrics.AddCounter("postrider_kafka_commits_total", "Commits by their result.",
                                        {{"result", "failed"}})),
      commits_fenced(metrics.AddCounter("postrider_kafka_commits_total", "Commits by their result.",
                                        {{"result", "fenced"}})),
      commit_seconds(
          metrics.AddHistogram("postrider_kafka_commit_seconds", "From a commit to its answer.",
                               {0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10})),
      assigned(metrics.AddCounter("postrider_kafka_rebalances_total",
                                  "What groups told their members here.", {{"kind", "assigned"}})),
      revoked(metrics.AddCounter("postrider_kafka_rebalances_total",
                                 "What groups told their members here.", {{"kind", "revoked"}})),
      lost(metrics.AddCounter("postrider_kafka_rebalances_total",
                              "What groups told their members here.", {{"kind", "lost"}})),
      out_of_range(metrics.AddCounter("postrider_kafka_out_of_range_total",
                                      "Positions found outside of the log.")),
      stale_records(metrics.AddCounter("postrider_kafka_stale_records_total",
                                       "Records dropped because they lay below the position.")),
      unreachable(metrics.AddGauge("postrider_kafka_unreachable_clients",
                                   "Members of groups whose brokers do not answer.")) {}

absl::Status CheckProperties(const ClientConfig& config) {
  for (const auto& [name, value] : config.properties) {
    const bool refused = std::find(std::begin(kRefused), std::end(kRefused),
                                   absl::string_view(name)) != std::end(kRefused) ||
                         absl::StartsWith(name, "test.mock.");
    if (refused) {
      return absl::InvalidArgumentError(absl::StrCat(
          "kafka.properties: ", name,
          " is refused: delivery without loss depends on it, or another option sets it"));
    }
  }
  return MakeConf(config, {}).status();
}

absl::StatusOr<ConfPtr> MakeConf(const ClientConfig& config, const Settings& own) {
  ConfPtr conf(rd_kafka_conf_new());
  RETURN_IF_ERROR(Set(conf.get(), "client.id", "postrider"));
  RETURN_IF_ERROR(Set(conf.get(), "socket.nagle.disable", "true"));
  // By default a client looks for a broker that came back only each ten seconds.
  RETURN_IF_ERROR(Set(conf.get(), "reconnect.backoff.max.ms", "1000"));
  for (const auto& [name, value] : config.properties) {
    RETURN_IF_ERROR(Set(conf.get(), name, value));
  }
  RETURN_IF_ERROR(Set(conf.get(), "bootstrap.servers", config.brokers));
  for (const auto& [name, value] : own) {
    // A default of ours that the operator may set otherwise begins with '?'.
    if (absl::StartsWith(name, "?")) {
      const std::string plain = name.substr(1);
      if (!config.properties.contains(plain)) RETURN_IF_ERROR(Set(conf.get(), plain, value));
    } else {
      RETURN_IF_ERROR(Set(conf.get(), name, value));
    }
  }
  rd_kafka_conf_set_log_cb(conf.get(), OnLog);
  return conf;
}

absl::StatusOr<ClientPtr> MakeClient(rd_kafka_type_t type, ConfPtr conf) {
  char error[512] = "";
  rd_kafka_t* client = rd_kafka_new(type, conf.get(), error, sizeof(error));
  if (client == nullptr) {
    const auto code = rd_kafka_last_error() == RD_KAFKA_RESP_ERR__INVALID_ARG
                          ? absl::StatusCode::kInvalidArgument
                          : absl::StatusCode::kInternal;
    return absl::Status(code, absl::StrCat("kafka: making a client: ", error));
  }
  [[maybe_unused]] rd_kafka_conf_t* taken_by_client = conf.release();
  return ClientPtr(client);
}

absl::Status ToStatus(rd_kafka_resp_err_t err, absl::string_view what, absl::string_view detail) {
  if (err == RD_KAFKA_RESP_ERR_NO_ERROR) return absl::OkStatus();
  return absl::Status(CodeOf(err), absl::StrCat("kafka: ", what, ": ", rd_kafka_err2str(err),
                                                detail.empty() ? "" : ": ", detail));
}

}  // namespace postrider::kafka_internal
