#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/http/ip_address.h"

namespace postrider {

// An http or https URL in canonical form.
struct HttpUrl {
  enum class Scheme : uint8_t { kHttp, kHttps };

  static constexpr size_t kCharactersMax = 2'000;

  Scheme scheme = Scheme::kHttps;
  // Lower-case ASCII name without a trailing dot, or an address in canonical form (IPv6 without
  // brackets).
  std::string host;
  absl::optional<IpAddress> address;  // when the host is a literal
  uint16_t port = 443;
  std::string target = "/";  // path and query, as the text had them; begins with '/'

  // "host:port", an IPv6 address in brackets.
  std::string authority() const;
  // The whole URL; the scheme's own port is left out.
  std::string ToString() const;
};

// Strict. InvalidArgument, with a sentence for the person who wrote the URL and never a part of it
// that may be secret: not http or https, longer than HttpUrl::kCharactersMax, a character that is
// not printable ASCII, user info, no host, a percent sign or a Unicode letter in the host (A-labels
// are fine), a number that is not a plain dotted IPv4 address (0x7f.1, 127.1, 2130706433), an empty
// or too long label (63) or name (253), a port outside 1..65535, a fragment, a backslash, a broken
// percent escape. Whether the address may be reached is not asked here: see AddressRules. Threads:
// any.
absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view text);

}  // namespace postrider
