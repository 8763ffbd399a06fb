#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider {

// Where a value of keyed state lies, in a store and in the changelog: the state's id, the key that
// it belongs to, and a sub-key within (an entry's identity, a map's key; empty for a single value).
//
// The bytes sort as (state, key, sub-key) do, each part as unsigned bytes: two bytes of id, then
// each part with 00 written as 00 ff and closed by 00 01. So all of one key of one state lies
// together, and no key's entries are among another's, whatever bytes it has.
struct StateKey {
  uint16_t state = 0;
  std::string key;
  std::string sub_key;
  friend bool operator==(const StateKey&, const StateKey&) = default;
};

// Ids from here on are the core's own: no function's state has one.
inline constexpr uint16_t kReservedStateIds = 0xff00;
inline constexpr uint16_t kStateTableId = 0xff00;  // which states a changelog holds: state_table.h
inline constexpr uint16_t kInFlightStateId =
    0xff02;  // what is in flight at a handover: operation.h
// In stores only: what expires, by time. See StateBackend::Sweep().
inline constexpr uint16_t kExpiryIndexId = 0xff04;
// In stores only: where each entry of a list stands, by its identity. The key is the list's id and
// its key.
inline constexpr uint16_t kPlaceIndexId = 0xff06;

std::string EncodeStateKey(uint16_t state, absl::string_view key, absl::string_view sub_key);
// What all keys of one state, and of one key in it, begin with.
std::string StatePrefix(uint16_t state);
// `more_bytes`: how many will be appended to it.
std::string StatePrefix(uint16_t state, absl::string_view key, size_t more_bytes = 0);
// No value for anything that EncodeStateKey() would not have written.
absl::optional<StateKey> DecodeStateKey(absl::string_view encoded);

// How many of an encoded key's first bytes name its state and its key: all that begin so lie
// together, and no other key is among them. All of what EncodeStateKey() would not have written,
// if it has no such part.
size_t StateKeyGroupBytes(absl::string_view encoded);

// What a key is made of, for whoever makes several with one beginning.
inline constexpr size_t kStateIdBytes = 2;
inline constexpr size_t kPartEndBytes = 2;
void AppendEscaped(absl::string_view bytes, std::string& out);
void AppendPartEnd(std::string& out);
size_t EscapedBytes(absl::string_view bytes);
// Reads one part, to its end, into `part`. False: there is none; `rest` is of no use then.
bool TakePart(absl::string_view& rest, std::string& part);

}  // namespace postrider
