#include "api/internal/endpoint_status_json.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/types/optional.h"
#include "core/json/time_text.h"

namespace postrider::api {
namespace {

using dlq::EndpointHealthState;
using dlq::EndpointStatus;

// The more it is worth knowing of one part, the higher.
int Weight(EndpointHealthState state) {
  switch (state) {
    case EndpointHealthState::kHealthy:
      return 0;
    case EndpointHealthState::kProbing:
      return 1;
    case EndpointHealthState::kDegraded:
      return 2;
    case EndpointHealthState::kPaused:
      return 3;
    case EndpointHealthState::kDisabled:
      return 4;
  }
  return 0;
}

JsonValue TimeToJson(const absl::optional<WallTime>& time) {
  return time ? JsonValue(FormatRfc3339(*time)) : JsonValue();
}
// What a customer could tell from the ms of it: how long a name or a connection took to fail.
JsonValue SecondToJson(const absl::optional<WallTime>& time) {
  return time ? JsonValue(FormatRfc3339(std::chrono::floor<std::chrono::seconds>(*time)))
              : JsonValue();
}
JsonValue TextToJson(const std::string& text) {
  return text.empty() ? JsonValue() : JsonValue(text);
}
template <typename T>
JsonValue NumberToJson(T number) {
  return number == 0 ? JsonValue() : JsonValue(number);
}
// 0 is no bound.
uint64_t Lower(uint64_t a, uint64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

// A part that has had no message since a person changed the endpoint may not have seen that.
bool IsOverruled(const subscriptions::Endpoint& endpoint, const EndpointStatus& part) {
  const subscriptions::EndpointSettings& desired = endpoint.settings;
  switch (part.state) {
    case EndpointHealthState::kPaused:
      return !desired.pause.by_customer && !desired.pause.by_operator;
    case EndpointHealthState::kDisabled:
      return part.auto_disabled_generation > 0 ? part.auto_disabled_generation < endpoint.generation
                                               : desired.enabled;
    default:
      return false;
  }
}

// The parts that the endpoint has, and those left over from a greater parallelism as long as they
// have a backlog.
std::vector<EndpointStatus> LivingParts(const subscriptions::Endpoint& endpoint,
                                        std::vector<EndpointStatus> parts) {
  if (parts.size() <= 1) return parts;
  const auto parallelism = static_cast<uint32_t>(endpoint.settings.parallelism);
  std::vector<EndpointStatus> living;
  for (EndpointStatus& part : parts) {
    if (part.part >= parallelism && part.backlog_messages == 0) continue;
    if (IsOverruled(endpoint, part)) {
      part.state = EndpointHealthState::kHealthy;
      part.reason.clear();
      part.auto_disabled_generation = 0;
    }
    living.push_back(std::move(part));
  }
  return living;
}

EndpointStatus Together(const std::vector<EndpointStatus>& parts) {
  EndpointStatus all = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    const EndpointStatus& part = parts[i];
    if (Weight(part.state) > Weight(all.state)) {
      all.state = part.state;
      all.reason = part.reason;
    }
    all.observed_at = std::max(all.observed_at, part.observed_at);
    all.held_until = std::max(all.held_until, part.held_until);
    if (!all.failing_since || (part.failing_since && *part.failing_since < *all.failing_since)) {
      all.failing_since = part.failing_since;
    }
    all.auto_disabled_generation =
        std::max(all.auto_disabled_generation, part.auto_disabled_generation);
    all.backlog_messages += part.backlog_messages;
    all.backlog_bytes += part.backlog_bytes;
    all.window += part.window;
    all.learned_events_max = Lower(all.learned_events_max, part.learned_events_max);
    all.learned_bytes_max = Lower(all.learned_bytes_max, part.learned_bytes_max);
    all.learned_messages_per_1000_seconds += part.learned_messages_per_1000_seconds;
    if (part.last_attempt_at > all.last_attempt_at) {
      all.last_attempt_at = part.last_attempt_at;
      all.last_outcome = part.last_outcome;
      all.last_status = part.last_status;
    }
    all.last_success_at = std::max(all.last_success_at, part.last_success_at);
  }
  return all;
}

}  // namespace

JsonValue StatusToJson(const subscriptions::Endpoint& endpoint,
                       const std::vector<EndpointStatus>& reported) {
  const std::vector<EndpointStatus> parts = LivingParts(endpoint, reported);
  const bool known = !parts.empty();
  const EndpointStatus status = known ? Together(parts) : EndpointStatus();
  // A request without an answer may be what is reported (RULES 4). With one, the receiver knows.
  const bool unanswered = std::any_of(
      parts.begin(), parts.end(), [](const EndpointStatus& part) { return part.last_status == 0; });
  JsonValue json = JsonValue::MakeObject({{"endpoint_id", endpoint.id.ToString()}});
  json.Set("state", known ? EndpointHealthStateName(status.state) : "unknown");
  json.Set("reason", TextToJson(status.reason));
  json.Set("auto_disabled_generation", NumberToJson(status.auto_disabled_generation));
  json.Set("held_until", TimeToJson(status.held_until));
  json.Set("failing_since", SecondToJson(status.failing_since));
  json.Set("backlog", JsonValue::MakeObject(
                          {{"messages", known ? JsonValue(status.backlog_messages) : JsonValue()},
                           {"bytes", known ? JsonValue(status.backlog_bytes) : JsonValue()}}));
  json.Set("window", NumberToJson(status.window));
  JsonValue rate;
  if (status.learned_messages_per_1000_seconds > 0) {
    rate = static_cast<double>(status.learned_messages_per_1000_seconds) / 1000;
  }
  json.Set("learned",
           JsonValue::MakeObject({{"events_max", NumberToJson(status.learned_events_max)},
                                  {"bytes_max", NumberToJson(status.learned_bytes_max)},
                                  {"messages_per_second", std::move(rate)}}));
  json.Set("last_outcome", TextToJson(status.last_outcome));
  json.Set("last_status", NumberToJson(status.last_status));
  json.Set("last_attempt_at", status.last_status == 0 ? SecondToJson(status.last_attempt_at)
                                                      : TimeToJson(status.last_attempt_at));
  json.Set("last_success_at", TimeToJson(status.last_success_at));
  absl::optional<WallTime> updated_at;
  if (known) updated_at = status.observed_at;
  json.Set("updated_at", unanswered ? SecondToJson(updated_at) : TimeToJson(updated_at));
  return json;
}

}  // namespace postrider::api
