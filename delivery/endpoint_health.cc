#include "delivery/endpoint_health.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "core/base/bytes.h"
#include "core/crypto/digest.h"
#include "delivery/endpoint_timers.h"

namespace postrider::delivery {
namespace {

// So many failures in a row make an endpoint degraded, before its breaker opens.
constexpr int kDegradedFailures = 3;
// A predecessor's clock may have been wrong: no rest that it began lasts longer.
constexpr std::chrono::minutes kRestMax{2};
// A pause that ended so long ago matters to no message: no horizon is longer.
constexpr std::chrono::hours kPauseKept{24 * 14};

std::string EncodeHealth(const HealthRecord& record, uint32_t) {
  ByteWriter out;
  out.U64(record.destination);
  out.U8(record.answered ? 1 : 0);
  out.Zigzag(MillisSinceEpoch(record.failing_since));
  out.Varint(record.opened);
  out.Zigzag(MillisSinceEpoch(record.open_until));
  out.Zigzag(MillisSinceEpoch(record.held_until));
  out.U8(static_cast<uint8_t>(record.disabled));
  out.Varint(record.disabled_generation);
  out.Zigzag(MillisSinceEpoch(record.disabled_at));
  out.Varint(record.warned);
  out.Varint(record.pauses.size());
  for (const HealthRecord::Pause& pause : record.pauses) {
    out.Zigzag(MillisSinceEpoch(pause.from));
    out.Zigzag(MillisSinceEpoch(pause.until));
  }
  out.Varint(record.generation);
  return out.Take();
}

absl::optional<HealthRecord> DecodeHealth(absl::string_view bytes, uint32_t) {
  constexpr uint64_t kOpenedMax = 1'000'000;
  constexpr uint64_t kWarnedMax = 4;
  ByteReader in(bytes);
  HealthRecord record;
  record.destination = in.U64();
  const uint8_t answered = in.U8();
  record.failing_since = WallTimeFromMillis(in.Zigzag());
  const uint64_t opened = in.Varint();
  record.open_until = WallTimeFromMillis(in.Zigzag());
  record.held_until = WallTimeFromMillis(in.Zigzag());
  const uint8_t disabled = in.U8();
  record.disabled_generation = in.Varint();
  record.disabled_at = WallTimeFromMillis(in.Zigzag());
  const uint64_t warned = in.Varint();
  const uint64_t pauses = in.Varint();
  if (!in.ok() || answered > 1 || opened > kOpenedMax ||
      disabled > static_cast<uint8_t>(DisableReason::kFailing) || warned > kWarnedMax ||
      pauses > HealthRecord::kPausesMax) {
    return absl::nullopt;
  }
  for (uint64_t i = 0; i < pauses; ++i) {
    HealthRecord::Pause pause;
    pause.from = WallTimeFromMillis(in.Zigzag());
    pause.until = WallTimeFromMillis(in.Zigzag());
    record.pauses.push_back(pause);
  }
  // The first records ended here.
  if (!in.done()) record.generation = in.Varint();
  if (!in.done()) return absl::nullopt;
  record.answered = answered == 1;
  record.opened = static_cast<uint32_t>(opened);
  record.disabled = static_cast<DisableReason>(disabled);
  record.warned = static_cast<uint32_t>(warned);
  return record;
}

WallTime Later(WallTime wall, Duration by) {
  return wall + std::chrono::ceil<std::chrono::milliseconds>(std::max(by, Duration::zero()));
}

}  // namespace

StateSerializer<HealthRecord> HealthSerializer() {
  StateSerializer<HealthRecord> serializer;
  serializer.encode = EncodeHealth;
  serializer.decode = DecodeHealth;
  return serializer;
}

uint64_t DestinationOf(const subscriptions::Endpoint& endpoint) {
  const subscriptions::EndpointSettings& settings = endpoint.settings;
  ByteWriter out;
  out.String(settings.url);
  out.U8(static_cast<uint8_t>(settings.auth.kind));
  out.String(settings.auth.name);
  out.String(settings.auth.token_url);
  out.String(settings.auth.scope);
  out.String(endpoint.auth_sealed);
  out.String(settings.tls.ca_pem);
  out.String(settings.tls.certificate_pem);
  out.String(endpoint.tls_key_sealed);
  const Sha256Digest digest = Sha256(out.bytes());
  return ByteReader(DigestView(digest)).U64();
}

absl::string_view HealthStateName(HealthState state) {
  switch (state) {
    case HealthState::kHealthy:
      return "healthy";
    case HealthState::kDegraded:
      return "degraded";
    case HealthState::kProbing:
      return "probing";
    case HealthState::kPaused:
      return "paused";
    case HealthState::kDisabled:
      return "disabled";
  }
  return "unknown";
}

void EndpointHealth::Restore(const HealthRecord& record, MonotonicTime now, WallTime wall) {
  record_ = record;
  if (record.opened > 0) {
    const Duration left = std::min<Duration>(Age(record.open_until, wall), kRestMax);
    breaker_.Restore(now + left, static_cast<int>(record.opened));
  }
  if (record.failing_since != WallTime()) failing_since_ = now - Age(wall, record.failing_since);
}

bool EndpointHealth::TakeChanged() { return std::exchange(changed_, false); }

// Whatever was observed of a receiver that is another one now, or that a person has put right.
void EndpointHealth::Clear() {
  breaker_.Reset();
  recovering_ = false;
  failing_since_.reset();
  HealthRecord cleared;
  cleared.destination = record_.destination;
  cleared.generation = record_.generation;
  cleared.pauses = std::move(record_.pauses);
  cleared.disabled = record_.disabled;
  cleared.disabled_generation = record_.disabled_generation;
  cleared.disabled_at = record_.disabled_at;
  record_ = std::move(cleared);
  Touch();
}

EndpointHealth::Change EndpointHealth::OnDesired(const subscriptions::Endpoint& endpoint,
                                                 WallTime wall) {
  const bool was_stopped = known_ && stopped();
  const bool was_enabled = enabled_;
  Change change;
  const uint64_t destination = DestinationOf(endpoint);
  if (record_.destination != destination) {
    // Nothing was observed of one that is met for the first time.
    const bool first = record_.destination == 0;
    change.cleared = !first && record_.generation != endpoint.generation;
    if (change.cleared) Clear();
    record_.destination = destination;
    if (!first) Touch();
  }
  if (std::exchange(record_.generation, endpoint.generation) != endpoint.generation && failing()) {
    Touch();
  }
  const subscriptions::EndpointSettings& settings = endpoint.settings;
  paused_ = settings.pause.by_customer || settings.pause.by_operator;
  enabled_ = settings.enabled;
  const bool overruled =
      record_.disabled != DisableReason::kNone && endpoint.generation > record_.disabled_generation;
  if (overruled) {
    record_.disabled = DisableReason::kNone;
    record_.disabled_generation = 0;
    record_.disabled_at = WallTime();
  }
  if (overruled || (known_ && enabled_ && !was_enabled)) {
    Clear();
    change.cleared = true;
  }
  OnPaused(paused_ || !enabled_, wall);
  change.stopped = stopped() && !was_stopped;
  change.resumed = was_stopped && !stopped();
  generation_ = endpoint.generation;
  known_ = true;
  return change;
}

void EndpointHealth::OnPaused(bool paused, WallTime wall) {
  std::vector<HealthRecord::Pause>& pauses = record_.pauses;
  const bool was = !pauses.empty() && pauses.back().until == WallTime();
  if (paused == was) return;
  Touch();
  if (!paused) {
    pauses.back().until = std::max(wall, pauses.back().from + std::chrono::milliseconds(1));
    return;
  }
  std::erase_if(pauses, [wall](const HealthRecord::Pause& pause) {
    return Age(wall, pause.until) > kPauseKept;
  });
  if (pauses.size() == HealthRecord::kPausesMax) {
    // The time between the two oldest counts as a pause as well.
    pauses[1].from = pauses[0].from;
    pauses.erase(pauses.begin());
  }
  pauses.push_back({wall, WallTime()});
}

Duration EndpointHealth::PausedSince(MonotonicTime since, MonotonicTime now, WallTime wall) const {
  const WallTime from = wall - std::chrono::duration_cast<std::chrono::milliseconds>(now - since);
  Duration paused{};
  for (const HealthRecord::Pause& pause : record_.pauses) {
    const WallTime until = pause.until == WallTime() ? wall : std::min(pause.until, wall);
    paused += Age(until, std::max(pause.from, from));
  }
  return paused;
}

// What the breaker has come to, for a successor.
void EndpointHealth::Remember(MonotonicTime now, WallTime wall) {
  record_.opened = static_cast<uint32_t>(breaker_.opened());
  record_.open_until = failing() ? Later(wall, breaker_.open_until() - now) : WallTime();
  record_.failing_since =
      failing_since_
          ? wall - std::chrono::duration_cast<std::chrono::milliseconds>(now - *failing_since_)
          : WallTime();
  Touch();
}

EndpointHealth::Judgement EndpointHealth::OnOutcome(const Outcome& outcome, bool probe,
                                                    MonotonicTime now, WallTime wall,
                                                    Random& random) {
  Judgement judgement;
  switch (outcome.breaker) {
    case BreakerEffect::kSuccess: {
      judgement.closed = breaker_.OnSuccess(now, probe);
      if (judgement.closed) {
        recovering_ = true;
        closed_at_ = now;
      }
      failing_since_.reset();
      if (!record_.answered || judgement.closed || record_.failing_since != WallTime()) {
        record_.answered = true;
        record_.warned = 0;
        Remember(now, wall);
      }
      break;
    }
    case BreakerEffect::kNeutral:
      breaker_.OnNeutral(now, probe);
      break;
    case BreakerEffect::kOutage:
      breaker_.OnOutage(now, probe, random);
      break;
    case BreakerEffect::kFailure: {
      if (!failing_since_) failing_since_ = now;
      judgement.opened = breaker_.OnFailure(now, probe, random);
      if (judgement.opened) Remember(now, wall);
      if (!failing() || stopped()) break;
      const Duration failed = now - *failing_since_;
      const auto quarters = static_cast<uint32_t>(
          std::min<Duration::rep>(failed / (options_->auto_disable_after / 4), 4));
      if (quarters > record_.warned) {
        record_.warned = quarters;
        judgement.warned = quarters < 4;
        Touch();
        if (quarters == 4) {
          Disable(DisableReason::kFailing, wall);
          judgement.disabled = true;
        }
      }
      break;
    }
  }
  if (outcome.disable != DisableReason::kNone && record_.disabled == DisableReason::kNone) {
    Disable(outcome.disable, wall);
    judgement.disabled = true;
  }
  return judgement;
}

void EndpointHealth::Disable(DisableReason reason, WallTime wall) {
  record_.disabled = reason;
  record_.disabled_generation = generation_;
  record_.disabled_at = wall;
  Touch();
}

bool EndpointHealth::OnDisabledElsewhere(DisableReason reason, uint64_t generation, WallTime at) {
  if (generation < generation_) return false;  // overruled already
  if (record_.disabled != DisableReason::kNone && record_.disabled_generation >= generation) {
    return false;
  }
  record_.disabled = reason;
  record_.disabled_generation = generation;
  record_.disabled_at = at;
  Touch();
  return true;
}

void EndpointHealth::OnHeld(MonotonicTime until, MonotonicTime now, WallTime wall) {
  constexpr std::chrono::seconds kWorthWriting{1};
  const WallTime held = Later(wall, until - now);
  if (until - now < kWorthWriting || Age(held, record_.held_until) < kWorthWriting) return;
  record_.held_until = held;
  Touch();
}

bool EndpointHealth::well(MonotonicTime now) const {
  constexpr std::chrono::minutes kSlowStart{1};
  const HealthState is = state();
  return record_.answered && (is == HealthState::kHealthy ||
                              (is == HealthState::kProbing && now - closed_at_ >= kSlowStart));
}

HealthState EndpointHealth::state() const {
  if (!enabled_ || record_.disabled != DisableReason::kNone) return HealthState::kDisabled;
  if (paused_) return HealthState::kPaused;
  if (failing() || breaker_.failures_in_a_row() >= kDegradedFailures) return HealthState::kDegraded;
  return recovering_ ? HealthState::kProbing : HealthState::kHealthy;
}

}  // namespace postrider::delivery
