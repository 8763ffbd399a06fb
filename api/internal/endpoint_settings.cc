#include "api/internal/endpoint_settings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/internal/fields.h"
#include "core/crypto/certificate.h"
#include "core/http/url.h"
#include "core/json/time_text.h"
#include "subscriptions/registry/endpoint_names.h"
#include "subscriptions/registry/endpoint_secrets.h"

namespace postrider::api {
namespace {

using subscriptions::AuthKind;
using subscriptions::AuthSettings;
using subscriptions::Endpoint;
using subscriptions::EndpointSettings;
using subscriptions::FieldFaults;
using subscriptions::SealedSetting;

JsonValue RateToJson(const absl::optional<double>& rate) {
  return rate ? JsonValue(*rate) : JsonValue();
}

JsonValue AuthToJson(const AuthSettings& auth) {
  JsonValue json = JsonValue::MakeObject({{"kind", AuthKindName(auth.kind)}});
  if (const absl::string_view field = AuthNameField(auth.kind); !field.empty()) {
    json.Set(field, auth.name);
  }
  if (auth.kind == AuthKind::kOAuth2) {
    json.Set("token_url", auth.token_url);
    json.Set("scope", auth.scope);
  }
  return json;
}

// A choice by its name; `words` says what is allowed.
template <typename E>
void ReadChoice(FieldReader& fields, absl::string_view name,
                absl::optional<E> (*parse)(absl::string_view), absl::string_view words, E* out) {
  std::string text;
  if (!fields.String(name, &text)) return;
  if (const absl::optional<E> value = parse(text)) {
    *out = *value;
  } else {
    fields.Fault(name, absl::StrCat("must be ", words));
  }
}

void ReadRate(FieldReader& fields, absl::string_view name, absl::optional<double>* out) {
  double rate = 0;
  if (fields.Number(name, &rate)) *out = rate;
}

void ReadSecret(FieldReader& fields, absl::string_view name, absl::optional<std::string>* out) {
  std::string text;
  if (fields.String(name, &text)) *out = std::move(text);
}

void ReadHeaders(FieldReader& fields, EndpointSettings* settings) {
  const JsonValue* headers = fields.Take("headers");
  settings->headers.clear();
  if (headers == nullptr) return;
  if (!headers->is_object()) return fields.Fault("headers", "must be an object of strings");
  for (const JsonMember& member : *headers->object()) {
    if (!member.value.is_string()) {
      fields.Fault("headers", "must be an object of strings");
    } else {
      settings->headers.emplace_back(member.name, *member.value.string());
    }
  }
}

void ReadRetry(FieldReader& fields, FieldFaults& faults, subscriptions::RetrySettings* settings) {
  FieldReader retry(fields.Take("retry"), "/retry", faults);
  retry.Int("attempts", &settings->attempts);
  retry.Millis("horizon_ms", &settings->horizon);
  retry.Millis("first_delay_ms", &settings->first_delay);
  retry.Number("factor", &settings->factor);
  retry.Millis("cap_ms", &settings->cap);
  std::vector<int64_t> schedule;
  if (retry.IntList("schedule_ms", &schedule)) {
    for (const int64_t delay : schedule) settings->schedule.emplace_back(delay);
  }
  retry.Finish();
}

void ReadAuth(FieldReader& fields, FieldFaults& faults, AuthSettings* auth,
              absl::optional<std::string>* secret) {
  const JsonValue* object = fields.Take("auth");
  if (object == nullptr) return;
  FieldReader reader(object, "/auth", faults);
  reader.Required("kind");
  ReadChoice(reader, "kind", subscriptions::ParseAuthKind, "none, basic, bearer, header or oauth2",
             &auth->kind);
  if (const absl::string_view name = AuthNameField(auth->kind); !name.empty()) {
    reader.RequiredString(name, &auth->name);
  }
  if (const absl::string_view name = AuthSecretField(auth->kind); !name.empty()) {
    ReadSecret(reader, name, secret);
  }
  if (auth->kind == AuthKind::kOAuth2) {
    reader.RequiredString("token_url", &auth->token_url);
    reader.String("scope", &auth->scope);
  }
  reader.Finish();
}

void ReadDelivery(FieldReader& fields, FieldFaults& faults, EndpointSettings* settings,
                  GivenSecrets* secrets) {
  FieldReader body(fields.Take("body"), "/body", faults);
  ReadChoice(body, "format", subscriptions::ParseBodyFormat,
             "envelope, raw, cloudevents, cloudevents_binary or ndjson", &settings->body.format);
  ReadChoice(body, "compression", subscriptions::ParseBodyCompression, "none, gzip or zstd",
             &settings->body.compression);
  body.Finish();
  ReadChoice(fields, "signature", subscriptions::ParseSignatureScheme, "hmac, ed25519 or both",
             &settings->signature);
  fields.Bool("partial_ack", &settings->partial_ack);
  FieldReader limits(fields.Take("limits"), "/limits", faults);
  ReadRate(limits, "requests_per_second", &settings->limits.requests_per_second);
  ReadRate(limits, "messages_per_second", &settings->limits.messages_per_second);
  ReadRate(limits, "bytes_per_second", &settings->limits.bytes_per_second);
  limits.Finish();
  FieldReader order(fields.Take("order"), "/order", faults);
  ReadChoice(order, "kind", subscriptions::ParseOrderKind, "none, key or endpoint",
             &settings->order.kind);
  order.String("key_pointer", &settings->order.key_pointer);
  ReadChoice(order, "blocked", subscriptions::ParseBlockedHead, "hold or dead_letter",
             &settings->order.blocked);
  order.Finish();
  fields.Int("parallelism", &settings->parallelism);
  FieldReader backlog(fields.Take("backlog"), "/backlog", faults);
  backlog.Int("bytes_max", &settings->backlog.bytes_max);
  backlog.Millis("age_max_ms", &settings->backlog.age_max);
  ReadChoice(backlog, "policy", subscriptions::ParseBacklogPolicy,
             "dead_letter_oldest or collapse_by_key", &settings->backlog.policy);
  backlog.String("collapse_pointer", &settings->backlog.collapse_pointer);
  backlog.Finish();
  ReadAuth(fields, faults, &settings->auth, &secrets->auth);
  FieldReader tls(fields.Take("tls"), "/tls", faults);
  tls.String("ca_pem", &settings->tls.ca_pem);
  tls.String("certificate_pem", &settings->tls.certificate_pem);
  ReadSecret(tls, "key_pem", &secrets->tls_key);
  tls.Finish();
}

// Brings a valid URL into canonical form.
void CheckUrl(const AddressRules& rules, absl::string_view pointer, std::string* text,
              FieldFaults* faults) {
  const auto url = ParseHttpUrl(*text);
  if (!url.ok()) return;  // Validate() has said so
  *text = url->ToString();
  // One text for every reason: a customer learns nothing about our network.
  if (rules.IsOwnHost(url->host) ||
      (url->address && rules.Check(*url->address, url->port) != AddressRules::Verdict::kAllowed)) {
    faults->push_back({std::string(pointer), "leads to an address that is not allowed"});
  }
}

}  // namespace

JsonValue SettingsToJson(const EndpointSettings& settings) {
  JsonValue headers = JsonValue::MakeObject();
  for (const auto& [name, value] : settings.headers) headers.Set(name, value);
  JsonValue schedule = JsonValue::MakeArray();
  for (const std::chrono::milliseconds delay : settings.retry.schedule) {
    schedule.Append(delay.count());
  }
  JsonValue json = JsonValue::MakeObject(
      {{"url", settings.url},
       {"description", settings.description},
       {"mode", subscriptions::EndpointModeName(settings.mode)},
       {"batch", JsonValue::MakeObject({{"events_max", settings.batch.events_max},
                                        {"bytes_max", settings.batch.bytes_max},
                                        {"wait_max_ms", settings.batch.wait_max.count()}})},
       {"body",
        JsonValue::MakeObject({{"format", BodyFormatName(settings.body.format)},
                               {"compression", BodyCompressionName(settings.body.compression)}})},
       {"headers", std::move(headers)},
       {"signature", SignatureSchemeName(settings.signature)},
       {"partial_ack", settings.partial_ack},
       {"retry", JsonValue::MakeObject({{"attempts", settings.retry.attempts},
                                        {"horizon_ms", settings.retry.horizon.count()},
                                        {"first_delay_ms", settings.retry.first_delay.count()},
                                        {"factor", settings.retry.factor},
                                        {"cap_ms", settings.retry.cap.count()},
                                        {"schedule_ms", std::move(schedule)}})},
       {"window_max", settings.window_max},
       {"limits", JsonValue::MakeObject(
                      {{"requests_per_second", RateToJson(settings.limits.requests_per_second)},
                       {"messages_per_second", RateToJson(settings.limits.messages_per_second)},
                       {"bytes_per_second", RateToJson(settings.limits.bytes_per_second)}})},
       {"order", JsonValue::MakeObject({{"kind", OrderKindName(settings.order.kind)},
                                        {"key_pointer", settings.order.key_pointer},
                                        {"blocked", BlockedHeadName(settings.order.blocked)}})},
       {"parallelism", settings.parallelism},
       {"backlog",
        JsonValue::MakeObject({{"bytes_max", settings.backlog.bytes_max},
                               {"age_max_ms", settings.backlog.age_max.count()},
                               {"policy", BacklogPolicyName(settings.backlog.policy)},
                               {"collapse_pointer", settings.backlog.collapse_pointer}})},
       {"auth", AuthToJson(settings.auth)},
       {"tls", JsonValue::MakeObject({{"ca_pem", settings.tls.ca_pem},
                                      {"certificate_pem", settings.tls.certificate_pem}})},
       {"timeout_ms", settings.timeout.count()}});
  return json;
}

JsonValue EndpointToJson(const Endpoint& endpoint) {
  JsonValue object = JsonValue::MakeObject({{"id", endpoint.id.ToString()}});
  const JsonValue settings = SettingsToJson(endpoint.settings);
  for (const JsonMember& member : *settings.object()) object.Set(member.name, member.value);
  object.Set("enabled", endpoint.settings.enabled);
  object.Set("pause",
             JsonValue::MakeObject({{"by_customer", endpoint.settings.pause.by_customer},
                                    {"by_operator", endpoint.settings.pause.by_operator}}));
  object.Set("generation", endpoint.generation);
  object.Set("created_at", FormatRfc3339(endpoint.created_at));
  object.Set("updated_at", FormatRfc3339(endpoint.updated_at));
  return object;
}

FieldFaults ReadSettings(const JsonValue& body, const AddressRules& rules,
                         EndpointSettings* settings, GivenSecrets* secrets) {
  FieldFaults faults;
  FieldReader fields(&body, "", faults);
  fields.RequiredString("url", &settings->url);
  fields.String("description", &settings->description);
  ReadChoice(fields, "mode", subscriptions::ParseEndpointMode, "batch or streaming",
             &settings->mode);
  FieldReader batch(fields.Take("batch"), "/batch", faults);
  batch.Int("events_max", &settings->batch.events_max);
  batch.Int("bytes_max", &settings->batch.bytes_max);
  batch.Millis("wait_max_ms", &settings->batch.wait_max);
  batch.Finish();
  ReadHeaders(fields, settings);
  ReadRetry(fields, faults, &settings->retry);
  fields.Int("window_max", &settings->window_max);
  ReadDelivery(fields, faults, settings, secrets);
  fields.Millis("timeout_ms", &settings->timeout);
  fields.Finish();
  for (auto& fault : subscriptions::Validate(*settings)) faults.push_back(fault);
  CheckUrl(rules, "/url", &settings->url, &faults);
  if (settings->auth.kind == AuthKind::kOAuth2) {
    CheckUrl(rules, "/auth/token_url", &settings->auth.token_url, &faults);
  }
  KeepFirstFaults(&faults);
  return faults;
}

void PatchSettings(JsonValue& settings, const JsonValue& patch) {
  const JsonValue* auth = patch.Find("auth");
  const JsonValue* kind = auth == nullptr ? nullptr : auth->Find("kind");
  const JsonValue* before = settings.Find("auth");
  if (kind != nullptr && before != nullptr && before->Find("kind") != nullptr &&
      !(*kind == *before->Find("kind"))) {
    settings.Remove("auth");
  }
  MergePatch(settings, patch);
}

std::vector<std::string> OpenPointers() { return {"/headers", "/auth", "/tls"}; }

FieldFaults SealSettings(const KeyRing& keys, subscriptions::CustomerId customer,
                         subscriptions::EndpointId endpoint, const EndpointSettings& settings,
                         const GivenSecrets& given, const Endpoint* before,
                         subscriptions::EndpointSeals* seals) {
  FieldFaults faults;
  const AuthKind kind = settings.auth.kind;
  const std::string auth_field = absl::StrCat("/auth/", AuthSecretField(kind));
  if (kind != AuthKind::kNone && given.auth) {
    faults = subscriptions::ValidateAuthSecret(kind, *given.auth);
    seals->auth = SealSetting(keys, customer, endpoint, SealedSetting::kAuth, *given.auth);
  } else if (kind != AuthKind::kNone) {
    if (before != nullptr && before->settings.auth.kind == kind) seals->auth = before->auth_sealed;
    if (seals->auth.empty()) faults.push_back({auth_field, "is required"});
  }

  const std::string& certificate = settings.tls.certificate_pem;
  const auto key_fault = [&](absl::string_view detail) {
    faults.push_back({"/tls/key_pem", std::string(detail)});
  };
  if (certificate.empty()) {
    if (given.tls_key) key_fault("needs a certificate_pem");
  } else if (given.tls_key) {
    if (const absl::Status fits = CheckKeyOfCertificate(certificate, *given.tls_key); !fits.ok()) {
      key_fault(fits.message());
    }
    seals->tls_key = SealSetting(keys, customer, endpoint, SealedSetting::kTlsKey, *given.tls_key);
  } else if (before != nullptr && !before->tls_key_sealed.empty()) {
    seals->tls_key = before->tls_key_sealed;
    if (certificate != before->settings.tls.certificate_pem) {
      // A certificate may be renewed for the same key.
      const auto key =
          OpenSetting(keys, customer, endpoint, SealedSetting::kTlsKey, before->tls_key_sealed);
      if (!key.ok() || !CheckKeyOfCertificate(certificate, *key).ok()) {
        key_fault("is required for this certificate");
      }
    }
  } else {
    key_fault("is required");
  }
  return faults;
}

}  // namespace postrider::api
