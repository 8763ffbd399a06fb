#include "core/base/internal/yaml_reader.h"

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace postrider::internal {
namespace {

constexpr size_t kTextBytesMax = 1 << 20;
constexpr int kNodesMax = 100'000;
constexpr int kDepthMax = 16;

class Converter {
 public:
  explicit Converter(absl::string_view origin) : origin_(origin) {}

  absl::Status Convert(const YAML::Node& from, int depth, YamlNode* to) {
    to->line = from.Mark().line + 1;
    // Aliases can make a short text large or endless.
    if (depth > kDepthMax) return Fault(to->line, "is nested too deep");
    if (++nodes_ > kNodesMax) return Fault(to->line, "has too many values");
    switch (from.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return absl::OkStatus();
      case YAML::NodeType::Scalar:
        to->kind = YamlNode::Kind::kScalar;
        to->scalar = from.Scalar();
        return absl::OkStatus();
      case YAML::NodeType::Sequence:
        to->kind = YamlNode::Kind::kSequence;
        for (const YAML::Node& item : from) {
          to->items.emplace_back();
          RETURN_IF_ERROR(Convert(item, depth + 1, &to->items.back()));
        }
        return absl::OkStatus();
      case YAML::NodeType::Map:
        return ConvertMapping(from, depth, to);
    }
    return Fault(to->line, "cannot be read");
  }

  absl::Status Fault(int line, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("options ", origin_, ":", line, ": ", what));
  }

 private:
  absl::Status ConvertMapping(const YAML::Node& from, int depth, YamlNode* to) {
    to->kind = YamlNode::Kind::kMapping;
    absl::flat_hash_set<std::string> seen;
    for (const auto& entry : from) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar()) return Fault(line, "a key is not plain text");
      const std::string& key = entry.first.Scalar();
      if (!seen.insert(key).second) return Fault(line, absl::StrCat("key ", key, " stands twice"));
      to->entries.emplace_back(key, YamlNode());
      RETURN_IF_ERROR(Convert(entry.second, depth + 1, &to->entries.back().second));
    }
    return absl::OkStatus();
  }

  const absl::string_view origin_;
  int nodes_ = 0;
};

}  // namespace

// The library reports by exceptions only; none leaves this function.
absl::StatusOr<YamlNode> ReadYaml(absl::string_view text, absl::string_view origin) {
  Converter converter(origin);
  if (text.size() > kTextBytesMax) return converter.Fault(1, "is larger than 1 MB");
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    YamlNode root;
    if (documents.empty()) return root;
    if (documents.size() > 1) return converter.Fault(1, "has more than one document");
    RETURN_IF_ERROR(converter.Convert(documents.front(), 0, &root));
    return root;
  } catch (const YAML::Exception& error) {
    return converter.Fault(error.mark.line + 1, error.msg);
  }
}

}  // namespace postrider::internal
