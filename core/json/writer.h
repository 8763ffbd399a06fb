#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace postrider {

// Appends `text` as a JSON string with its quotes. Escaped: the quote, the backslash and control
// characters; nothing else. Bytes that are no UTF-8 become U+FFFD, so that the result is always
// valid.
void AppendJsonString(absl::string_view text, std::string* out);
void AppendJsonNumber(int64_t value, std::string* out);
// The shortest text that reads back as the same double; a NaN or an infinity, which JSON cannot
// say, is null.
void AppendJsonNumber(double value, std::string* out);

// Appends a step of a JSON pointer (RFC 6901): '/' and the token with '~' and '/' escaped.
void AppendPointerStep(absl::string_view token, std::string* out);

}  // namespace postrider
