#include <curl/curl.h>

#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/http/ip_address.h"
#include "core/http/url.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

std::string CurlPart(CURLU* url, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  const std::string copy(text);
  curl_free(text);
  return copy;
}

// libcurl, which will make the connection, sees the same host, port and target in what we give it.
void CompareWithCurl(const HttpUrl& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> curl(curl_url(), curl_url_cleanup);
  POSTRIDER_CHECK(curl_url_set(curl.get(), CURLUPART_URL, url.ToString().c_str(),
                               CURLU_PATH_AS_IS) == CURLUE_OK);
  const bool brackets = url.address && url.address->family() == IpAddress::Family::kV6;
  POSTRIDER_CHECK(CurlPart(curl.get(), CURLUPART_HOST, 0) ==
                  absl::StrCat(brackets ? "[" : "", url.host, brackets ? "]" : ""));
  POSTRIDER_CHECK(CurlPart(curl.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT) ==
                  absl::StrCat(url.port));
  POSTRIDER_CHECK(CurlPart(curl.get(), CURLUPART_SCHEME, 0) ==
                  (url.scheme == HttpUrl::Scheme::kHttps ? "https" : "http"));
  POSTRIDER_CHECK(CurlPart(curl.get(), CURLUPART_USER, 0).empty());
  POSTRIDER_CHECK(CurlPart(curl.get(), CURLUPART_PASSWORD, 0).empty());
  POSTRIDER_CHECK(CurlPart(curl.get(), CURLUPART_FRAGMENT, 0).empty());
  const size_t mark = url.target.find('?');
  POSTRIDER_CHECK(CurlPart(curl.get(), CURLUPART_PATH, 0) == url.target.substr(0, mark));
  POSTRIDER_CHECK(CurlPart(curl.get(), CURLUPART_QUERY, 0) ==
                  (mark == std::string::npos ? "" : url.target.substr(mark + 1)));
}

void CheckParts(const HttpUrl& url) {
  POSTRIDER_CHECK(url.port != 0 && !url.host.empty() && url.host.size() <= 253);
  POSTRIDER_CHECK(!url.target.empty() && url.target[0] == '/');
  for (const char c : url.target) POSTRIDER_CHECK(c > 0x20 && c < 0x7f && c != '#' && c != '\\');
  if (url.address) {
    POSTRIDER_CHECK(url.address->ToString() == url.host);
    POSTRIDER_CHECK(IpAddress::Parse(url.host) == url.address);
  } else {
    POSTRIDER_CHECK(!IpAddress::Parse(url.host).has_value());
    for (const char c : url.host) {
      POSTRIDER_CHECK(absl::ascii_islower(static_cast<unsigned char>(c)) ||
                      absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
                      c == '.');
    }
    POSTRIDER_CHECK(url.host.front() != '.' && url.host.back() != '.');
  }
}

void Addresses(absl::string_view text) {
  if (const absl::optional<IpAddress> address = IpAddress::Parse(text)) {
    POSTRIDER_CHECK(IpAddress::Parse(address->ToString()) == address);
  }
  if (const absl::optional<IpNetwork> network = IpNetwork::Parse(text)) {
    POSTRIDER_CHECK(network->Contains(network->base));
  }
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  const absl::string_view text = View(data, size);
  Addresses(text);
  const absl::StatusOr<HttpUrl> url = ParseHttpUrl(text);
  if (!url.ok()) return 0;
  CheckParts(*url);
  CompareWithCurl(*url);
  // The canonical form stands for the same and is its own. It may be a little longer than the text.
  const std::string canonical = url->ToString();
  if (canonical.size() > HttpUrl::kCharactersMax) return 0;
  const absl::StatusOr<HttpUrl> again = ParseHttpUrl(canonical);
  POSTRIDER_CHECK(again.ok());
  POSTRIDER_CHECK(again->ToString() == canonical);
  POSTRIDER_CHECK(again->scheme == url->scheme && again->host == url->host);
  POSTRIDER_CHECK(again->address == url->address && again->port == url->port);
  POSTRIDER_CHECK(again->target == url->target);
  return 0;
}
