#include "delivery/operational_teller.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "core/json/json.h"
#include "core/json/time_text.h"
#include "delivery/endpoint_timers.h"

namespace postrider::delivery {
namespace {

using subscriptions::EndpointId;
using Health = OperationalRecord::Health;

constexpr std::chrono::hours kLettersSpan{1};

std::string EncodeOperational(const OperationalRecord& record, uint32_t) {
  ByteWriter out;
  out.U8(static_cast<uint8_t>(record.health));
  out.Varint(record.warned);
  out.Varint(record.generation);
  out.Zigzag(MillisSinceEpoch(record.since));
  out.Varint(record.backlog);
  out.Zigzag(MillisSinceEpoch(record.backlog_since));
  out.Zigzag(MillisSinceEpoch(record.letters_since));
  out.Zigzag(MillisSinceEpoch(record.secret_ends));
  return out.Take();
}

absl::optional<OperationalRecord> DecodeOperational(absl::string_view bytes, uint32_t) {
  constexpr uint64_t kWarnedMax = 4;
  constexpr uint64_t kPercentMax = 100;
  ByteReader in(bytes);
  OperationalRecord record;
  const uint8_t health = in.U8();
  const uint64_t warned = in.Varint();
  record.generation = in.Varint();
  record.since = WallTimeFromMillis(in.Zigzag());
  const uint64_t backlog = in.Varint();
  record.backlog_since = WallTimeFromMillis(in.Zigzag());
  record.letters_since = WallTimeFromMillis(in.Zigzag());
  record.secret_ends = WallTimeFromMillis(in.Zigzag());
  if (!in.done() || health > static_cast<uint8_t>(Health::kDisabled) || warned > kWarnedMax ||
      backlog > kPercentMax) {
    return absl::nullopt;
  }
  record.health = static_cast<Health>(health);
  record.warned = static_cast<uint32_t>(warned);
  record.backlog = static_cast<uint32_t>(backlog);
  return record;
}

JsonValue TimeOrNull(const absl::optional<WallTime>& time) {
  return time ? JsonValue(FormatRfc3339(*time)) : JsonValue();
}

// What every event says of the last attempt.
void SetLastAttempt(const OperationalFacts& facts, JsonValue* data) {
  data->Set("last_outcome",
            facts.last_outcome.empty() ? JsonValue() : JsonValue(facts.last_outcome));
  data->Set("last_status", facts.last_status > 0 ? JsonValue(facts.last_status) : JsonValue());
}

double PercentOf(const OperationalFacts& facts, WallTime wall) {
  double percent = 0;
  if (facts.backlog_bytes_max > 0) {
    percent = 100.0 * static_cast<double>(facts.backlog_bytes) /
              static_cast<double>(facts.backlog_bytes_max);
  }
  if (facts.backlog_oldest && facts.backlog_age_max > Duration::zero()) {
    percent = std::max(percent, 100.0 * Seconds(Age(wall, *facts.backlog_oldest)) /
                                    Seconds(facts.backlog_age_max));
  }
  return percent;
}

}  // namespace

void OperationalOptions::Register(Options& options) {
  options.Add("operational.dead_letters", &dead_letters, 1, 1'000'000,
              "A customer is told by the event dead_letters.threshold when so many messages of an "
              "endpoint were given up within an hour.");
}

OperationalMetrics::OperationalMetrics(Metrics& metrics)
    : told(metrics.AddCounter("postrider_delivery_operational_events_total",
                              "Events by which customers were told of their endpoints")),
      failures(metrics.AddCounter("postrider_delivery_operational_event_failures_total",
                                  "Such events that the log did not take; they are told again")) {}

StateSerializer<OperationalRecord> OperationalSerializer() {
  StateSerializer<OperationalRecord> serializer;
  serializer.encode = EncodeOperational;
  serializer.decode = DecodeOperational;
  return serializer;
}

bool OperationalTeller::TakeChanged() { return std::exchange(changed_, false); }

void OperationalTeller::OnDeadLetters(uint64_t letters, MonotonicTime now, WallTime wall) {
  if (!letters_from_) {
    letters_from_ = now;
    letters_wall_ = wall;
  }
  letters_ += letters;
}

bool OperationalTeller::CountsAt(MonotonicTime now) const {
  return letters_from_ && now - *letters_from_ < kLettersSpan;
}

const OperationalTeller::Event* OperationalTeller::Next(const OperationalOptions& options,
                                                        EndpointId endpoint,
                                                        const OperationalFacts& facts,
                                                        MonotonicTime now, WallTime wall) {
  if (sent_) return nullptr;
  if (next_) return &*next_;
  after_ = told_;
  next_ = NextHealth(endpoint, facts, wall);
  if (!next_) next_ = NextBacklog(endpoint, facts, wall);
  if (!next_) next_ = NextLetters(options, endpoint, now, wall);
  return next_ ? &*next_ : nullptr;
}

void OperationalTeller::OnAnswer(bool acknowledged) {
  sent_ = false;
  if (!acknowledged) return;
  next_.reset();
  // A secret may have been told of meanwhile.
  after_.secret_ends = told_.secret_ends;
  told_ = after_;
  changed_ = true;
}

absl::optional<OperationalTeller::Event> OperationalTeller::NextHealth(
    EndpointId endpoint, const OperationalFacts& facts, WallTime wall) {
  JsonValue data = JsonValue::MakeObject({{"endpoint_id", endpoint.ToString()}});
  if (facts.disabled != DisableReason::kNone) {
    if (told_.health == Health::kDisabled && told_.generation == facts.disabled_generation) {
      return absl::nullopt;
    }
    data.Set("reason", facts.disabled == DisableReason::kGone ? "gone" : "failing");
    data.Set("disabled_at", FormatRfc3339(facts.disabled_at));
    data.Set("failing_since", TimeOrNull(facts.failing_since));
    SetLastAttempt(facts, &data);
    after_.health = Health::kDisabled;
    after_.warned = 0;
    after_.generation = facts.disabled_generation;
    after_.since = facts.disabled_at;
    return Event{"endpoint.disabled", absl::StrCat("g", facts.disabled_generation),
                 data.Serialize()};
  }
  if (facts.stopped) return absl::nullopt;
  if (facts.failing) {
    const bool again = told_.health == Health::kDegraded;
    if (again && facts.warned <= told_.warned) return absl::nullopt;
    const WallTime since = again ? told_.since : facts.failing_since.value_or(wall);
    data.Set("failing_since", FormatRfc3339(since));
    data.Set("disables_at", FormatRfc3339(facts.disables_at));
    data.Set("percent", 25 * std::min<uint32_t>(facts.warned, 3));
    SetLastAttempt(facts, &data);
    after_.health = Health::kDegraded;
    after_.warned = facts.warned;
    after_.generation = 0;
    after_.since = since;
    return Event{"endpoint.degraded", absl::StrCat(MillisSinceEpoch(since), "/", facts.warned),
                 data.Serialize()};
  }
  if (!facts.well || told_.health == Health::kWell) return absl::nullopt;
  data.Set("was", told_.health == Health::kDisabled ? "disabled" : "degraded");
  data.Set("since", FormatRfc3339(told_.since));
  after_.health = Health::kWell;
  after_.warned = 0;
  after_.generation = 0;
  after_.since = WallTime();
  return Event{"endpoint.recovered",
               absl::StrCat(MillisSinceEpoch(told_.since), "/g", told_.generation),
               data.Serialize()};
}

absl::optional<OperationalTeller::Event> OperationalTeller::NextBacklog(
    EndpointId endpoint, const OperationalFacts& facts, WallTime wall) {
  const double percent = PercentOf(facts, wall);
  if (told_.backlog > 0 && percent < kBacklogForgotten) {
    told_.backlog = 0;
    told_.backlog_since = WallTime();
    after_ = told_;
    changed_ = true;
  }
  uint32_t level = 0;
  for (const uint32_t one : kBacklogPercents) {
    if (percent >= one) level = one;
  }
  if (level <= told_.backlog) return absl::nullopt;
  after_.backlog = level;
  after_.backlog_since = told_.backlog > 0 ? told_.backlog_since : wall;
  JsonValue data = JsonValue::MakeObject({{"endpoint_id", endpoint.ToString()},
                                          {"percent", level},
                                          {"messages", facts.backlog_messages},
                                          {"bytes", facts.backlog_bytes},
                                          {"bytes_max", facts.backlog_bytes_max}});
  data.Set("oldest_at", TimeOrNull(facts.backlog_oldest));
  data.Set("age_max_ms",
           std::chrono::duration_cast<std::chrono::milliseconds>(facts.backlog_age_max).count());
  return Event{"backlog.threshold",
               absl::StrCat(MillisSinceEpoch(after_.backlog_since), "/", level), data.Serialize()};
}

// Told once; an hour with fewer ends it.
absl::optional<OperationalTeller::Event> OperationalTeller::NextLetters(
    const OperationalOptions& options, EndpointId endpoint, MonotonicTime now, WallTime wall) {
  const bool told = told_.letters_since != WallTime();
  const bool many = letters_ >= static_cast<uint64_t>(options.dead_letters);
  if (letters_from_ && many && !told) {
    after_.letters_since = letters_wall_;
    const JsonValue data = JsonValue::MakeObject({{"endpoint_id", endpoint.ToString()},
                                                  {"dead_letters", letters_},
                                                  {"since", FormatRfc3339(letters_wall_)}});
    return Event{"dead_letters.threshold", absl::StrCat(MillisSinceEpoch(letters_wall_)),
                 data.Serialize()};
  }
  if (letters_from_ && !CountsAt(now)) {
    if (told && !many) {
      told_.letters_since = WallTime();
      after_ = told_;
      changed_ = true;
    }
    letters_from_.reset();
    letters_ = 0;
  }
  if (!letters_from_ && told_.letters_since != WallTime()) {
    letters_from_ = now;
    letters_wall_ = wall;
  }
  return absl::nullopt;
}

OperationalTeller::Event OperationalTeller::SecretEvent(EndpointId endpoint, WallTime ends) {
  const JsonValue data = JsonValue::MakeObject(
      {{"endpoint_id", endpoint.ToString()}, {"expires_at", FormatRfc3339(ends)}});
  return Event{"secret.expiring", absl::StrCat(MillisSinceEpoch(ends)), data.Serialize()};
}

void OperationalTeller::OnSecretTold(WallTime ends) {
  told_.secret_ends = ends;
  changed_ = true;
}

}  // namespace postrider::delivery
