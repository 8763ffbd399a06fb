#include "subscriptions/registry/event_type.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace postrider::subscriptions {
namespace {

bool IsTopicText(absl::string_view text) {
  for (const char c : text) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_' || c == '-';
    if (!ok) return false;
  }
  return true;
}

}  // namespace

FieldFaults ValidateEventType(absl::string_view name, absl::string_view pointer) {
  if (name.empty() || name.size() > kEventTypeBytesMax) {
    return {{std::string(pointer),
             absl::StrCat("must be 1 to ", kEventTypeBytesMax, " characters long")}};
  }
  if (!IsTopicText(name)) {
    return {{std::string(pointer), "may hold only letters, digits, '.', '_' and '-'"}};
  }
  return {};
}

EventTypePattern ParseEventTypePattern(absl::string_view pattern) {
  if (pattern == "*") return {EventTypePattern::Kind::kPrefix, absl::string_view()};
  if (absl::EndsWith(pattern, ".*")) {
    return {EventTypePattern::Kind::kPrefix, pattern.substr(0, pattern.size() - 1)};
  }
  return {EventTypePattern::Kind::kExact, pattern};
}

FieldFaults ValidateEventTypePatterns(absl::Span<const std::string> patterns,
                                      absl::string_view pointer) {
  if (patterns.empty() || patterns.size() > kEventTypesMax) {
    return {{std::string(pointer), absl::StrCat("must have 1 to ", kEventTypesMax, " entries")}};
  }
  FieldFaults faults;
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (patterns[i] == "*") continue;
    const EventTypePattern pattern = ParseEventTypePattern(patterns[i]);
    const bool empty_prefix =
        pattern.kind == EventTypePattern::Kind::kPrefix && pattern.text == ".";
    FieldFaults found = ValidateEventType(pattern.text, absl::StrCat(pointer, "/", i));
    if (found.empty() && empty_prefix) {
      found.push_back({absl::StrCat(pointer, "/", i), "has nothing before '.*'"});
    }
    if (!found.empty()) {
      absl::StrAppend(&found.front().detail,
                      "; write a type, 'prefix.*', or '*' alone for every type");
      faults.push_back(std::move(found.front()));
    }
  }
  return faults;
}

}  // namespace postrider::subscriptions
