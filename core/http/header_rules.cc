#include "core/http/header_rules.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace postrider {
namespace {

// By byte: asked for every character of every request.
struct Characters {
  std::array<bool, 256> token{};
  std::array<bool, 256> value{};
};

constexpr Characters MakeCharacters() {
  constexpr absl::string_view kTokens =
      "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  Characters characters;
  for (const char c : kTokens) characters.token[static_cast<unsigned char>(c)] = true;
  for (size_t c = 0x20; c <= 0x7e; ++c) characters.value[c] = true;
  characters.value['\t'] = true;
  return characters;
}
constexpr Characters kCharacters = MakeCharacters();

constexpr absl::string_view kReserved[] = {
    "host",       "transfer-encoding", "te",     "trailer",    "connection",
    "keep-alive", "upgrade",           "expect", "user-agent", "date"};
constexpr absl::string_view kReservedPrefixes[] = {"content-", "proxy-", "webhook-"};

}  // namespace

bool IsHeaderName(absl::string_view name) {
  return !name.empty() && name.size() <= kHeaderNameBytesMax &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return kCharacters.token[static_cast<unsigned char>(c)]; });
}

bool IsHeaderValue(absl::string_view value) {
  if (value.size() > kHeaderValueBytesMax) return false;
  if (value.empty()) return true;
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  return !blank(value.front()) && !blank(value.back()) &&
         std::all_of(value.begin(), value.end(),
                     [](char c) { return kCharacters.value[static_cast<unsigned char>(c)]; });
}

bool IsReservedHeader(absl::string_view name) {
  return std::any_of(
             std::begin(kReserved), std::end(kReserved),
             [name](absl::string_view other) { return absl::EqualsIgnoreCase(name, other); }) ||
         std::any_of(
             std::begin(kReservedPrefixes), std::end(kReservedPrefixes),
             [name](absl::string_view prefix) { return absl::StartsWithIgnoreCase(name, prefix); });
}

absl::optional<HeaderFault> FindHeaderFault(const HttpHeaders& headers) {
  if (headers.size() > kCustomHeadersMax) {
    return HeaderFault{kCustomHeadersMax,
                       absl::StrCat("more than ", kCustomHeadersMax, " headers")};
  }
  for (size_t i = 0; i < headers.size(); ++i) {
    const auto& [name, value] = headers[i];
    if (!IsHeaderName(name)) {
      return HeaderFault{i, absl::StrCat("a header's name is 1 to ", kHeaderNameBytesMax,
                                         " letters, digits or !#$%&'*+-.^_`|~")};
    }
    if (IsReservedHeader(name)) {
      return HeaderFault{i, "this header is set by the service itself"};
    }
    if (!IsHeaderValue(value)) {
      return HeaderFault{i, absl::StrCat("a header's value is at most ", kHeaderValueBytesMax,
                                         " printable ASCII characters, without a space at either "
                                         "end")};
    }
    for (size_t earlier = 0; earlier < i; ++earlier) {
      if (absl::EqualsIgnoreCase(headers[earlier].first, name)) {
        return HeaderFault{i, "this header is there twice"};
      }
    }
  }
  return absl::nullopt;
}

std::string PercentEncode(absl::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '.' || c == '_' || c == '~') {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
  }
  return out;
}

}  // namespace postrider
