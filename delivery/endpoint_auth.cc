#include "delivery/endpoint_auth.h"

#include <initializer_list>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/bytes.h"
#include "core/base/status_macros.h"
#include "core/crypto/digest.h"
#include "core/http/header_rules.h"
#include "core/http/url.h"
#include "subscriptions/registry/endpoint_secrets.h"

namespace postrider::delivery {
namespace {

using subscriptions::AuthKind;
using subscriptions::AuthSettings;
using subscriptions::Endpoint;
using subscriptions::SealedSetting;

absl::Status Unfit(absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("delivery: the endpoint's auth: ", why));
}

std::string DigestOf(std::initializer_list<absl::string_view> parts) {
  ByteWriter writer;
  for (const absl::string_view part : parts) writer.String(part);
  return std::string(DigestView(Sha256(writer.bytes())));
}

}  // namespace

absl::StatusOr<EndpointAuth> PrepareAuth(const Endpoint& endpoint, const KeyRing& keys) {
  EndpointAuth auth;
  const AuthSettings& settings = endpoint.settings.auth;
  if (settings.kind == AuthKind::kNone) return auth;
  if (endpoint.auth_sealed.empty()) return Unfit("its secret is missing");
  ASSIGN_OR_RETURN(std::string secret,
                   subscriptions::OpenSetting(keys, endpoint.customer, endpoint.id,
                                              SealedSetting::kAuth, endpoint.auth_sealed));
  std::string name = "authorization";
  std::string value;
  switch (settings.kind) {
    case AuthKind::kNone:
      break;
    case AuthKind::kBasic:
      // RFC 7617: the first colon ends the user.
      if (absl::StrContains(settings.name, ':')) return Unfit("the user has a colon");
      value = absl::StrCat("Basic ", absl::Base64Escape(absl::StrCat(settings.name, ":", secret)));
      break;
    case AuthKind::kBearer:
      value = absl::StrCat("Bearer ", secret);
      break;
    case AuthKind::kHeader:
      name = settings.name;
      value = std::move(secret);
      break;
    case AuthKind::kOAuth2: {
      absl::StatusOr<HttpUrl> url = ParseHttpUrl(settings.token_url);
      if (!url.ok()) return Unfit("the token URL is none");
      auth.token = TokenSource::Make(endpoint.customer, *std::move(url), settings.name,
                                     std::move(secret), settings.scope);
      return auth;
    }
  }
  if (!IsHeaderName(name) || IsReservedHeader(name)) return Unfit("the header's name is unfit");
  if (value.empty() || !IsHeaderValue(value)) return Unfit("it is unfit for a header");
  auth.header.emplace(std::move(name), std::move(value));
  return auth;
}

absl::StatusOr<std::shared_ptr<const TlsMaterial>> PrepareTls(const Endpoint& endpoint,
                                                              const KeyRing& keys) {
  const subscriptions::TlsSettings& settings = endpoint.settings.tls;
  if (settings.ca_pem.empty() && settings.certificate_pem.empty()) return nullptr;
  auto material = std::make_shared<TlsMaterial>();
  material->ca_pem = settings.ca_pem;
  if (!settings.certificate_pem.empty()) {
    if (endpoint.tls_key_sealed.empty()) return Unfit("the certificate's key is missing");
    material->certificate_pem = settings.certificate_pem;
    ASSIGN_OR_RETURN(material->key_pem,
                     subscriptions::OpenSetting(keys, endpoint.customer, endpoint.id,
                                                SealedSetting::kTlsKey, endpoint.tls_key_sealed));
  }
  material->digest = DigestOf({material->ca_pem, material->certificate_pem, material->key_pem});
  return std::shared_ptr<const TlsMaterial>(std::move(material));
}

std::string ConnectionGroup(const Endpoint& endpoint) {
  std::string group(endpoint.customer.view());
  const AuthSettings& auth = endpoint.settings.auth;
  if (auth.kind != AuthKind::kNone) {
    absl::StrAppend(&group, DigestOf({absl::StrCat(static_cast<int>(auth.kind)), auth.name,
                                      auth.token_url, auth.scope, endpoint.auth_sealed}));
  }
  return group;
}

}  // namespace postrider::delivery
