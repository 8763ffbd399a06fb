#include "api/internal/endpoint_schema.h"

#include <string>
#include <utility>

#include "core/base/check.h"

namespace postrider::api {
namespace {

// What a customer sets.
constexpr absl::string_view kSettings = R"json({
  "url":{"type":"string","description":"http or https, without user info or fragment",
    "maxLength":2000},
  "description":{"type":"string","maxLength":1000,"default":""},
  "mode":{"type":"string","enum":["batch","streaming"],"default":"batch"},
  "batch":{"type":"object","properties":{
    "events_max":{"type":"integer","minimum":1,"maximum":5000,"default":1000},
    "bytes_max":{"type":"integer","minimum":1024,"maximum":10485760,"default":1048576},
    "wait_max_ms":{"type":"integer","minimum":0,"maximum":60000,"default":1000}},
    "additionalProperties":false},
  "body":{"type":"object","properties":{
    "format":{"type":"string","enum":["envelope","raw","cloudevents","cloudevents_binary",
      "ndjson"],"default":"envelope",
      "description":"raw and cloudevents_binary need the mode streaming"},
    "compression":{"type":"string","enum":["none","gzip","zstd"],"default":"none"}},
    "additionalProperties":false},
  "headers":{"type":"object","properties":{},
    "additionalProperties":{"type":"string","maxLength":4096},"maxProperties":32},
  "signature":{"type":"string","enum":["hmac","ed25519","both"],"default":"hmac",
    "description":"v1, v1a, or both, of Standard Webhooks"},
  "partial_ack":{"type":"boolean","default":false,
    "description":"whether the body of a 2xx is read for messages that failed"},
  "retry":{"type":"object","properties":{
    "attempts":{"type":"integer","minimum":1,"maximum":50,"default":10},
    "horizon_ms":{"type":"integer","minimum":1000,"maximum":604800000,"default":86400000},
    "first_delay_ms":{"type":"integer","minimum":10,"maximum":86400000,"default":5000},
    "factor":{"type":"number","minimum":1,"maximum":10,"default":2},
    "cap_ms":{"type":"integer","minimum":10,"maximum":86400000,"default":3600000},
    "schedule_ms":{"type":"array","items":{"type":"integer","minimum":10,"maximum":86400000},
      "maxItems":49,"default":[],
      "description":"the delays one by one, instead of first_delay_ms, factor and cap_ms; the last one holds for all later ones"}},
    "additionalProperties":false},
  "window_max":{"type":"integer","minimum":1,"maximum":256,"default":32,
    "description":"requests in flight at once"},
  "limits":{"type":"object","properties":{
    "requests_per_second":{"type":["number","null"],"minimum":0.001,"maximum":1000000000},
    "messages_per_second":{"type":["number","null"],"minimum":0.001,"maximum":1000000000},
    "bytes_per_second":{"type":["number","null"],"minimum":0.001,"maximum":1000000000,
      "description":"of bodies, before compression"}},
    "additionalProperties":false},
  "order":{"type":"object","properties":{
    "kind":{"type":"string","enum":["none","key","endpoint"],"default":"none",
      "description":"an order needs a parallelism of 1"},
    "key_pointer":{"type":"string","maxLength":500,"default":"",
      "description":"of kind key: a JSON pointer into the event; empty: its tenant is the key"},
    "blocked":{"type":"string","enum":["hold","dead_letter"],"default":"hold",
      "description":"what becomes of a message that cannot be delivered and holds up others"}},
    "additionalProperties":false},
  "parallelism":{"type":"integer","minimum":1,"maximum":64,"default":1,
    "description":"parts over which the messages of an endpoint without order are spread, each with its own breaker and its share of window_max, limits and backlog.bytes_max; at most window_max, limits.requests_per_second and limits.messages_per_second"},
  "backlog":{"type":"object","properties":{
    "bytes_max":{"type":"integer","minimum":1048576,"maximum":1073741824,"default":1073741824},
    "age_max_ms":{"type":"integer","minimum":60000,"maximum":1209600000,"default":259200000},
    "policy":{"type":"string","enum":["dead_letter_oldest","collapse_by_key"],
      "default":"dead_letter_oldest"},
    "collapse_pointer":{"type":"string","maxLength":500,"default":"",
      "description":"of collapse_by_key: a JSON pointer into the event; empty: its tenant is the key"}},
    "additionalProperties":false},
  "auth":{"oneOf":[
    {"type":"object","properties":{"kind":{"const":"none"}},"required":["kind"],
      "additionalProperties":false},
    {"type":"object","properties":{"kind":{"const":"basic"},
      "username":{"type":"string","minLength":1,"maxLength":1000},
      "password":{"type":"string","minLength":1,"maxLength":4096,"writeOnly":true}},
      "required":["kind","username"],"additionalProperties":false},
    {"type":"object","properties":{"kind":{"const":"bearer"},
      "token":{"type":"string","minLength":1,"maxLength":4096,"writeOnly":true}},
      "required":["kind"],"additionalProperties":false},
    {"type":"object","properties":{"kind":{"const":"header"},
      "name":{"type":"string","minLength":1,"maxLength":128},
      "value":{"type":"string","minLength":1,"maxLength":4096,"writeOnly":true}},
      "required":["kind","name"],"additionalProperties":false},
    {"type":"object","properties":{"kind":{"const":"oauth2"},
      "client_id":{"type":"string","minLength":1,"maxLength":1000},
      "client_secret":{"type":"string","minLength":1,"maxLength":4096,"writeOnly":true},
      "token_url":{"type":"string","maxLength":2000},
      "scope":{"type":"string","maxLength":1000,"default":""}},
      "required":["kind","client_id","token_url"],"additionalProperties":false}],
    "description":"a secret is needed once, and again for another kind; it is never shown"},
  "tls":{"type":"object","properties":{
    "ca_pem":{"type":"string","maxLength":65536,"default":"",
      "description":"trusted instead of the system's certificates"},
    "certificate_pem":{"type":"string","maxLength":65536,"default":"",
      "description":"of the client, with its chain"},
    "key_pem":{"type":"string","maxLength":65536,"writeOnly":true,
      "description":"the key of certificate_pem; it is never shown"}},
    "additionalProperties":false},
  "timeout_ms":{"type":"integer","minimum":1000,"maximum":30000,"default":15000}
})json";

// What is shown beside.
constexpr absl::string_view kShown = R"json({
  "enabled":{"type":"boolean"},
  "pause":{"type":"object","properties":{"by_customer":{"type":"boolean"},
    "by_operator":{"type":"boolean"}}},
  "generation":{"type":"integer","minimum":1},
  "created_at":{"type":"string","format":"date-time"},
  "updated_at":{"type":"string","format":"date-time"}
})json";

JsonValue Parsed(absl::string_view text) {
  absl::StatusOr<JsonValue> value = JsonValue::Parse(text);
  POSTRIDER_CHECK(value.ok());
  return *std::move(value);
}

JsonValue ObjectOf(JsonValue properties) {
  return JsonValue::MakeObject({{"type", "object"}, {"properties", std::move(properties)}});
}

}  // namespace

void AddEndpointSchemas(JsonValue* schemas) {
  const JsonValue settings = Parsed(kSettings);
  JsonValue patch = ObjectOf(settings);
  patch.Set("additionalProperties", false);
  JsonValue input = ObjectOf(settings);
  JsonValue required = JsonValue::MakeArray();
  required.Append("url");
  input.Set("required", std::move(required));
  input.Set("additionalProperties", false);

  JsonValue shown = Parsed(R"({"id":{"type":"string","description":"ep_..."}})");
  for (const JsonMember& member : *settings.object()) shown.Set(member.name, member.value);
  const JsonValue beside = Parsed(kShown);
  for (const JsonMember& member : *beside.object()) shown.Set(member.name, member.value);
  JsonValue created = shown;
  created.Set("secret", Parsed(R"({"type":"string","description":"whsec_...; shown this once"})"));
  created.Set("public_key",
              Parsed(R"({"type":"string","description":"whpk_..., of signatures v1a"})"));
  JsonValue details = shown;
  details.Set("public_keys",
              Parsed(R"({"type":"array","items":{"type":"string"},)"
                     R"("description":"whpk_..., of signatures v1a; the newest first"})"));
  details.Set("last_outcome", Parsed(R"({"type":["string","null"]})"));

  schemas->Set("EndpointInput", std::move(input));
  schemas->Set("EndpointPatch", std::move(patch));
  schemas->Set("Endpoint", ObjectOf(std::move(shown)));
  schemas->Set("EndpointCreated", ObjectOf(std::move(created)));
  schemas->Set("EndpointDetails", ObjectOf(std::move(details)));
}

}  // namespace postrider::api
