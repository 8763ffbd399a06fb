#pragma once

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

// The small steps of reading a header's fields, inline: they are made for every line of every
// answer.
namespace postrider::internal {

inline bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// Without the blanks around it (OWS of RFC 9110, 5.6.3).
inline absl::string_view StripBlanks(absl::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

// Whether `text` begins with `lower`, which is in lower case, whatever its own case.
inline bool BeginsWith(absl::string_view text, absl::string_view lower) {
  if (text.size() < lower.size()) return false;
  for (size_t i = 0; i < lower.size(); ++i) {
    if (absl::ascii_tolower(static_cast<unsigned char>(text[i])) != lower[i]) return false;
  }
  return true;
}

// Whether they are the same but for the case of `text`.
inline bool IsSame(absl::string_view text, absl::string_view lower) {
  return text.size() == lower.size() && BeginsWith(text, lower);
}

}  // namespace postrider::internal
