#include "core/stream/state_key.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider {
namespace {

constexpr char kClose = '\x01';
constexpr char kZero = '\xff';

void AppendPart(absl::string_view part, std::string& out) {
  for (const char byte : part) {
    out.push_back(byte);
    if (byte == '\0') out.push_back(kZero);
  }
  out.push_back('\0');
  out.push_back(kClose);
}

bool TakePart(absl::string_view& rest, std::string& part) {
  for (size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] != '\0') {
      part.push_back(rest[i]);
      continue;
    }
    if (++i == rest.size()) return false;
    if (rest[i] == kClose) {
      rest.remove_prefix(i + 1);
      return true;
    }
    if (rest[i] != kZero) return false;
    part.push_back('\0');
  }
  return false;
}

}  // namespace

std::string StatePrefix(uint16_t state) {
  return std::string{static_cast<char>(state >> 8), static_cast<char>(state & 0xff)};
}

std::string StatePrefix(uint16_t state, absl::string_view key) {
  std::string out = StatePrefix(state);
  out.reserve(key.size() + 8);
  AppendPart(key, out);
  return out;
}

std::string EncodeStateKey(uint16_t state, absl::string_view key, absl::string_view sub_key) {
  std::string out = StatePrefix(state, key);
  AppendPart(sub_key, out);
  return out;
}

absl::optional<StateKey> DecodeStateKey(absl::string_view encoded) {
  if (encoded.size() < 2) return absl::nullopt;
  StateKey decoded;
  decoded.state = static_cast<uint16_t>((static_cast<unsigned char>(encoded[0]) << 8) |
                                        static_cast<unsigned char>(encoded[1]));
  encoded.remove_prefix(2);
  if (!TakePart(encoded, decoded.key) || !TakePart(encoded, decoded.sub_key) || !encoded.empty()) {
    return absl::nullopt;
  }
  return decoded;
}

}  // namespace postrider
