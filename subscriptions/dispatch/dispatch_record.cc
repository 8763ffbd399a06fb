#include "subscriptions/dispatch/dispatch_record.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "core/base/status_macros.h"
#include "core/crypto/digest.h"

namespace postrider::subscriptions {
namespace {

constexpr uint8_t kVersion = 3;
constexpr uint8_t kVersionOfFirstPart = 1;
constexpr uint8_t kVersionWithoutHops = 2;
// Versions up to this one are taken for those of a later program, all others for damage.
constexpr uint8_t kVersionPlausible = kVersion + 8;
// Of the fields but for the bytes of texts, at most.
constexpr size_t kFixedBytesMax = 186;
constexpr absl::string_view kMessagePrefix = "msg_";

IdBytes FirstHalf(const Sha256Digest& digest) {
  IdBytes bytes;
  std::copy_n(digest.begin(), bytes.size(), bytes.begin());
  return bytes;
}

absl::string_view View(const IdBytes& bytes) {
  return absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

IdBytes ReadId(ByteReader& reader) {
  IdBytes bytes{};
  const absl::string_view raw = reader.Raw(bytes.size());
  if (raw.size() == bytes.size()) {
    std::copy_n(reinterpret_cast<const uint8_t*>(raw.data()), bytes.size(), bytes.begin());
  }
  return bytes;
}

uint32_t ReadU32(ByteReader& reader, bool* fits) {
  const uint64_t value = reader.Varint();
  if (value > UINT32_MAX) *fits = false;
  return static_cast<uint32_t>(value);
}

absl::Status Unreadable(absl::string_view why) {
  return absl::DataLossError(absl::StrCat("dispatch record: ", why));
}

// u8 version | flags (1: has a department) | from version 2 on the part | in version 3 the hops |
// identity | customer | message id | event id, type, tenant, department | times | xids; then the
// data to the end.
void AppendFields(const DispatchRecord& record, ByteWriter& out) {
  const MessageIdentity& identity = record.identity;
  const uint8_t version = record.hops != 0   ? kVersion
                          : record.part != 0 ? kVersionWithoutHops
                                             : kVersionOfFirstPart;
  out.U8(version);
  out.U8(record.department ? 1 : 0);
  if (version != kVersionOfFirstPart) out.Varint(record.part);
  if (version == kVersion) out.Varint(record.hops);
  out.String(identity.source_topic);
  out.Zigzag(identity.source_partition);
  out.Zigzag(identity.incarnation_ms);
  out.Zigzag(identity.source_offset);
  out.Raw(identity.endpoint.view());
  out.Varint(identity.projection);
  out.Varint(identity.replay);
  out.Raw(record.customer.view());
  out.Raw(View(record.message_id));
  out.String(record.event_id);
  out.String(record.type);
  out.String(record.tenant);
  if (record.department) out.String(*record.department);
  out.Zigzag(MillisSinceEpoch(record.event_time));
  out.Zigzag(MillisSinceEpoch(record.dispatch_time));
  out.Varint(record.endpoint_xid);
  out.Varint(record.grants_xid);
}

}  // namespace

template <typename Text>
IdBytes BasicMessageIdentity<Text>::Digest() const {
  ByteWriter bytes;
  bytes.String(source_topic);
  bytes.Zigzag(source_partition);
  bytes.Zigzag(incarnation_ms);
  bytes.Zigzag(source_offset);
  bytes.Raw(endpoint.view());
  bytes.Varint(projection);
  bytes.Varint(replay);
  return FirstHalf(Sha256(bytes.bytes()));
}

template struct BasicMessageIdentity<std::string>;
template struct BasicMessageIdentity<absl::string_view>;

IdBytes MakeMessageId(const MessageIdentity& identity, absl::string_view given_event_id) {
  ByteWriter bytes;
  bytes.String(identity.source_topic);
  // Two forms that no event id can make equal: a given id, or the place in the log.
  if (given_event_id.empty()) {
    bytes.U8(1);
    bytes.Zigzag(identity.source_partition);
    bytes.Zigzag(identity.incarnation_ms);
    bytes.Zigzag(identity.source_offset);
  } else {
    bytes.U8(0);
    bytes.String(given_event_id);
  }
  bytes.Raw(identity.endpoint.view());
  bytes.Varint(identity.projection);
  return FirstHalf(Sha256(bytes.bytes()));
}

std::string FormatMessageId(const IdBytes& id) {
  return absl::StrCat(kMessagePrefix, EncodeBase32(View(id)));
}

std::string EncodeDispatchKey(const DispatchKey& key) {
  if (key.part == 0) return std::string(key.endpoint.view());
  ByteWriter bytes(sizeof(IdBytes) + sizeof(uint32_t));
  bytes.Raw(key.endpoint.view());
  bytes.U32(key.part);
  return bytes.Take();
}

absl::optional<DispatchKey> DecodeDispatchKey(absl::string_view bytes) {
  ByteReader in(bytes);
  DispatchKey key;
  key.endpoint = EndpointId(ReadId(in));
  if (in.ok() && in.rest().empty()) return key;
  key.part = in.U32();
  if (!in.done() || key.part == 0) return absl::nullopt;
  return key;
}

uint32_t PartOf(const IdBytes& message_id, int parts) {
  // Already as good as random.
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof(number); ++i) number = number << 8 | message_id[i];
  return static_cast<uint32_t>(number % static_cast<uint64_t>(std::max(parts, 1)));
}

std::string EncodeDispatchRecord(const DispatchRecord& record) {
  ByteWriter out(kFixedBytesMax + record.identity.source_topic.size() + record.event_id.size() +
                 record.type.size() + record.tenant.size() +
                 (record.department ? record.department->size() : 0) + record.data.size());
  AppendFields(record, out);
  out.Raw(record.data);
  return out.Take();
}

absl::StatusOr<DispatchRecord> DecodeDispatchRecord(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const DispatchRecordView view, ViewDispatchRecord(bytes));
  DispatchRecord record;
  MessageIdentity& identity = record.identity;
  identity.source_topic = std::string(view.identity.source_topic);
  identity.source_partition = view.identity.source_partition;
  identity.incarnation_ms = view.identity.incarnation_ms;
  identity.source_offset = view.identity.source_offset;
  identity.endpoint = view.identity.endpoint;
  identity.projection = view.identity.projection;
  identity.replay = view.identity.replay;
  record.part = view.part;
  record.customer = view.customer;
  record.message_id = view.message_id;
  record.event_id = std::string(view.event_id);
  record.type = std::string(view.type);
  record.tenant = std::string(view.tenant);
  if (view.department) record.department = std::string(*view.department);
  record.event_time = view.event_time;
  record.dispatch_time = view.dispatch_time;
  record.endpoint_xid = view.endpoint_xid;
  record.grants_xid = view.grants_xid;
  record.hops = view.hops;
  record.data = std::string(view.data);
  return record;
}

absl::StatusOr<DispatchRecordView> ViewDispatchRecord(absl::string_view bytes) {
  ByteReader in(bytes);
  const uint8_t version = in.U8();
  if (!in.ok()) return Unreadable("empty");
  if (version > kVersion && version <= kVersionPlausible) {
    return absl::UnimplementedError(
        absl::StrCat("dispatch record: version ", version, ", this program reads ", kVersion));
  }
  if (version == 0 || version > kVersion) {
    return Unreadable(absl::StrCat("version ", version, ", this reads ", kVersion));
  }
  const uint8_t flags = in.U8();
  if (flags > 1) return Unreadable("unknown flags");
  DispatchRecordView record;
  BasicMessageIdentity<absl::string_view>& identity = record.identity;
  bool fits = true;
  if (version != kVersionOfFirstPart) {
    record.part = ReadU32(in, &fits);
    if (record.part == 0 && version == kVersionWithoutHops) fits = false;
  }
  if (version == kVersion) {
    record.hops = ReadU32(in, &fits);
    if (record.hops == 0) fits = false;
  }
  identity.source_topic = in.String();
  const int64_t partition = in.Zigzag();
  if (partition < 0 || partition > INT32_MAX) fits = false;
  identity.source_partition = static_cast<int32_t>(partition);
  identity.incarnation_ms = in.Zigzag();
  identity.source_offset = in.Zigzag();
  identity.endpoint = EndpointId(ReadId(in));
  identity.projection = ReadU32(in, &fits);
  identity.replay = ReadU32(in, &fits);
  record.customer = CustomerId(ReadId(in));
  record.message_id = ReadId(in);
  record.event_id = in.String();
  record.type = in.String();
  record.tenant = in.String();
  if (flags == 1) record.department = in.String();
  record.event_time = WallTimeFromMillis(in.Zigzag());
  record.dispatch_time = WallTimeFromMillis(in.Zigzag());
  record.endpoint_xid = in.Varint();
  record.grants_xid = in.Varint();
  if (!in.ok()) return Unreadable("cut off");
  if (!fits || identity.source_offset < 0) return Unreadable("a number is out of range");
  if (in.rest().empty()) return Unreadable("no data");
  // A varint can be written longer than it needs: only what Encode writes is taken.
  if (in.padded()) return Unreadable("a number is padded");
  record.data = in.rest();
  return record;
}

TopicSpec DispatchTopic(absl::string_view prefix, absl::string_view pool, int32_t key_groups,
                        int16_t replication) {
  TopicSpec spec;
  spec.name = absl::StrCat(prefix, "dispatch.", pool);
  spec.partitions = key_groups;
  spec.replication = replication;
  spec.settings = {{"cleanup.policy", "delete"},
                   {"retention.ms", "-1"},
                   {"retention.bytes", "-1"},
                   {"max.message.bytes", "2097152"},
                   {"min.insync.replicas", replication >= 3 ? "2" : "1"},
                   {"unclean.leader.election.enable", "false"}};
  return spec;
}

}  // namespace postrider::subscriptions
