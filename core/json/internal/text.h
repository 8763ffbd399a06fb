#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace postrider::json_internal {

inline bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
inline const char* SkipSpace(const char* at, const char* end) {
  while (at != end && IsSpace(*at)) ++at;
  return at;
}

// Each takes the place where the token begins and gives the one after it; null when it is
// malformed, with `*fault` at the byte that is wrong.
const char* ScanString(const char* at, const char* end, const char** fault);
const char* ScanNumber(const char* at, const char* end, const char** fault);
const char* ScanLiteral(const char* at, const char* end, const char** fault);

// Past one value of a text that is known to be well-formed. `at` is at its first byte.
const char* SkipValue(const char* at, const char* end);

// Appends a well-formed string's content (without its quotes) with the escapes resolved. False:
// there was the escape of a lone surrogate; U+FFFD stands in its place.
bool AppendUnescaped(absl::string_view content, std::string* out);

// The length of the well-formed UTF-8 sequence at `at`; 0 when there is none.
int Utf8SequenceLength(const char* at, const char* end);

}  // namespace postrider::json_internal
