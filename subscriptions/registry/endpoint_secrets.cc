#include "subscriptions/registry/endpoint_secrets.h"

#include <algorithm>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/status_macros.h"

namespace postrider::subscriptions {
namespace {

// Version 1 had no private keys.
constexpr uint8_t kVersion = 2;

absl::string_view ColumnOf(SealedSetting which) {
  return which == SealedSetting::kAuth ? "auth_sealed" : "tls_key_sealed";
}

// What the sealed value is bound to. The views live as long as this.
struct Place {
  std::string row;
  std::string customer;

  Place(CustomerId customer_id, EndpointId endpoint)
      : row(endpoint.ToUuid()), customer(customer_id.ToUuid()) {}
  SealContext context(absl::string_view column = "secrets_sealed") const {
    return {"endpoints", column, row, customer};
  }
};

}  // namespace

absl::StatusOr<std::string> SealEndpointSecrets(const KeyRing& keys, CustomerId customer,
                                                EndpointId endpoint,
                                                const std::vector<EndpointSecret>& secrets) {
  if (secrets.empty() || secrets.size() > kEndpointSecretsMax) {
    return absl::InvalidArgumentError("registry: an endpoint has 1 to 8 secrets");
  }
  ByteWriter writer;
  writer.U8(kVersion);
  writer.Varint(secrets.size());
  for (const EndpointSecret& secret : secrets) {
    writer.String(secret.secret);
    writer.Zigzag(MillisSinceEpoch(secret.created_at));
    writer.U8(secret.expires_at ? 1 : 0);
    if (secret.expires_at) writer.Zigzag(MillisSinceEpoch(*secret.expires_at));
    writer.String(secret.private_key);
  }
  const Place place(customer, endpoint);
  return keys.Seal(writer.bytes(), place.context());
}

absl::StatusOr<std::vector<EndpointSecret>> OpenEndpointSecrets(const KeyRing& keys,
                                                                CustomerId customer,
                                                                EndpointId endpoint,
                                                                absl::string_view sealed) {
  const Place place(customer, endpoint);
  ASSIGN_OR_RETURN(const std::string plain, keys.Open(sealed, place.context()));
  ByteReader reader(plain);
  const uint8_t version = reader.U8();
  const bool known = version >= 1 && version <= kVersion;
  const uint64_t count = reader.Varint();
  std::vector<EndpointSecret> secrets;
  if (known && count >= 1 && count <= kEndpointSecretsMax) {
    for (uint64_t i = 0; i < count && reader.ok(); ++i) {
      EndpointSecret secret;
      secret.secret = std::string(reader.String());
      secret.created_at = WallTimeFromMillis(reader.Zigzag());
      if (reader.U8() != 0) secret.expires_at = WallTimeFromMillis(reader.Zigzag());
      if (version >= 2) secret.private_key = std::string(reader.String());
      secrets.push_back(std::move(secret));
    }
  }
  if (secrets.empty() || !reader.done()) {
    return absl::DataLossError("registry: an endpoint's secrets have a form that is not known");
  }
  return secrets;
}

std::string SealSetting(const KeyRing& keys, CustomerId customer, EndpointId endpoint,
                        SealedSetting which, absl::string_view plain) {
  const Place place(customer, endpoint);
  return keys.Seal(plain, place.context(ColumnOf(which)));
}

absl::StatusOr<std::string> OpenSetting(const KeyRing& keys, CustomerId customer,
                                        EndpointId endpoint, SealedSetting which,
                                        absl::string_view sealed) {
  const Place place(customer, endpoint);
  return keys.Open(sealed, place.context(ColumnOf(which)));
}

absl::StatusOr<EndpointSealed> Reseal(const KeyRing& keys, CustomerId customer, EndpointId endpoint,
                                      EndpointSealed sealed) {
  const Place place(customer, endpoint);
  const std::pair<std::string*, SealContext> columns[] = {
      {&sealed.secrets, place.context()},
      {&sealed.auth, place.context(ColumnOf(SealedSetting::kAuth))},
      {&sealed.tls_key, place.context(ColumnOf(SealedSetting::kTlsKey))},
  };
  for (const auto& [value, context] : columns) {
    if (value->empty() || keys.IsCurrent(*value)) continue;
    ASSIGN_OR_RETURN(const std::string plain, keys.Open(*value, context));
    *value = keys.Seal(plain, context);
  }
  return sealed;
}

std::vector<EndpointSecret> RotateSecrets(std::vector<EndpointSecret> secrets, std::string fresh,
                                          WallTime now, std::chrono::seconds overlap) {
  std::vector<EndpointSecret> rotated;
  rotated.push_back({std::move(fresh), now, absl::nullopt});
  const WallTime end = now + overlap;
  for (EndpointSecret& secret : secrets) {
    secret.expires_at = secret.expires_at ? std::min(*secret.expires_at, end) : end;
    if (secret.active(now) && rotated.size() < kEndpointSecretsMax) {
      rotated.push_back(std::move(secret));
    }
  }
  return rotated;
}

}  // namespace postrider::subscriptions
