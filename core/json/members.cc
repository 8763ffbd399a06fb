#include "core/json/members.h"

#include <utility>

#include "core/json/internal/text.h"

namespace postrider {
namespace {

using json_internal::SkipSpace;
using json_internal::SkipValue;

absl::string_view Slice(const char* begin, const char* end) {
  return absl::string_view(begin, static_cast<size_t>(end - begin));
}

}  // namespace

absl::optional<std::vector<RawMember>> RawMembers(absl::string_view proven) {
  const char* const end = proven.data() + proven.size();
  const char* at = SkipSpace(proven.data(), end);
  if (at == end || *at != '{') return absl::nullopt;
  std::vector<RawMember> members;
  at = SkipSpace(at + 1, end);
  while (at != end && *at == '"') {
    const char* const name = at;
    at = SkipValue(at, end);
    RawMember member;
    json_internal::AppendUnescaped(Slice(name + 1, at - 1), &member.name);
    at = SkipSpace(SkipSpace(at, end) + 1, end);  // past the colon
    const char* const value = at;
    at = SkipValue(at, end);
    member.value = Slice(value, at);
    members.push_back(std::move(member));
    at = SkipSpace(at, end);
    if (at != end && *at == ',') at = SkipSpace(at + 1, end);
  }
  return members;
}

absl::optional<std::vector<absl::string_view>> RawElements(absl::string_view proven) {
  const char* const end = proven.data() + proven.size();
  const char* at = SkipSpace(proven.data(), end);
  if (at == end || *at != '[') return absl::nullopt;
  std::vector<absl::string_view> elements;
  at = SkipSpace(at + 1, end);
  while (at != end && *at != ']') {
    const char* const value = at;
    at = SkipValue(at, end);
    elements.push_back(Slice(value, at));
    at = SkipSpace(at, end);
    if (at != end && *at == ',') at = SkipSpace(at + 1, end);
  }
  return elements;
}

}  // namespace postrider
