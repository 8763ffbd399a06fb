#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider {

// One level of a proven text (core/json/reader.h) taken apart, the values as they stand in it: so
// that a part can be passed on byte for byte. Threads: any.

struct RawMember {
  std::string name;         // without escapes
  absl::string_view value;  // the bytes of the value, without the white space around it
};

// The members of an object in their order, repeated names too; no value if it is another kind.
// `proven` must have been proven.
absl::optional<std::vector<RawMember>> RawMembers(absl::string_view proven);
// The elements of an array; no value if it is another kind.
absl::optional<std::vector<absl::string_view>> RawElements(absl::string_view proven);

}  // namespace postrider
