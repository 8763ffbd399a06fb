#include "core/stream/state_table.h"

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/bytes.h"
#include "core/stream/state_key.h"

namespace postrider {
namespace {

constexpr uint8_t kVersion = 1;

}  // namespace

std::string StateTableIdentity(absl::string_view name) {
  return EncodeStateKey(kStateTableId, name, "");
}

std::string EncodeStateTableEntry(const StateTableEntry& entry) {
  ByteWriter out;
  out.U8(kVersion);
  out.U8(static_cast<uint8_t>(entry.id >> 8));
  out.U8(static_cast<uint8_t>(entry.id & 0xff));
  out.U32(entry.version);
  out.U32(entry.version_max);
  return out.Take();
}

absl::optional<StateTableEntry> DecodeStateTableEntry(absl::string_view encoded) {
  ByteReader in(encoded);
  const uint8_t version = in.U8();
  StateTableEntry entry;
  const uint8_t high = in.U8();
  entry.id = static_cast<uint16_t>(high << 8 | in.U8());
  entry.version = in.U32();
  entry.version_max = in.U32();
  if (!in.done() || version != kVersion || entry.version == 0 ||
      entry.version > entry.version_max) {
    return absl::nullopt;
  }
  return entry;
}

}  // namespace postrider
