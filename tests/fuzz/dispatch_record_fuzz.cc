#include <string>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using subscriptions::DecodeDispatchKey;
using subscriptions::DecodeDispatchRecord;
using subscriptions::DispatchRecord;
using subscriptions::EncodeDispatchKey;
using subscriptions::EncodeDispatchRecord;

void CheckEqual(const DispatchRecord& a, const DispatchRecord& b) {
  POSTRIDER_CHECK(a.identity == b.identity);
  POSTRIDER_CHECK(a.identity.Digest() == b.identity.Digest());
  POSTRIDER_CHECK(a.part == b.part);
  POSTRIDER_CHECK(a.customer == b.customer);
  POSTRIDER_CHECK(a.message_id == b.message_id);
  POSTRIDER_CHECK(a.event_id == b.event_id);
  POSTRIDER_CHECK(a.type == b.type);
  POSTRIDER_CHECK(a.tenant == b.tenant);
  POSTRIDER_CHECK(a.department == b.department);
  POSTRIDER_CHECK(a.event_time == b.event_time);
  POSTRIDER_CHECK(a.dispatch_time == b.dispatch_time);
  POSTRIDER_CHECK(a.endpoint_xid == b.endpoint_xid);
  POSTRIDER_CHECK(a.grants_xid == b.grants_xid);
  POSTRIDER_CHECK(a.hops == b.hops);
  POSTRIDER_CHECK(a.data == b.data);
}

void Decode(absl::string_view bytes) {
  const absl::StatusOr<DispatchRecord> decoded = DecodeDispatchRecord(bytes);
  if (decoded.ok()) {
    POSTRIDER_CHECK(EncodeDispatchRecord(*decoded) == bytes);
  } else {
    POSTRIDER_CHECK(absl::IsDataLoss(decoded.status()) || absl::IsUnimplemented(decoded.status()));
  }
}

void DecodeKey(absl::string_view bytes) {
  const auto key = DecodeDispatchKey(bytes);
  if (key) POSTRIDER_CHECK(EncodeDispatchKey(*key) == bytes);
}

void EncodeAndDecode(Input in) {
  DispatchRecord record;
  record.identity.source_topic = std::string(in.Text());
  record.identity.source_partition = static_cast<int32_t>(in.UpTo(INT32_MAX));
  record.identity.incarnation_ms = in.Signed();
  record.identity.source_offset = in.Between(0, INT64_MAX);
  record.identity.endpoint = in.IdOf<subscriptions::EndpointId>();
  record.identity.projection = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  record.identity.replay = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  record.customer = in.IdOf<subscriptions::CustomerId>();
  record.message_id = in.Id();
  record.event_id = std::string(in.Text());
  record.type = std::string(in.Text());
  record.tenant = std::string(in.Text());
  if (in.Flag()) record.department = std::string(in.Text());
  record.event_time = WallTimeFromMillis(in.Signed());
  record.dispatch_time = WallTimeFromMillis(in.Signed());
  record.endpoint_xid = in.Number();
  record.grants_xid = in.Number();
  record.hops = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  record.part = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  record.data = in.empty() ? "null" : std::string(in.rest());
  const std::string bytes = EncodeDispatchRecord(record);
  const absl::StatusOr<DispatchRecord> decoded = DecodeDispatchRecord(bytes);
  POSTRIDER_CHECK(decoded.ok());
  CheckEqual(*decoded, record);
  const subscriptions::DispatchKey key{record.identity.endpoint, record.part};
  POSTRIDER_CHECK(DecodeDispatchKey(EncodeDispatchKey(key)) == key);
  // Without its data it is no record, however it is cut.
  const absl::string_view fields(bytes.data(), bytes.size() - record.data.size());
  for (size_t size = 0; size <= fields.size(); ++size) {
    POSTRIDER_CHECK(!DecodeDispatchRecord(fields.substr(0, size)).ok());
  }
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  DecodeKey(View(data, size));
  EncodeAndDecode(Input(data, size));
  return 0;
}
