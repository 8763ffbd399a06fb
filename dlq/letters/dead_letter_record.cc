#include "dlq/letters/dead_letter_record.h"

#include <cstring>
#include <string>
#include <utility>

#include "core/base/bytes.h"

namespace postrider::dlq {
namespace {

constexpr uint8_t kVersion = 1;

template <typename Tag>
Id<Tag> ReadId(ByteReader& reader) {
  const absl::string_view raw = reader.Raw(16);
  IdBytes bytes{};
  if (raw.size() == bytes.size()) std::memcpy(bytes.data(), raw.data(), bytes.size());
  return Id<Tag>(bytes);
}

std::string ReadString(ByteReader& reader) { return std::string(reader.String()); }

}  // namespace

absl::string_view DeadReasonName(DeadReason reason) {
  switch (reason) {
    case DeadReason::kAttemptsExhausted:
      return "attempts_exhausted";
    case DeadReason::kHorizon:
      return "horizon";
    case DeadReason::kRejectedByReceiver:
      return "rejected_by_receiver";
    case DeadReason::kGone:
      return "gone";
    case DeadReason::kHeldFull:
      return "held_full";
    case DeadReason::kMisconfigured:
      return "misconfigured";
    case DeadReason::kBacklogFull:
      return "backlog_full";
    case DeadReason::kBacklogAge:
      return "backlog_age";
    case DeadReason::kSkippedOnResume:
      return "skipped_on_resume";
    case DeadReason::kEndpointDeleted:
      return "endpoint_deleted";
  }
  return "unknown";
}

absl::optional<DeadReason> DeadReasonFromNumber(uint64_t number) {
  if (number < 1 || number > static_cast<uint64_t>(kDeadReasonLast)) {
    return absl::nullopt;
  }
  return static_cast<DeadReason>(number);
}

subscriptions::LetterId MakeLetterId(WallTime dispatch_time, const IdBytes& identity_digest) {
  const auto millis = static_cast<uint64_t>(MillisSinceEpoch(dispatch_time));
  IdBytes bytes{};
  for (size_t i = 0; i < 6; ++i) bytes[i] = static_cast<uint8_t>(millis >> (8 * (5 - i)));
  std::memcpy(bytes.data() + 6, identity_digest.data(), 10);
  return subscriptions::LetterId(bytes);
}

std::string EncodeDeadLetter(const DeadLetterRecord& record) {
  ByteWriter writer;
  writer.U8(kVersion);
  writer.Raw(record.letter.view());
  writer.Raw(record.customer.view());
  writer.Raw(record.endpoint.view());
  writer.U8(static_cast<uint8_t>(record.reason));
  writer.Varint(record.attempts);
  writer.Zigzag(record.last_status);
  writer.String(record.last_outcome);
  writer.String(record.message_id);
  writer.String(record.event_id);
  writer.String(record.type);
  writer.String(record.tenant);
  writer.U8(record.department.has_value() ? 1 : 0);
  if (record.department) writer.String(*record.department);
  writer.Zigzag(MillisSinceEpoch(record.event_time));
  writer.Zigzag(MillisSinceEpoch(record.given_up_at));
  writer.String(record.data);
  return writer.Take();
}

absl::StatusOr<DeadLetterRecord> DecodeDeadLetter(absl::string_view bytes) {
  ByteReader reader(bytes);
  if (const uint8_t version = reader.U8(); version != kVersion) {
    return absl::DataLossError("dlq: a dead letter record of an unknown version");
  }
  DeadLetterRecord record;
  record.letter = ReadId<subscriptions::LetterTag>(reader);
  record.customer = ReadId<subscriptions::CustomerTag>(reader);
  record.endpoint = ReadId<subscriptions::EndpointTag>(reader);
  const absl::optional<DeadReason> reason = DeadReasonFromNumber(reader.U8());
  record.attempts = static_cast<uint32_t>(reader.Varint());
  record.last_status = static_cast<int32_t>(reader.Zigzag());
  record.last_outcome = ReadString(reader);
  record.message_id = ReadString(reader);
  record.event_id = ReadString(reader);
  record.type = ReadString(reader);
  record.tenant = ReadString(reader);
  const uint8_t has_department = reader.U8();
  if (has_department == 1) record.department = ReadString(reader);
  record.event_time = WallTimeFromMillis(reader.Zigzag());
  record.given_up_at = WallTimeFromMillis(reader.Zigzag());
  record.data = ReadString(reader);
  if (!reader.done() || !reason) {
    return absl::DataLossError("dlq: a damaged dead letter record");
  }
  record.reason = *reason;
  // What was cut to its type, or written in a longer form than ours, is not what we wrote.
  if (EncodeDeadLetter(record) != bytes) {
    return absl::DataLossError("dlq: a dead letter record in a form that is not ours");
  }
  return record;
}

}  // namespace postrider::dlq
