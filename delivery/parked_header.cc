#include "delivery/parked_header.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "core/base/bytes.h"
#include "core/stream/keyed_state.h"

namespace postrider::delivery {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint64_t kMembersMax = 100'000;

absl::Status Unreadable() { return absl::DataLossError("dispatch record: its header is damaged"); }

}  // namespace

std::string EncodeParkedHeader(const ParkedHeader& header) {
  ByteWriter out;
  out.U8(kVersion);
  out.U8(header.batch ? 1 : 0);
  if (header.batch) {
    out.Raw(absl::string_view(reinterpret_cast<const char*>(header.batch->key.data()),
                              header.batch->key.size()));
    out.Varint(header.batch->index);
    out.Varint(header.batch->count);
    out.Raw(BatchAttemptsSerializer().encode(header.batch->attempts, 1));
  }
  return out.Take();
}

absl::StatusOr<ParkedHeader> DecodeParkedHeader(absl::string_view encoded) {
  ByteReader in(encoded);
  const uint8_t version = in.U8();
  if (in.ok() && version > kVersion) {
    return absl::UnimplementedError("dispatch record: a newer version has moved it");
  }
  if (version != kVersion) return Unreadable();
  ParkedHeader header;
  const uint8_t flags = in.U8();
  if (!in.ok() || flags > 1) return Unreadable();
  if (flags == 1) {
    ParkedHeader::Batch batch;
    const absl::string_view key = in.Raw(batch.key.size());
    const uint64_t index = in.Varint();
    const uint64_t count = in.Varint();
    if (!in.ok() || count > kMembersMax || index >= count) return Unreadable();
    std::copy_n(key.begin(), batch.key.size(), batch.key.begin());
    batch.index = static_cast<uint32_t>(index);
    batch.count = static_cast<uint32_t>(count);
    const absl::optional<BatchAttempts> attempts =
        BatchAttemptsSerializer().decode(in.Raw(in.rest().size()), 1);
    if (!attempts) return Unreadable();
    batch.attempts = *attempts;
    header.batch = batch;
  }
  if (!in.done() || EncodeParkedHeader(header) != encoded) return Unreadable();
  return header;
}

}  // namespace postrider::delivery
