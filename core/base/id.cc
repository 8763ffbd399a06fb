#include "core/base/id.h"

#include <string>

#include "absl/strings/ascii.h"

namespace postrider {
namespace {

// Crockford's alphabet: no i, l, o and u, which are easily misread.
constexpr absl::string_view kAlphabet = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr absl::string_view kHexDigits = "0123456789abcdef";
constexpr size_t kBase32IdSize = 26;
constexpr size_t kUuidSize = 36;

bool IsUuidDash(size_t position) {
  return position == 8 || position == 13 || position == 18 || position == 23;
}

// The place of `c` in `alphabet`, either letter case; -1 when it is none of it.
int ValueOf(absl::string_view alphabet, char c) {
  const size_t at = alphabet.find(absl::ascii_tolower(static_cast<unsigned char>(c)));
  return at == absl::string_view::npos ? -1 : static_cast<int>(at);
}

}  // namespace

// The bytes are one big-endian number, with zero bits added in front to a multiple of five, so
// that texts of one length sort like their bytes.
std::string EncodeBase32(absl::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() * 8 + 4) / 5);
  uint32_t bits = 0;
  unsigned held = static_cast<unsigned>((5 - bytes.size() * 8 % 5) % 5);
  for (const char byte : bytes) {
    bits = (bits << 8) | static_cast<uint8_t>(byte);
    held += 8;
    while (held >= 5) {
      held -= 5;
      text.push_back(kAlphabet[(bits >> held) & 31]);
    }
    bits &= (1u << held) - 1;
  }
  return text;
}

absl::optional<IdBytes> DecodeBase32Id(absl::string_view text) {
  if (text.size() != kBase32IdSize) return absl::nullopt;
  IdBytes bytes{};
  size_t filled = 0;
  uint32_t bits = 0;
  unsigned held = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int value = ValueOf(kAlphabet, text[i]);
    if (value < 0) return absl::nullopt;
    // 26 characters hold 130 bits: the first one carries only three.
    if (i == 0 && value > 7) return absl::nullopt;
    bits = (bits << 5) | static_cast<uint32_t>(value);
    held += i == 0 ? 3 : 5;
    if (held >= 8) {
      held -= 8;
      bytes[filled++] = static_cast<uint8_t>(bits >> held);
      bits &= (1u << held) - 1;
    }
  }
  return bytes;
}

std::string FormatUuid(const IdBytes& bytes) {
  std::string text;
  text.reserve(kUuidSize);
  for (const uint8_t byte : bytes) {
    if (IsUuidDash(text.size())) text.push_back('-');
    text.push_back(kHexDigits[byte >> 4]);
    text.push_back(kHexDigits[byte & 15]);
  }
  return text;
}

absl::optional<IdBytes> ParseUuid(absl::string_view text) {
  if (text.size() != kUuidSize) return absl::nullopt;
  IdBytes bytes{};
  size_t digits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsUuidDash(i)) {
      if (text[i] != '-') return absl::nullopt;
      continue;
    }
    const int value = ValueOf(kHexDigits, text[i]);
    if (value < 0) return absl::nullopt;
    bytes[digits / 2] = static_cast<uint8_t>((bytes[digits / 2] << 4) | value);
    ++digits;
  }
  return bytes;
}

}  // namespace postrider
