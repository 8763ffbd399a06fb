#include "delivery/learned_record.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/bytes.h"
#include "delivery/endpoint_timers.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using subscriptions::BatchSettings;
using subscriptions::LimitSettings;

constexpr double kRateUnit = 1'000;
constexpr auto kRateMost = static_cast<int64_t>(LimitSettings::kRateMost * kRateUnit);

std::string Encode(const LearnedRecord& record, uint32_t) {
  ByteWriter out;
  out.Varint(record.generation);
  out.Varint(static_cast<uint64_t>(record.events_max));
  out.Varint(static_cast<uint64_t>(record.bytes_max));
  out.Varint(static_cast<uint64_t>(record.messages_per_1000_seconds));
  out.Zigzag(MillisSinceEpoch(record.events_until));
  out.Zigzag(MillisSinceEpoch(record.bytes_until));
  out.Zigzag(MillisSinceEpoch(record.rate_until));
  return out.Take();
}

absl::optional<LearnedRecord> Decode(absl::string_view bytes, uint32_t) {
  ByteReader in(bytes);
  LearnedRecord record;
  record.generation = in.Varint();
  const uint64_t events = in.Varint();
  const uint64_t size = in.Varint();
  const uint64_t rate = in.Varint();
  record.events_until = WallTimeFromMillis(in.Zigzag());
  record.bytes_until = WallTimeFromMillis(in.Zigzag());
  record.rate_until = WallTimeFromMillis(in.Zigzag());
  if (!in.ok() || !in.done() || events > static_cast<uint64_t>(BatchSettings::kEventsMost) ||
      size > static_cast<uint64_t>(INT64_MAX) || rate > static_cast<uint64_t>(kRateMost)) {
    return absl::nullopt;
  }
  record.events_max = static_cast<int64_t>(events);
  record.bytes_max = static_cast<int64_t>(size);
  record.messages_per_1000_seconds = static_cast<int64_t>(rate);
  return record;
}

WallTime Until(MonotonicTime until, MonotonicTime now, WallTime wall) {
  return wall + std::chrono::ceil<milliseconds>(std::max(until - now, Duration::zero()));
}

MonotonicTime Left(WallTime until, MonotonicTime now, WallTime wall) {
  if (until <= wall) return now;
  const milliseconds left = until - wall;
  return left > kLearnedFor ? now + kLearnedFor : now + left;
}

bool LastsLonger(WallTime until, WallTime stored) {
  return Age(until, stored) >= std::chrono::hours(1);
}

}  // namespace

StateSerializer<LearnedRecord> LearnedSerializer() {
  StateSerializer<LearnedRecord> serializer;
  serializer.encode = Encode;
  serializer.decode = Decode;
  return serializer;
}

LearnedRecord RecordOf(const LearnedLimits& learned, uint64_t generation, MonotonicTime now,
                       WallTime wall) {
  LearnedRecord record;
  if (!learned.any()) return record;
  record.generation = generation;
  if (learned.events_max) {
    record.events_max = *learned.events_max;
    record.events_until = Until(learned.events_until, now, wall);
  }
  if (learned.bytes_max) {
    record.bytes_max = *learned.bytes_max;
    record.bytes_until = Until(learned.bytes_until, now, wall);
  }
  if (learned.messages_per_second) {
    record.messages_per_1000_seconds =
        std::min<int64_t>(std::llround(*learned.messages_per_second * kRateUnit), kRateMost);
    record.rate_until = Until(learned.rate_until, now, wall);
  }
  return record;
}

LearnedLimits LimitsOf(const LearnedRecord& record, MonotonicTime now, WallTime wall) {
  LearnedLimits learned;
  if (record.events_max > 0) {
    learned.events_max = record.events_max;
    learned.events_until = Left(record.events_until, now, wall);
  }
  if (record.bytes_max > 0) {
    learned.bytes_max = record.bytes_max;
    learned.bytes_until = Left(record.bytes_until, now, wall);
  }
  if (record.messages_per_1000_seconds > 0) {
    learned.messages_per_second = static_cast<double>(record.messages_per_1000_seconds) / kRateUnit;
    learned.rate_until = Left(record.rate_until, now, wall);
  }
  learned.Expire(now);
  return learned;
}

bool WorthWriting(const LearnedRecord& record, const LearnedRecord& stored) {
  return record.generation != stored.generation || record.events_max != stored.events_max ||
         record.bytes_max != stored.bytes_max ||
         record.messages_per_1000_seconds != stored.messages_per_1000_seconds ||
         LastsLonger(record.events_until, stored.events_until) ||
         LastsLonger(record.bytes_until, stored.bytes_until) ||
         LastsLonger(record.rate_until, stored.rate_until);
}

}  // namespace postrider::delivery
