#include <cctype>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "core/base/check.h"
#include "core/http/header_rules.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

bool NaiveName(absl::string_view name) {
  if (name.empty() || name.size() > 128) return false;
  for (const char c : name) {
    if (c <= 0x20 || c >= 0x7f || absl::StrContains("\"(),/:;<=>?@[\\]{}", c)) return false;
  }
  return true;
}

bool NaiveValue(absl::string_view value) {
  if (value.size() > 4096 || absl::StripAsciiWhitespace(value) != value) return false;
  for (const char c : value) {
    if (c != '\t' && (c < 0x20 || c >= 0x7f)) return false;
  }
  return true;
}

bool NaiveReserved(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  for (const char* begin : {"content-", "proxy-", "webhook-"}) {
    if (absl::StartsWith(lower, begin)) return true;
  }
  static const std::set<std::string>& names = *new std::set<std::string>{
      "host",       "transfer-encoding", "te",     "trailer",    "connection",
      "keep-alive", "upgrade",           "expect", "user-agent", "date"};
  return names.contains(lower);
}

// The index of the first header at fault; the number of headers when there is none.
size_t NaiveFirstFault(const HttpHeaders& headers) {
  std::set<std::string> seen;
  for (size_t i = 0; i < headers.size(); ++i) {
    const auto& [name, value] = headers[i];
    if (!NaiveName(name) || NaiveReserved(name) || !NaiveValue(value)) return i;
    if (!seen.insert(absl::AsciiStrToLower(name)).second) return i;
  }
  return headers.size();
}

void Percent(absl::string_view text) {
  const std::string encoded = PercentEncode(text);
  std::string decoded;
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] == '%') {
      POSTRIDER_CHECK(i + 2 < encoded.size());
      decoded.push_back(static_cast<char>(std::stoi(encoded.substr(i + 1, 2), nullptr, 16)));
      i += 2;
    } else {
      decoded.push_back(encoded[i]);
    }
  }
  POSTRIDER_CHECK(decoded == text);
  if (encoded.size() <= kHeaderValueBytesMax) POSTRIDER_CHECK(IsHeaderValue(encoded));
}

}  // namespace
}  // namespace postrider::fuzz

// Counted texts: name, value, name, value.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  const absl::string_view text = View(data, size);
  POSTRIDER_CHECK(IsHeaderName(text) == NaiveName(text));
  POSTRIDER_CHECK(IsHeaderValue(text) == NaiveValue(text));
  POSTRIDER_CHECK(IsReservedHeader(text) == NaiveReserved(text));
  Percent(text);
  Input in(data, size);
  HttpHeaders headers;
  while (!in.empty() && headers.size() <= kCustomHeadersMax) {
    std::string name(in.Text());
    headers.emplace_back(std::move(name), std::string(in.Text()));
  }
  const absl::optional<HeaderFault> fault = FindHeaderFault(headers);
  if (headers.size() > kCustomHeadersMax) {
    POSTRIDER_CHECK(fault && fault->index == kCustomHeadersMax);
    return 0;
  }
  POSTRIDER_CHECK((fault ? fault->index : headers.size()) == NaiveFirstFault(headers));
  // A secret that somebody put into a header does not come back in an error.
  if (fault) {
    const std::string& value = headers[fault->index].second;
    POSTRIDER_CHECK(value.size() < 64 || !absl::StrContains(fault->detail, value));
  }
  return 0;
}
