#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider::internal {

// A YAML document as plain values, so that only one source file knows the library.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };
  Kind kind = Kind::kNull;
  int line = 0;  // from 1
  std::string scalar;
  std::vector<YamlNode> items;                            // of a sequence
  std::vector<std::pair<std::string, YamlNode>> entries;  // of a mapping, in the file's order
};

// Reads one document of at most 1 MB and 100,000 nodes, nested at most 16 deep. An empty text is
// kNull. InvalidArgument, with `origin` and the line, for anything else, for a key twice in one
// mapping and for aliases that loop.
absl::StatusOr<YamlNode> ReadYaml(absl::string_view text, absl::string_view origin);

}  // namespace postrider::internal
