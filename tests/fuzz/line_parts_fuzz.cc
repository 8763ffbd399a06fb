#include <string>
#include <vector>

#include "api/line_parts.h"
#include "core/base/check.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

// However a body is cut into pieces, its lines come out as they stand in the whole, and are
// counted.
void Cut(absl::string_view text, size_t piece) {
  api::LineParts parts;
  std::string joined;
  int64_t next = 1;
  const auto take = [&] {
    while (true) {
      POSTRIDER_CHECK(parts.next_line() == next);
      const absl::optional<std::string> part = parts.Next();
      if (!part) return;
      for (const char c : *part) next += c == '\n' ? 1 : 0;
      ++next;
      joined += *part + "\n";
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) {
    parts.Add(text.substr(at, piece));
    take();
    POSTRIDER_CHECK(!parts.line_too_long());
  }
  parts.End();
  take();
  std::string whole(text);
  if (!whole.empty() && whole.back() != '\n') whole.push_back('\n');
  POSTRIDER_CHECK(joined == whole);
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  if (size == 0) return 0;
  Cut(View(data + 1, size - 1), 1 + data[0]);
  return 0;
}
