#pragma once

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/stream/keyed_state.h"

namespace postrider {

// Values of durable state as text, in version 1.
template <typename Number>
StateSerializer<Number> NumberSerializer() {
  StateSerializer<Number> serializer;
  serializer.encode = [](const Number& value, uint32_t) { return absl::StrCat(value); };
  serializer.decode = [](absl::string_view bytes, uint32_t) -> absl::optional<Number> {
    Number value = 0;
    if (!absl::SimpleAtoi(bytes, &value)) return absl::nullopt;
    return value;
  };
  return serializer;
}

inline StateSerializer<std::string> TextSerializer() {
  StateSerializer<std::string> serializer;
  serializer.encode = [](const std::string& value, uint32_t) { return value; };
  serializer.decode = [](absl::string_view bytes, uint32_t) {
    return absl::optional<std::string>(std::string(bytes));
  };
  return serializer;
}

}  // namespace postrider
