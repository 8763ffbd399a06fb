#include "core/http/egress_proxy.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/options.h"
#include "core/base/status_macros.h"
#include "core/http/url.h"

namespace postrider {
namespace {

constexpr off_t kFileBytesMax = 4'096;
constexpr size_t kTextBytesMax = 255;

absl::Status Fault(absl::string_view option, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("option ", option, ": ", text));
}

bool IsPlain(absl::string_view text) {
  return text.size() <= kTextBytesMax && std::none_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_iscntrl(static_cast<unsigned char>(c));
         });
}

absl::Status ReadCredentials(const std::string& path, EgressProxy* proxy) {
  constexpr absl::string_view kOption = "network.egress_proxy_credentials_file";
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size > kFileBytesMax) {
    return Fault(kOption, absl::StrCat(path, " is no file that can be read"));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "option ", kOption, ": ", path, " may be read by others than its owner; chmod 600 helps"));
  }
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  const std::string contents = all.str();
  const absl::string_view text = absl::StripTrailingAsciiWhitespace(contents);
  const size_t colon = text.find(':');
  if (!file || colon == absl::string_view::npos || colon == 0 || !IsPlain(text.substr(0, colon)) ||
      !IsPlain(text.substr(colon + 1))) {
    return Fault(kOption, absl::StrCat(path, " is not one line user:password"));
  }
  proxy->user = std::string(text.substr(0, colon));
  proxy->password = std::string(text.substr(colon + 1));
  return absl::OkStatus();
}

}  // namespace

void EgressProxyOptions::Register(Options& options) {
  options.Add("network.egress_proxy", &url,
              "An HTTP proxy (http://host:port) through which all deliveries go, by CONNECT to the "
              "address that was resolved and checked here; empty: none. The environment is never "
              "asked for one.");
  options.Add("network.egress_proxy_credentials_file", &credentials_file,
              "A file with a line user:password for network.egress_proxy, readable by its owner "
              "only.");
}

absl::StatusOr<std::shared_ptr<const EgressProxy>> EgressProxyOptions::Load() const {
  constexpr absl::string_view kOption = "network.egress_proxy";
  if (url.empty()) {
    if (credentials_file.empty()) return nullptr;
    return Fault("network.egress_proxy_credentials_file", "there is no network.egress_proxy");
  }
  const absl::StatusOr<HttpUrl> parsed = ParseHttpUrl(url);
  if (!parsed.ok()) return Fault(kOption, parsed.status().message());
  if (parsed->scheme != HttpUrl::Scheme::kHttp || parsed->target != "/") {
    return Fault(kOption, "the URL is not of the form http://host:port");
  }
  auto proxy = std::make_shared<EgressProxy>();
  proxy->host = parsed->host;
  proxy->address = parsed->address;
  proxy->port = parsed->port;
  if (!credentials_file.empty()) RETURN_IF_ERROR(ReadCredentials(credentials_file, proxy.get()));
  return std::shared_ptr<const EgressProxy>(std::move(proxy));
}

}  // namespace postrider
