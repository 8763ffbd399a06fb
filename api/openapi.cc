#include "api/openapi.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/idempotency_key.h"
#include "api/internal/endpoint_schema.h"
#include "api/internal/operational_schema.h"
#include "api/internal/schemas.h"
#include "core/base/check.h"
#include "core/json/json.h"

namespace postrider::api {
namespace {

JsonValue Reference(const JsonValue& schemas, absl::string_view name) {
  POSTRIDER_CHECK(schemas.Find(name) != nullptr);
  return JsonValue::MakeObject({{"$ref", absl::StrCat("#/components/schemas/", name)}});
}

JsonValue Content(absl::string_view type, JsonValue schema) {
  return JsonValue::MakeObject({{type, JsonValue::MakeObject({{"schema", std::move(schema)}})}});
}

JsonValue ParametersOf(const Route& route) {
  JsonValue parameters = JsonValue::MakeArray();
  for (const absl::string_view segment : absl::StrSplit(route.path, '/')) {
    if (segment.empty() || segment.front() != '{') continue;
    parameters.Append(
        JsonValue::MakeObject({{"name", segment.substr(1, segment.size() - 2)},
                               {"in", "path"},
                               {"required", true},
                               {"schema", JsonValue::MakeObject({{"type", "string"}})}}));
  }
  for (const QueryParameter& parameter : route.query) {
    parameters.Append(
        JsonValue::MakeObject({{"name", parameter.name},
                               {"in", "query"},
                               {"description", parameter.description},
                               {"schema", JsonValue::MakeObject({{"type", "string"}})}}));
  }
  if (TakesIdempotencyKey(route)) {
    parameters.Append(JsonValue::MakeObject({{"$ref", "#/components/parameters/IdempotencyKey"}}));
  }
  return parameters;
}

JsonValue SharedParameters() {
  return JsonValue::MakeObject(
      {{"IdempotencyKey",
        JsonValue::MakeObject(
            {{"name", "Idempotency-Key"},
             {"in", "header"},
             {"description",
              "Any text that is new for each request, such as a UUID. The same request with the "
              "same key is done once: for 24 hours it gets the first answer again, with "
              "Idempotency-Replayed; 409 while the first is under way, 422 when the key was used "
              "for another path, query, If-Match or body. Answers other than 2xx are not kept."},
             {"schema", JsonValue::MakeObject({{"type", "string"},
                                               {"minLength", 1},
                                               {"maxLength", 255},
                                               {"pattern", "^[ -~]+$"}})}})}});
}

JsonValue SharedHeaders() {
  return JsonValue::MakeObject(
      {{"IdempotencyReplayed",
        JsonValue::MakeObject(
            {{"description",
              "There when this is the kept answer to an earlier request with the same "
              "Idempotency-Key."},
             {"schema",
              JsonValue::MakeObject(
                  {{"type", "string"}, {"enum", JsonValue::MakeArray().Append("true")}})}})}});
}

absl::string_view ScopeText(RequiredScope scope) {
  switch (scope) {
    case RequiredScope::kNone:
      return "Needs no key.";
    case RequiredScope::kOperator:
      return "Needs a key of scope operator.";
    case RequiredScope::kCustomer:
      return "Needs a key of scope customer.";
    case RequiredScope::kPublisher:
      return "Needs a key of scope publisher.";
  }
  POSTRIDER_CHECK(false);
}

JsonValue Operation(const Route& route, const JsonValue& schemas) {
  std::string description(ScopeText(route.scope));
  if (route.method != HttpMethod::kGet && !TakesIdempotencyKey(route)) {
    description += " Takes no Idempotency-Key.";
  }
  JsonValue operation = JsonValue::MakeObject({{"operationId", route.operation_id},
                                               {"summary", route.summary},
                                               {"description", std::move(description)}});
  if (route.scope == RequiredScope::kNone) operation.Set("security", JsonValue::MakeArray());
  JsonValue parameters = ParametersOf(route);
  if (!parameters.array()->empty()) operation.Set("parameters", std::move(parameters));
  if (!route.request_schema.empty()) {
    JsonValue content = Content("application/json", Reference(schemas, route.request_schema));
    if (route.takes_lines) {
      content.Set(
          "application/x-ndjson",
          JsonValue::MakeObject(
              {{"schema", JsonValue::MakeObject({{"type", "string"},
                                                 {"description",
                                                  "One on each line; stored while it comes in, "
                                                  "so lines that are refused leave the others "
                                                  "as they are."}})}}));
    }
    operation.Set("requestBody", JsonValue::MakeObject({{"content", std::move(content)}}));
  }
  JsonValue success = JsonValue::MakeObject({{"description", "Done."}});
  if (TakesIdempotencyKey(route)) {
    success.Set(
        "headers",
        JsonValue::MakeObject(
            {{"Idempotency-Replayed",
              JsonValue::MakeObject({{"$ref", "#/components/headers/IdempotencyReplayed"}})}}));
  }
  if (!route.response_schema.empty()) {
    success.Set("content", Content("application/json", Reference(schemas, route.response_schema)));
  }
  operation.Set("responses",
                JsonValue::MakeObject(
                    {{absl::StrCat(route.success_status), std::move(success)},
                     {"default", JsonValue::MakeObject(
                                     {{"description", "An error (RFC 9457)."},
                                      {"content", Content("application/problem+json",
                                                          Reference(schemas, "Problem"))}})}}));
  return operation;
}

}  // namespace

std::string OpenApiDocument(absl::Span<const Route> routes) {
  absl::StatusOr<JsonValue> schemas = JsonValue::Parse(SchemasJson());
  POSTRIDER_CHECK(schemas.ok());
  AddEndpointSchemas(&*schemas);
  JsonValue paths = JsonValue::MakeObject();
  for (const Route& route : routes) {
    if (paths.Find(route.path) == nullptr) paths.Set(route.path, JsonValue::MakeObject());
    paths.Find(route.path)
        ->Set(absl::AsciiStrToLower(HttpMethodName(route.method)), Operation(route, *schemas));
  }
  const JsonValue security = JsonValue::MakeObject(
      {{"key", JsonValue::MakeObject({{"type", "http"},
                                      {"scheme", "bearer"},
                                      {"bearerFormat", "pr_<id>_<secret><checksum>"}})}});
  JsonValue needed = JsonValue::MakeArray();
  needed.Append(JsonValue::MakeObject({{"key", JsonValue::MakeArray()}}));
  return JsonValue::MakeObject(
             {{"openapi", "3.1.0"},
              {"info", JsonValue::MakeObject(
                           {{"title", "Postrider"},
                            {"version", POSTRIDER_VERSION},
                            {"license", JsonValue::MakeObject({{"name", "Apache-2.0"},
                                                               {"identifier", "Apache-2.0"}})}})},
              {"security", std::move(needed)},
              {"paths", std::move(paths)},
              {"webhooks", OperationalWebhooks()},
              {"components", JsonValue::MakeObject({{"schemas", *std::move(schemas)},
                                                    {"parameters", SharedParameters()},
                                                    {"headers", SharedHeaders()},
                                                    {"securitySchemes", security}})}})
      .Serialize();
}

void AddOpenApiRoute(Router* router) {
  Route route{.method = HttpMethod::kGet,
              .path = "/openapi.json",
              .scope = RequiredScope::kNone,
              .operation_id = "getOpenApi",
              .summary = "This document"};
  std::vector<Route> all(router->routes().begin(), router->routes().end());
  all.push_back(route);
  route.handler = [document = OpenApiDocument(all)](Request, Respond respond) {
    Response response;
    response.body = document;
    std::move(respond)(std::move(response));
  };
  router->Add(std::move(route));
}

}  // namespace postrider::api
