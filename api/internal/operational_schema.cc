#include "api/internal/operational_schema.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"

namespace postrider::api {
namespace {

struct Webhook {
  absl::string_view type;
  absl::string_view summary;
  absl::string_view properties;  // of its data, beside endpoint_id
};

constexpr Webhook kWebhooks[] = {
    {"endpoint.degraded",
     "An endpoint fails: its breaker has opened; again when a quarter, a half and three quarters "
     "of "
     "the time have passed after which it is disabled",
     R"({"failing_since":{"type":"string","format":"date-time"},
"disables_at":{"type":"string","format":"date-time"},"percent":{"enum":[0,25,50,75]},
"last_outcome":{"type":["string","null"]},"last_status":{"type":["integer","null"]}})"},
    {"endpoint.disabled", "An endpoint was disabled by itself",
     R"({"reason":{"enum":["gone","failing"]},"disabled_at":{"type":"string","format":"date-time"},
"failing_since":{"type":["string","null"],"format":"date-time"},
"last_outcome":{"type":["string","null"]},"last_status":{"type":["integer","null"]}})"},
    {"endpoint.recovered", "An endpoint that was degraded or disabled takes what it is sent again",
     R"({"was":{"enum":["degraded","disabled"]},"since":{"type":"string","format":"date-time"}})"},
    {"dead_letters.threshold", "Many messages of an endpoint were given up within an hour",
     R"({"dead_letters":{"type":"integer","minimum":1},
"since":{"type":"string","format":"date-time"}})"},
    {"backlog.threshold", "What waits for an endpoint has come to 50, 80 or 100 percent of a bound",
     R"({"percent":{"enum":[50,80,100]},"messages":{"type":"integer"},"bytes":{"type":"integer"},
"bytes_max":{"type":"integer"},"oldest_at":{"type":["string","null"],"format":"date-time"},
"age_max_ms":{"type":"integer"}})"},
    {"secret.expiring", "An earlier signing secret of an endpoint stops signing within six hours",
     R"({"expires_at":{"type":"string","format":"date-time"}})"},
};

JsonValue Parsed(absl::string_view text) {
  absl::StatusOr<JsonValue> value = JsonValue::Parse(text);
  POSTRIDER_CHECK(value.ok());
  return *std::move(value);
}

JsonValue Schema(const Webhook& webhook) {
  JsonValue properties = Parsed(webhook.properties);
  properties.Set("endpoint_id", Parsed(R"({"type":"string","description":"ep_..."})"));
  JsonValue body = Parsed(R"({"type":"object","properties":{"id":{"type":"string",
"description":"msg_..."},"event_id":{"type":"string","description":"evt_..."},"type":{},
"timestamp":{"type":"string","format":"date-time"},"tenant":{"type":"string",
"description":"customer:cus_..."},"department":{"type":"null"},"data":{}}})");
  JsonValue* fields = body.Find("properties");
  *fields->Find("type") = JsonValue::MakeObject({{"const", webhook.type}});
  *fields->Find("data") =
      JsonValue::MakeObject({{"type", "object"}, {"properties", std::move(properties)}});
  return body;
}

}  // namespace

JsonValue OperationalWebhooks() {
  JsonValue webhooks = JsonValue::MakeObject();
  for (const Webhook& webhook : kWebhooks) {
    JsonValue post = Parsed(R"({"security":[],"requestBody":{"content":{"application/json":{}}},
"responses":{"2XX":{"description":"Taken."}}})");
    post.Set("summary", webhook.summary);
    post.Find("requestBody")
        ->Find("content")
        ->Find("application/json")
        ->Set("schema", Schema(webhook));
    webhooks.Set(webhook.type, JsonValue::MakeObject({{"post", std::move(post)}}));
  }
  return webhooks;
}

}  // namespace postrider::api
