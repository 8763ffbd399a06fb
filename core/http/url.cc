#include "core/http/url.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"

namespace postrider {
namespace {

constexpr size_t kHostCharactersMax = 253;
constexpr size_t kLabelCharactersMax = 63;

absl::Status Fault(absl::string_view detail) { return absl::InvalidArgumentError(detail); }

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsHexDigit(char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); }
bool IsAlnum(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

absl::Status CheckCharacters(absl::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) {
      return Fault(
          "the URL has characters outside ASCII: write a host in its A-label form (xn--...) and "
          "the rest percent-encoded");
    }
    if (byte <= 0x20 || byte == 0x7f) return Fault("the URL has a space or a control character");
    if (absl::StrContains("\"<>\\^`{|}", c)) {
      return Fault(
          "the URL has a character that must be percent-encoded: one of \" < > \\ ^ ` { | }");
    }
  }
  return absl::OkStatus();
}

// The last label decides, as the WHATWG rule has it: libraries read such a host as an IPv4 number.
bool LooksNumeric(absl::string_view host) {
  const absl::string_view last = host.substr(host.rfind('.') + 1);
  if (!last.empty() && std::all_of(last.begin(), last.end(), IsDigit)) return true;
  return (absl::StartsWith(last, "0x") || absl::StartsWith(last, "0X")) &&
         std::all_of(last.begin() + 2, last.end(), IsHexDigit);
}

absl::Status SetName(absl::string_view host, HttpUrl* url) {
  absl::string_view name = host;
  absl::ConsumeSuffix(&name, ".");
  if (LooksNumeric(name)) {
    url->address = IpAddress::Parse(host);
    if (!url->address) {
      return Fault("the host is a number but no plain IPv4 address such as 192.0.2.1");
    }
    url->host = url->address->ToString();
    return absl::OkStatus();
  }
  if (name.size() > kHostCharactersMax) return Fault("the host is longer than 253 characters");
  for (const absl::string_view label : absl::StrSplit(name, '.')) {
    if (label.empty()) return Fault("the host has an empty label");
    if (label.size() > kLabelCharactersMax) {
      return Fault("the host has a label longer than 63 characters");
    }
    if (label.front() == '-' || label.back() == '-') {
      return Fault("a label of the host begins or ends with a hyphen");
    }
    for (const char c : label) {
      if (c == '%') return Fault("the host has a percent sign; write it in plain characters");
      if (!IsAlnum(c) && c != '-' && c != '_') {
        return Fault("the host has a character that no host name has");
      }
    }
  }
  url->host = absl::AsciiStrToLower(name);
  return absl::OkStatus();
}

absl::Status SetPort(absl::string_view digits, HttpUrl* url) {
  int port = 0;
  if (digits.empty() || digits.size() > 5 || digits.front() == '0' ||
      !std::all_of(digits.begin(), digits.end(), IsDigit) || !absl::SimpleAtoi(digits, &port) ||
      port > 65'535) {
    return Fault("the port is not a number from 1 to 65535");
  }
  url->port = static_cast<uint16_t>(port);
  return absl::OkStatus();
}

absl::Status SetAuthority(absl::string_view authority, HttpUrl* url) {
  if (absl::StrContains(authority, '@')) {
    return Fault("the URL has user info (user:password@); set a header instead");
  }
  if (authority.empty()) return Fault("the URL has no host");
  absl::string_view rest;
  if (authority.front() == '[') {
    const size_t end = authority.find(']');
    if (end == absl::string_view::npos) return Fault("the IPv6 address has no closing bracket");
    url->address = IpAddress::Parse(authority.substr(1, end - 1));
    if (!url->address || url->address->family() != IpAddress::Family::kV6) {
      return Fault("the host in brackets is no IPv6 address");
    }
    url->host = url->address->ToString();
    rest = authority.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') return Fault("the host is followed by something odd");
  } else {
    const size_t colon = authority.find(':');
    const absl::string_view host = authority.substr(0, colon);
    if (host.empty()) return Fault("the URL has no host");
    RETURN_IF_ERROR(SetName(host, url));
    if (colon != absl::string_view::npos) rest = authority.substr(colon);
  }
  return rest.empty() ? absl::OkStatus() : SetPort(rest.substr(1), url);
}

absl::Status SetTarget(absl::string_view text, HttpUrl* url) {
  if (absl::StrContains(text, '#')) return Fault("the URL has a fragment (#...)");
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') continue;
    if (i + 2 >= text.size() || !IsHexDigit(text[i + 1]) || !IsHexDigit(text[i + 2])) {
      return Fault("the URL has a percent sign without two hexadecimal digits");
    }
  }
  url->target = absl::StrCat(absl::StartsWith(text, "/") ? "" : "/", text);
  return absl::OkStatus();
}

}  // namespace

std::string HttpUrl::authority() const {
  const bool brackets = address && address->family() == IpAddress::Family::kV6;
  return absl::StrCat(brackets ? "[" : "", host, brackets ? "]:" : ":", port);
}

std::string HttpUrl::ToString() const {
  const bool https = scheme == Scheme::kHttps;
  std::string place = authority();
  if (port == (https ? 443 : 80)) place.erase(place.rfind(':'));
  return absl::StrCat(https ? "https://" : "http://", place, target);
}

absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view text) {
  if (text.empty()) return Fault("the URL is empty");
  if (text.size() > HttpUrl::kCharactersMax) return Fault("the URL is longer than 2000 characters");
  RETURN_IF_ERROR(CheckCharacters(text));
  HttpUrl url;
  if (absl::StartsWithIgnoreCase(text, "https://")) {
    text.remove_prefix(8);
  } else if (absl::StartsWithIgnoreCase(text, "http://")) {
    text.remove_prefix(7);
    url.scheme = HttpUrl::Scheme::kHttp;
    url.port = 80;
  } else {
    return Fault("the URL does not begin with http:// or https://");
  }
  const size_t end = std::min(text.find_first_of("/?#"), text.size());
  RETURN_IF_ERROR(SetAuthority(text.substr(0, end), &url));
  RETURN_IF_ERROR(SetTarget(text.substr(end), &url));
  return url;
}

}  // namespace postrider
