#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/stream/log.h"
#include "subscriptions/registry/ids.h"

// What the records of the topic of reports have in common: a version, the kind, then the kind's own
// fields.
namespace postrider::dlq::internal {

inline constexpr uint8_t kReportVersion = 1;

template <typename IdType>
IdType ReadId(ByteReader& reader) {
  IdBytes bytes{};
  const absl::string_view raw = reader.Raw(bytes.size());
  if (raw.size() == bytes.size()) std::memcpy(bytes.data(), raw.data(), bytes.size());
  return IdType(bytes);
}

inline void WriteOptionalTime(ByteWriter& writer, const absl::optional<WallTime>& time) {
  writer.U8(time ? 1 : 0);
  if (time) writer.Zigzag(MillisSinceEpoch(*time));
}
inline absl::optional<WallTime> ReadOptionalTime(ByteReader& reader) {
  if (reader.U8() == 0) return absl::nullopt;
  return WallTimeFromMillis(reader.Zigzag());
}

absl::Status UnknownReport();
absl::Status DamagedReport();
AppendRecord MakeAppend(absl::string_view prefix, subscriptions::CustomerId customer,
                        std::string value);

}  // namespace postrider::dlq::internal
