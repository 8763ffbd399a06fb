#include "delivery/partial_ack.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/types/optional.h"
#include "core/json/json.h"

namespace postrider::delivery {
namespace {

constexpr absl::string_view kIdPrefix = "msg_";

absl::optional<IdBytes> ParseMessageId(absl::string_view text) {
  if (!absl::StartsWith(text, kIdPrefix)) return absl::nullopt;
  return DecodeBase32Id(text.substr(kIdPrefix.size()));
}

}  // namespace

PartialAck ReadPartialAck(absl::string_view body, bool cut,
                          const std::vector<IdBytes>& message_ids) {
  PartialAck ack;
  if (cut || body.size() > kPartialAckBytesMax) return ack;
  JsonLimits limits;
  limits.bytes_max = kPartialAckBytesMax;
  const absl::StatusOr<JsonValue> parsed = JsonValue::Parse(body, limits);
  if (!parsed.ok()) return ack;
  const JsonValue* member = parsed->Find("failed");
  const JsonValue::Array* list = member == nullptr ? nullptr : member->array();
  if (list == nullptr) return ack;
  ack.reading = AckReading::kReadable;
  if (list->empty()) return ack;

  absl::flat_hash_map<IdBytes, size_t> places;
  places.reserve(message_ids.size());
  for (size_t i = 0; i < message_ids.size(); ++i) places.emplace(message_ids[i], i);
  for (const JsonValue& element : *list) {
    absl::optional<size_t> place;
    if (const std::string* text = element.string(); text != nullptr) {
      const absl::optional<IdBytes> id = ParseMessageId(*text);
      const auto found = id ? places.find(*id) : places.end();
      if (found != places.end()) place = found->second;
    } else if (const absl::optional<int64_t> index = element.integer(); index && *index >= 0) {
      if (static_cast<uint64_t>(*index) < message_ids.size()) place = static_cast<size_t>(*index);
    }
    if (place) {
      ack.failed.push_back(*place);
    } else {
      ++ack.foreign;
    }
  }
  std::sort(ack.failed.begin(), ack.failed.end());
  ack.failed.erase(std::unique(ack.failed.begin(), ack.failed.end()), ack.failed.end());
  return ack;
}

Answer ReadAnswer(const HttpResult& result, OutcomeContext context,
                  const std::vector<IdBytes>& message_ids) {
  Answer answer;
  const bool asked = !message_ids.empty() && result.failure == HttpFailure::kNone &&
                     result.status >= 200 && result.status <= 299;
  if (asked) {
    PartialAck ack = ReadPartialAck(result.body_excerpt, result.body_cut, message_ids);
    context.ack = ack.reading;
    answer.failed = std::move(ack.failed);
    answer.foreign = ack.foreign;
  }
  answer.outcome = Classify(result, context);
  if (!answer.failed.empty()) answer.outcome.kind = OutcomeKind::kPartlyDelivered;
  return answer;
}

std::vector<size_t> Unacknowledged(const std::vector<size_t>& failed, size_t batch_size,
                                   subscriptions::OrderKind order,
                                   absl::FunctionRef<uint64_t(size_t)> key_of) {
  if (failed.empty() || order == subscriptions::OrderKind::kNone) return failed;
  std::vector<size_t> rest;
  if (order == subscriptions::OrderKind::kEndpoint) {
    for (size_t i = failed.front(); i < batch_size; ++i) rest.push_back(i);
    return rest;
  }
  absl::flat_hash_set<uint64_t> blocked;
  auto next = failed.begin();
  for (size_t i = failed.front(); i < batch_size; ++i) {
    const uint64_t key = key_of(i);
    if (next != failed.end() && *next == i) {
      ++next;
      blocked.insert(key);
    }
    if (blocked.contains(key)) rest.push_back(i);
  }
  return rest;
}

}  // namespace postrider::delivery
