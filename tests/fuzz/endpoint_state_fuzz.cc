// What a worker keeps of an endpoint in durable state, as its successor reads it.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/stream/keyed_state.h"
#include "delivery/backlog_state.h"
#include "delivery/endpoint_health.h"
#include "delivery/learned_record.h"
#include "delivery/operational_teller.h"
#include "delivery/outcome.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/ids.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using delivery::BatchAttempts;
using delivery::BatchMember;
using delivery::HealthRecord;
using delivery::LearnedRecord;
using delivery::OperationalRecord;

constexpr MonotonicTime kNow{std::chrono::hours(1'000)};

// What decodes is written so that it is read as the same.
template <typename T>
absl::optional<T> Decode(const StateSerializer<T>& serializer, absl::string_view bytes,
                         uint32_t version) {
  const absl::optional<T> value = serializer.decode(bytes, version);
  if (!value) return absl::nullopt;
  POSTRIDER_CHECK(serializer.decode(serializer.encode(*value, version), version) == value);
  return value;
}

// What was encoded decodes to the same, and not when it is cut or longer.
template <typename T>
void EncodeAndDecode(const StateSerializer<T>& serializer, const T& value, uint32_t version) {
  const std::string bytes = serializer.encode(value, version);
  POSTRIDER_CHECK(serializer.decode(bytes, version) == value);
  for (size_t size = 0; size < bytes.size(); ++size) {
    POSTRIDER_CHECK(serializer.decode(absl::string_view(bytes).substr(0, size), version) != value);
  }
  POSTRIDER_CHECK(!serializer.decode(bytes + '\0' + '\0', version));
}

void UseHealth(const HealthRecord& record, WallTime wall) {
  const delivery::HealthOptions options;
  delivery::EndpointHealth health(options);
  health.Restore(record, kNow, wall);
  POSTRIDER_CHECK(health.record() == record);
  // No rest is longer than those that we make.
  const absl::optional<MonotonicTime> start = health.MayStartAt();
  POSTRIDER_CHECK(!start || *start <= kNow + std::chrono::minutes(2));
  const Duration age = std::chrono::hours(48);
  const Duration paused = health.PausedSince(kNow - age, kNow, wall);
  POSTRIDER_CHECK(paused >= Duration::zero() &&
                  paused <= age * static_cast<int>(HealthRecord::kPausesMax));
}

void UseLearned(const LearnedRecord& record, const LearnedRecord& other, WallTime wall) {
  static_cast<void>(WorthWriting(record, other));
  const delivery::LearnedLimits limits = LimitsOf(record, kNow, wall);
  const LearnedRecord again = RecordOf(limits, record.generation, kNow, wall);
  POSTRIDER_CHECK(again.events_max == 0 || again.events_max == record.events_max);
  POSTRIDER_CHECK(again.bytes_max == 0 || again.bytes_max == record.bytes_max);
  POSTRIDER_CHECK(!limits.events_max || limits.events_until <= kNow + delivery::kLearnedFor);
}

void UseOperational(const OperationalRecord& record, WallTime wall) {
  delivery::OperationalTeller teller;
  teller.Restore(record);
  delivery::OperationalFacts facts;
  facts.well = true;
  facts.backlog_bytes_max = 1;
  const auto* event =
      teller.Next(delivery::OperationalOptions(), subscriptions::EndpointId(), facts, kNow, wall);
  POSTRIDER_CHECK((event != nullptr) == (record.health != OperationalRecord::Health::kWell));
}

void UseAttempts(const BatchAttempts& attempts, WallTime wall) {
  const Duration left = LeftUntilDue(attempts, wall);
  POSTRIDER_CHECK(left >= Duration::zero() && left <= std::chrono::hours(24));
}

WallTime Time(Input& in) { return WallTimeFromMillis(in.Signed()); }

// Of the years that a clock may say.
WallTime Wall(Input& in) {
  return WallTimeFromMillis(static_cast<int64_t>(in.UpTo(253'402'300'799'999)));
}

HealthRecord MakeHealth(Input& in) {
  HealthRecord record;
  record.destination = in.Number();
  record.generation = in.Number();
  record.answered = in.Flag();
  record.failing_since = Time(in);
  record.opened = static_cast<uint32_t>(in.UpTo(1'000'000));
  record.open_until = Time(in);
  record.held_until = Time(in);
  record.disabled = static_cast<delivery::DisableReason>(
      in.UpTo(static_cast<uint64_t>(delivery::DisableReason::kFailing)));
  record.disabled_generation = in.Number();
  record.disabled_at = Time(in);
  record.warned = static_cast<uint32_t>(in.UpTo(4));
  for (uint64_t pauses = in.UpTo(HealthRecord::kPausesMax); pauses > 0; --pauses) {
    record.pauses.push_back({Time(in), Time(in)});
  }
  return record;
}

LearnedRecord MakeLearned(Input& in) {
  LearnedRecord record;
  record.generation = in.Number();
  record.events_max = in.Between(0, subscriptions::BatchSettings::kEventsMost);
  record.bytes_max = in.Between(0, INT64_MAX);
  record.messages_per_1000_seconds = in.Between(0, 1'000'000);
  record.events_until = Time(in);
  record.bytes_until = Time(in);
  record.rate_until = Time(in);
  return record;
}

OperationalRecord MakeOperational(Input& in) {
  OperationalRecord record;
  record.health = static_cast<OperationalRecord::Health>(in.UpTo(2));
  record.warned = static_cast<uint32_t>(in.UpTo(4));
  record.generation = in.Number();
  record.since = Time(in);
  record.backlog = static_cast<uint32_t>(in.UpTo(100));
  record.backlog_since = Time(in);
  record.letters_since = Time(in);
  record.secret_ends = Time(in);
  return record;
}

BatchAttempts MakeAttempts(Input& in) {
  BatchAttempts attempts;
  attempts.attempts = static_cast<uint32_t>(in.UpTo(1'000'000));
  attempts.tries = static_cast<uint32_t>(in.UpTo(1'000'000));
  attempts.first_try = Time(in);
  attempts.due = Time(in);
  attempts.last_outcome = static_cast<uint32_t>(in.UpTo(delivery::kOutcomeKinds - 1));
  attempts.last_status = static_cast<int32_t>(in.UpTo(999));
  if (in.Flag()) attempts.set_at = Time(in);
  return attempts;
}

std::vector<BatchMember> MakeMembers(Input& in) {
  std::vector<BatchMember> members;
  for (uint64_t count = in.UpTo(8); count > 0; --count) {
    BatchMember member;
    member.order = in.Number();
    member.digest = in.Id();
    member.bytes = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
    members.push_back(member);
  }
  return members;
}

void FromBytes(absl::string_view bytes) {
  Input in(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const uint64_t state = in.UpTo(5);
  const WallTime wall = Wall(in);
  switch (state) {
    case 0:
      if (const auto record = Decode(delivery::HealthSerializer(), in.rest(), 1)) {
        UseHealth(*record, wall);
      }
      return;
    case 1:
      if (const auto record = Decode(delivery::LearnedSerializer(), in.rest(), 1)) {
        UseLearned(*record, LearnedRecord(), wall);
      }
      return;
    case 2:
      if (const auto record = Decode(delivery::OperationalSerializer(), in.rest(), 1)) {
        UseOperational(*record, wall);
      }
      return;
    case 3:
      for (const uint32_t version : {1u, 2u}) {
        const auto attempts = Decode(delivery::BatchAttemptsSerializer(), in.rest(), version);
        if (attempts) UseAttempts(*attempts, wall);
      }
      return;
    case 4:
      Decode(delivery::BatchMembersSerializer(), in.rest(), 1);
      return;
    default:
      Decode(delivery::HasBacklogSerializer(), in.rest(), 1);
  }
}

void FromValues(Input in) {
  const uint64_t state = in.UpTo(5);
  const WallTime wall = Wall(in);
  switch (state) {
    case 0: {
      const HealthRecord record = MakeHealth(in);
      // Records without a generation end before it, so that one of 0 may be cut off.
      if (record.generation > 0) EncodeAndDecode(delivery::HealthSerializer(), record, 1);
      return UseHealth(record, wall);
    }
    case 1: {
      const LearnedRecord record = MakeLearned(in);
      EncodeAndDecode(delivery::LearnedSerializer(), record, 1);
      return UseLearned(record, MakeLearned(in), wall);
    }
    case 2: {
      const OperationalRecord record = MakeOperational(in);
      EncodeAndDecode(delivery::OperationalSerializer(), record, 1);
      return UseOperational(record, wall);
    }
    case 3: {
      BatchAttempts attempts = MakeAttempts(in);
      EncodeAndDecode(delivery::BatchAttemptsSerializer(), attempts, 2);
      UseAttempts(attempts, wall);
      // What version 1 has no word for is another failure there, which no retry depends on.
      const auto serializer = delivery::BatchAttemptsSerializer();
      const auto old = serializer.decode(serializer.encode(attempts, 1), 1);
      POSTRIDER_CHECK(old.has_value());
      attempts.set_at.reset();
      attempts.last_outcome = old->last_outcome;
      POSTRIDER_CHECK(*old == attempts);
      return UseAttempts(*old, wall);
    }
    case 4:
      return EncodeAndDecode(delivery::BatchMembersSerializer(), MakeMembers(in), 1);
    default:
      return EncodeAndDecode(delivery::HasBacklogSerializer(), in.Flag(), 1);
  }
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  FromBytes(View(data, size));
  FromValues(Input(data, size));
  return 0;
}
