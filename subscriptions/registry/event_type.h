#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "subscriptions/registry/field_fault.h"

namespace postrider::subscriptions {

inline constexpr size_t kEventTypeBytesMax = 200;
inline constexpr size_t kEventTypesMax = 1000;

// A registered type of events: what may be published over REST.
struct EventType {
  std::string name;
  std::string description;
  uint64_t generation = 0;
  WallTime created_at;
  WallTime updated_at;
};

// A topic's characters: letters, digits, '.', '_' and '-', 1 .. kEventTypeBytesMax of them.
FieldFaults ValidateEventType(absl::string_view name, absl::string_view pointer);

// What a subscription or a publisher's key names: a type, "prefix.*", or "*" for every type.
struct EventTypePattern {
  enum class Kind { kExact, kPrefix };
  Kind kind = Kind::kExact;
  absl::string_view text;  // the type, or the prefix with its dot ("order."; "" for every type)

  bool Matches(absl::string_view type) const {
    return kind == Kind::kExact ? type == text : type.substr(0, text.size()) == text;
  }
};
// A view into `pattern`, which must be valid.
EventTypePattern ParseEventTypePattern(absl::string_view pattern);
// 1 .. kEventTypesMax patterns.
FieldFaults ValidateEventTypePatterns(absl::Span<const std::string> patterns,
                                      absl::string_view pointer);

}  // namespace postrider::subscriptions
