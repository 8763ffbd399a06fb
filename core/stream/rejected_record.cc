#include "core/stream/rejected_record.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace postrider {

std::string RejectedTopicName(absl::string_view prefix) { return absl::StrCat(prefix, "rejected"); }

TopicSpec RejectedTopic(absl::string_view prefix, int16_t replication) {
  TopicSpec spec;
  spec.name = RejectedTopicName(prefix);
  spec.partitions = 1;
  spec.replication = replication;
  spec.settings = {{"cleanup.policy", "delete"},
                   {"retention.ms", "604800000"},
                   {"min.insync.replicas", replication >= 3 ? "2" : "1"},
                   {"unclean.leader.election.enable", "false"}};
  return spec;
}

AppendRecord MakeRejectedRecord(std::string topic, Rejection rejection) {
  AppendRecord record;
  record.topic = std::move(topic);
  record.key = std::move(rejection.key);
  record.value = std::string(rejection.value.substr(0, rejection.value_bytes_max));
  const auto add = [&record](absl::string_view name, std::string value) {
    record.headers.emplace_back(std::string(name), std::move(value));
  };
  add("reason", std::string(rejection.reason));
  add("source", rejection.source.ToString());
  add("offset", absl::StrCat(rejection.offset));
  if (rejection.incarnation_ms) add("incarnation_ms", absl::StrCat(*rejection.incarnation_ms));
  if (rejection.timestamp) {
    add("timestamp_ms", absl::StrCat(MillisSinceEpoch(*rejection.timestamp)));
  }
  add("rejected_at_ms", absl::StrCat(MillisSinceEpoch(rejection.rejected_at)));
  add("value_bytes", absl::StrCat(rejection.value.size()));
  return record;
}

}  // namespace postrider
