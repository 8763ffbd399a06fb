#include "core/json/writer.h"

#include <charconv>
#include <cmath>
#include <iterator>

#include "core/json/internal/text.h"

namespace postrider {

void AppendJsonString(absl::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  const char* at = text.data();
  const char* const end = at + text.size();
  const char* plain = at;  // from here on nothing was written yet
  const auto flush = [&] { out->append(plain, static_cast<size_t>(at - plain)); };
  while (at != end) {
    const auto byte = static_cast<uint8_t>(*at);
    if (byte >= 0x80) {
      const int length = json_internal::Utf8SequenceLength(at, end);
      if (length > 0) {
        at += length;
        continue;
      }
      flush();
      out->append("\xef\xbf\xbd");
    } else if (byte >= 0x20 && byte != '"' && byte != '\\') {
      ++at;
      continue;
    } else {
      flush();
      out->push_back('\\');
      switch (byte) {
        case '"':
        case '\\':
          out->push_back(static_cast<char>(byte));
          break;
        case '\b':
          out->push_back('b');
          break;
        case '\f':
          out->push_back('f');
          break;
        case '\n':
          out->push_back('n');
          break;
        case '\r':
          out->push_back('r');
          break;
        case '\t':
          out->push_back('t');
          break;
        default:
          out->append("u00");
          out->push_back(kHex[byte >> 4]);
          out->push_back(kHex[byte & 15]);
      }
    }
    plain = ++at;
  }
  flush();
  out->push_back('"');
}

void AppendJsonNumber(int64_t value, std::string* out) {
  char text[24];
  const auto end = std::to_chars(std::begin(text), std::end(text), value).ptr;
  out->append(text, static_cast<size_t>(end - text));
}

void AppendJsonNumber(double value, std::string* out) {
  if (!std::isfinite(value)) {
    out->append("null");
    return;
  }
  char text[40];
  const auto end = std::to_chars(std::begin(text), std::end(text), value).ptr;
  out->append(text, static_cast<size_t>(end - text));
}

void AppendPointerStep(absl::string_view token, std::string* out) {
  out->push_back('/');
  for (const char c : token) {
    if (c == '~') {
      out->append("~0");
    } else if (c == '/') {
      out->append("~1");
    } else {
      out->push_back(c);
    }
  }
}

}  // namespace postrider
