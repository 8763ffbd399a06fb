#include "core/json/internal/text.h"

#include <array>
#include <cstring>

#include "core/base/hex.h"

namespace postrider::json_internal {
namespace {

// Bytes that end a run of plain string content.
constexpr std::array<bool, 256> kStopsString = [] {
  std::array<bool, 256> stops{};
  for (size_t c = 0; c < 0x20; ++c) stops[c] = true;
  stops['"'] = true;
  stops['\\'] = true;
  return stops;
}();

// Whether one of eight bytes is below 0x20, a quote or a backslash.
bool AnyStop(uint64_t word) {
  constexpr uint64_t kOnes = 0x0101010101010101ULL;
  constexpr uint64_t kHigh = 0x8080808080808080ULL;
  const auto zero = [](uint64_t w) { return (w - kOnes) & ~w & kHigh; };
  const uint64_t control = (word - kOnes * 0x20) & ~word & kHigh;
  return (control | zero(word ^ (kOnes * '"')) | zero(word ^ (kOnes * '\\'))) != 0;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

uint32_t FourHex(const char* at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 4 | static_cast<uint32_t>(HexDigit(at[i]));
  return value;
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

}  // namespace

const char* ScanString(const char* at, const char* end, const char** fault) {
  ++at;  // the quote
  while (true) {
    while (end - at >= 8) {
      uint64_t word;
      std::memcpy(&word, at, sizeof(word));
      if (AnyStop(word)) break;
      at += 8;
    }
    while (at != end && !kStopsString[static_cast<uint8_t>(*at)]) ++at;
    if (at == end) break;
    if (*at == '"') return at + 1;
    if (*at != '\\') break;
    if (++at == end) break;
    switch (*at) {
      case '"':
      case '\\':
      case '/':
      case 'b':
      case 'f':
      case 'n':
      case 'r':
      case 't':
        ++at;
        continue;
      case 'u': {
        ++at;
        int digits = 0;
        while (digits < 4 && at != end && HexDigit(*at) >= 0) ++at, ++digits;
        if (digits == 4) continue;
        break;
      }
      default:
        break;
    }
    break;
  }
  *fault = at;
  return nullptr;
}

const char* ScanNumber(const char* at, const char* end, const char** fault) {
  const auto digits = [end](const char* from) {
    while (from != end && IsDigit(*from)) ++from;
    return from;
  };
  if (at != end && *at == '-') ++at;
  *fault = at;
  if (at == end || !IsDigit(*at)) return nullptr;
  at = *at == '0' ? at + 1 : digits(at);
  if (at != end && *at == '.') {
    const char* after = digits(++at);
    *fault = after;
    if (after == at) return nullptr;
    at = after;
  }
  if (at != end && (*at == 'e' || *at == 'E')) {
    ++at;
    if (at != end && (*at == '+' || *at == '-')) ++at;
    const char* after = digits(at);
    *fault = after;
    if (after == at) return nullptr;
    at = after;
  }
  return at;
}

const char* ScanLiteral(const char* at, const char* end, const char** fault) {
  const absl::string_view rest(at, static_cast<size_t>(end - at));
  for (const absl::string_view word :
       {absl::string_view("true"), absl::string_view("false"), absl::string_view("null")}) {
    if (rest.substr(0, word.size()) == word) return at + word.size();
  }
  *fault = at;
  return nullptr;
}

const char* SkipValue(const char* at, const char* end) {
  const char* fault = nullptr;
  size_t depth = 0;
  while (at != end) {
    switch (*at) {
      case '"':
        at = ScanString(at, end, &fault);
        if (at == nullptr) return end;
        if (depth == 0) return at;
        continue;
      case '{':
      case '[':
        ++depth;
        ++at;
        continue;
      case '}':
      case ']':
        if (depth == 0) return at;
        ++at;
        if (--depth == 0) return at;
        continue;
      default:
        if (depth == 0) {
          while (at != end && *at != ',' && *at != '}' && *at != ']' && !IsSpace(*at)) ++at;
          return at;
        }
        ++at;
    }
  }
  return end;
}

bool AppendUnescaped(absl::string_view content, std::string* out) {
  bool paired = true;
  const char* at = content.data();
  const char* const end = at + content.size();
  while (at != end) {
    const void* next = std::memchr(at, '\\', static_cast<size_t>(end - at));
    const char* stop = next == nullptr ? end : static_cast<const char*>(next);
    out->append(at, static_cast<size_t>(stop - at));
    at = stop;
    if (at == end) break;
    const char kind = at[1];
    at += 2;
    switch (kind) {
      case 'b':
        out->push_back('\b');
        break;
      case 'f':
        out->push_back('\f');
        break;
      case 'n':
        out->push_back('\n');
        break;
      case 'r':
        out->push_back('\r');
        break;
      case 't':
        out->push_back('\t');
        break;
      case 'u': {
        uint32_t code = FourHex(at);
        at += 4;
        if (code >= 0xd800 && code < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
          const uint32_t low = FourHex(at + 2);
          if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            at += 6;
          }
        }
        if (code >= 0xd800 && code < 0xe000) {
          code = 0xfffd;
          paired = false;
        }
        AppendUtf8(code, out);
        break;
      }
      default:
        out->push_back(kind);
        break;
    }
  }
  return paired;
}

int Utf8SequenceLength(const char* at, const char* end) {
  const auto byte = [at](int i) { return static_cast<uint8_t>(at[i]); };
  const auto tail = [&](int i) { return (byte(i) & 0xc0) == 0x80; };
  if (at == end) return 0;
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  if (first < 0xe0) return end - at >= 2 && tail(1) ? 2 : 0;
  if (first < 0xf0) {
    if (end - at < 3 || !tail(1) || !tail(2)) return 0;
    if (first == 0xe0 && byte(1) < 0xa0) return 0;
    if (first == 0xed && byte(1) >= 0xa0) return 0;
    return 3;
  }
  if (end - at < 4 || !tail(1) || !tail(2) || !tail(3)) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) >= 0x90) return 0;
  return 4;
}

}  // namespace postrider::json_internal
