#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/stream/log.h"
#include "subscriptions/registry/ids.h"

namespace postrider::subscriptions {

// What names a message for good: where its event stands in the log, for whom it is, and
// which replay. `Text` holds the bytes of its texts, or shows them where they stand.
template <typename Text>
struct BasicMessageIdentity {
  Text source_topic;
  int32_t source_partition = 0;
  int64_t incarnation_ms = 0;
  int64_t source_offset = 0;
  EndpointId endpoint;
  uint32_t projection = 0;
  uint32_t replay = 0;

  friend bool operator==(const BasicMessageIdentity&, const BasicMessageIdentity&) = default;
  // 128 bits of SHA-256 over all of it: for exact comparison by hash.
  IdBytes Digest() const;
};
extern template struct BasicMessageIdentity<std::string>;
extern template struct BasicMessageIdentity<absl::string_view>;
using MessageIdentity = BasicMessageIdentity<std::string>;

// The header of a delivery, of an event in the log and of a request that publishes one that says
// how often the event went through here: who publishes what it received with the headers that it
// received is told apart from a loop that never ends.
inline constexpr absl::string_view kHopsHeader = "webhook-hops";

// An endpoint in one of its parts: one with a parallelism of k is spread over k keys, and so over
// as many key groups. The key of a record of the dispatch topic, and of all that a worker keeps of
// it: the endpoint id's 16 bytes, and for a part but 0 four more, its number in little-endian. The
// key group of such a key is that of the endpoint's id and the part (core/stream/key_groups.h).
struct DispatchKey {
  EndpointId endpoint;
  uint32_t part = 0;
  friend bool operator==(const DispatchKey&, const DispatchKey&) = default;
};
std::string EncodeDispatchKey(const DispatchKey& key);
// No value: Encode would not have written it.
absl::optional<DispatchKey> DecodeDispatchKey(absl::string_view bytes);
// The part of a message among so many, at least 1: the same for all of its repeats and replays.
uint32_t PartOf(const IdBytes& message_id, int parts);

// One message on its way from the matcher to a worker: one event for one endpoint, in one part of
// it. The key of its log record is that part's.
template <typename Text>
struct BasicDispatchRecord {
  BasicMessageIdentity<Text> identity;
  uint32_t part = 0;
  CustomerId customer;
  IdBytes message_id{};  // see MakeMessageId()
  Text event_id;
  Text type;
  Text tenant;
  absl::optional<Text> department;
  WallTime event_time;
  WallTime dispatch_time;
  // changed_xid of the rows that the matcher used: a worker whose snapshot does not see them yet
  // waits before it says "deleted" or "not granted".
  uint64_t endpoint_xid = 0;
  uint64_t grants_xid = 0;
  // How often the event has been delivered and published again: see kHopsHeader.
  uint32_t hops = 0;
  Text data;  // the event's own bytes, proven to be one JSON value
};
using DispatchRecord = BasicDispatchRecord<std::string>;
// Of a record whose bytes lie elsewhere and outlive it.
using DispatchRecordView = BasicDispatchRecord<absl::string_view>;

// `msg_` + base32: 128 bits of SHA-256 over (topic, event id, endpoint, projection); `event_id`
// empty: over topic, partition, incarnation and offset in its place. The same over retries,
// restarts and replays.
IdBytes MakeMessageId(const MessageIdentity& identity, absl::string_view given_event_id);
std::string FormatMessageId(const IdBytes& id);

// A version byte, the fields, the data last (equal payloads of a fan-out then lie side by side).
// Version 1 is part 0, version 2 another one, version 3 has hops: what has neither can be read by
// programs that know nothing of them.
std::string EncodeDispatchRecord(const DispatchRecord& record);
// kUnimplemented: of a newer version, which a newer program reads. kDataLoss: anything else that
// Encode would not have written.
absl::StatusOr<DispatchRecord> DecodeDispatchRecord(absl::string_view bytes);
// The same without copies: its texts stand in `bytes`, the data to their end.
absl::StatusOr<DispatchRecordView> ViewDispatchRecord(absl::string_view bytes);

// `<prefix>dispatch.<pool>` with a partition per key group and no time limit: its owner trims it.
TopicSpec DispatchTopic(absl::string_view prefix, absl::string_view pool, int32_t key_groups,
                        int16_t replication);

}  // namespace postrider::subscriptions
