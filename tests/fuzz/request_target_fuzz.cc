#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/router.h"
#include "core/base/check.h"
#include "core/http/header_rules.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

// The longest way to write it; what is written is read back.
std::string Write(const api::Target& target) {
  std::string text;
  for (const std::string& segment : target.segments) {
    absl::StrAppend(&text, "/", PercentEncode(segment));
  }
  char before = '?';
  for (const auto& [name, value] : target.query) {
    absl::StrAppend(&text, std::string(1, before), PercentEncode(name), "=", PercentEncode(value));
    before = '&';
  }
  return text;
}

void Parse(absl::string_view text) {
  const absl::optional<api::Target> target = api::ParseTarget(text);
  if (!target) return;
  POSTRIDER_CHECK(!target->path.empty() && target->path[0] == '/');
  POSTRIDER_CHECK(absl::string_view(text).substr(0, target->path.size()) == target->path);
  POSTRIDER_CHECK(!target->segments.empty());
  for (const std::string& segment : target->segments) {
    POSTRIDER_CHECK(text.find('\0') != absl::string_view::npos ||
                    segment.find('\0') == std::string::npos);
  }
  const absl::optional<api::Target> again = api::ParseTarget(Write(*target));
  if (text.find('\0') != absl::string_view::npos) return;
  POSTRIDER_CHECK(again.has_value());
  POSTRIDER_CHECK(again->segments == target->segments);
  POSTRIDER_CHECK(again->query == target->query);
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Parse(View(data, size));
  return 0;
}
