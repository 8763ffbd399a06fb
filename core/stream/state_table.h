#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider {

// What a changelog partition says of each state that has been used in it: a value that changes in
// place, of identity (kStateTableId, the state's name, ""). It is put before the state's first
// value of each version, so whoever restores learns of a state that it does not know, or knows by
// another id, or of a newer version, by its name and before it takes any of its values for
// something else.
struct StateTableEntry {
  uint16_t id = 0;
  uint32_t version = 0;      // the highest that values may have
  uint32_t version_max = 0;  // the highest that the owner who wrote this reads
  friend bool operator==(const StateTableEntry&, const StateTableEntry&) = default;
};

std::string StateTableIdentity(absl::string_view name);
std::string EncodeStateTableEntry(const StateTableEntry& entry);
// No value for what EncodeStateTableEntry() would not have written.
absl::optional<StateTableEntry> DecodeStateTableEntry(absl::string_view encoded);

}  // namespace postrider
