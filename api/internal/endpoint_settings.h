#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/crypto/key_ring.h"
#include "core/http/address_guard.h"
#include "core/json/json.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/field_fault.h"
#include "subscriptions/registry/repository.h"

// An endpoint's settings as JSON and back; their names and bounds for the document stand in
// endpoint_schema.cc.
namespace postrider::api {

// What a customer sets, all fields present but those that are secret: also what a merge patch is
// applied to.
JsonValue SettingsToJson(const subscriptions::EndpointSettings& settings);
JsonValue EndpointToJson(const subscriptions::Endpoint& endpoint);

// What is secret in a body, in clear; none: it was not given.
struct GivenSecrets {
  absl::optional<std::string> auth{};
  absl::optional<std::string> tls_key{};
};
// Reads all settings; what is absent has its default. URLs are brought into canonical form.
subscriptions::FieldFaults ReadSettings(const JsonValue& body, const AddressRules& rules,
                                        subscriptions::EndpointSettings* settings,
                                        GivenSecrets* secrets);
// Applies a merge patch to the JSON of settings. An `auth` of another kind replaces the one before
// whole.
void PatchSettings(JsonValue& settings, const JsonValue& patch);
// The pointers under which a patch may have members that SettingsToJson() does not show.
std::vector<std::string> OpenPointers();

// Seals what was given; what was not stays as it was in `before` (null: the endpoint is new) where
// it still belongs, and is a fault where it is needed.
subscriptions::FieldFaults SealSettings(const KeyRing& keys, subscriptions::CustomerId customer,
                                        subscriptions::EndpointId endpoint,
                                        const subscriptions::EndpointSettings& settings,
                                        const GivenSecrets& given,
                                        const subscriptions::Endpoint* before,
                                        subscriptions::EndpointSeals* seals);

}  // namespace postrider::api
