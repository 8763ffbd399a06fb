#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider {

// Header lines in the order in which they are sent.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

inline constexpr size_t kCustomHeadersMax = 32;
inline constexpr size_t kHeaderNameBytesMax = 128;
inline constexpr size_t kHeaderValueBytesMax = 4'096;

// A token of RFC 9110, at most kHeaderNameBytesMax long.
bool IsHeaderName(absl::string_view name);
// No control characters but tab, no byte above 0x7e, no space or tab at either end, at most
// kHeaderValueBytesMax long.
bool IsHeaderValue(absl::string_view value);
// Headers that only we set, in any letter case: host, content-*, transfer-encoding, te, trailer,
// connection, keep-alive, proxy-*, upgrade, expect, webhook-*, user-agent, date.
bool IsReservedHeader(absl::string_view name);

struct HeaderFault {
  size_t index = 0;  // of the header; kCustomHeadersMax when there are too many
  std::string detail;
};
// The first fault among the headers that a customer has set for an endpoint: not a token, an
// unclean value, reserved, a name twice, too many. The detail never repeats a value.
absl::optional<HeaderFault> FindHeaderFault(const HttpHeaders& headers);

// Every byte but unreserved ones (RFC 3986) as %XX: text of an event becomes fit for a header.
std::string PercentEncode(absl::string_view text);

}  // namespace postrider
