#include "core/stream/state_key.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider {
namespace {

constexpr char kClose = '\x01';
constexpr char kZero = '\xff';

}  // namespace

void AppendEscaped(absl::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const size_t zero = bytes.find('\0');
    if (zero == absl::string_view::npos) break;
    out.append(bytes.data(), zero + 1);
    out.push_back(kZero);
    bytes.remove_prefix(zero + 1);
  }
  out.append(bytes.data(), bytes.size());
}

void AppendPartEnd(std::string& out) {
  out.push_back('\0');
  out.push_back(kClose);
}

size_t EscapedBytes(absl::string_view bytes) {
  return bytes.size() + static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '\0'));
}

bool TakePart(absl::string_view& rest, std::string& part) {
  part.clear();
  while (true) {
    const size_t zero = rest.find('\0');
    if (zero == absl::string_view::npos || zero + 1 == rest.size()) return false;
    const char after = rest[zero + 1];
    if (after != kClose && after != kZero) return false;
    part.append(rest.data(), after == kZero ? zero + 1 : zero);
    rest.remove_prefix(zero + 2);
    if (after == kClose) return true;
  }
}

std::string StatePrefix(uint16_t state) {
  return std::string{static_cast<char>(state >> 8), static_cast<char>(state & 0xff)};
}

std::string StatePrefix(uint16_t state, absl::string_view key, size_t more_bytes) {
  std::string out;
  out.reserve(kStateIdBytes + EscapedBytes(key) + kPartEndBytes + more_bytes);
  out.push_back(static_cast<char>(state >> 8));
  out.push_back(static_cast<char>(state & 0xff));
  AppendEscaped(key, out);
  AppendPartEnd(out);
  return out;
}

std::string EncodeStateKey(uint16_t state, absl::string_view key, absl::string_view sub_key) {
  std::string out = StatePrefix(state, key, EscapedBytes(sub_key) + kPartEndBytes);
  AppendEscaped(sub_key, out);
  AppendPartEnd(out);
  return out;
}

size_t StateKeyGroupBytes(absl::string_view encoded) {
  for (size_t at = kStateIdBytes; at < encoded.size();) {
    const size_t zero = encoded.find('\0', at);
    if (zero == absl::string_view::npos || zero + 1 >= encoded.size()) break;
    at = zero + kPartEndBytes;
    if (encoded[zero + 1] == kClose) return at;
  }
  return encoded.size();
}

absl::optional<StateKey> DecodeStateKey(absl::string_view encoded) {
  if (encoded.size() < kStateIdBytes) return absl::nullopt;
  StateKey decoded;
  decoded.state = static_cast<uint16_t>((static_cast<unsigned char>(encoded[0]) << 8) |
                                        static_cast<unsigned char>(encoded[1]));
  encoded.remove_prefix(kStateIdBytes);
  if (!TakePart(encoded, decoded.key) || !TakePart(encoded, decoded.sub_key) || !encoded.empty()) {
    return absl::nullopt;
  }
  return decoded;
}

}  // namespace postrider
