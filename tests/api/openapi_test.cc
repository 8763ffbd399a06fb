#include "api/openapi.h"

#include <string>

#include "core/json/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "subscriptions/registry/own_events.h"

namespace postrider::api {
namespace {

TEST(OpenApiTest, ShowsEveryRouteOfTheTableAndItself) {
  Router router;
  router.Add({.method = HttpMethod::kPatch,
              .path = "/v1/customers/{customer}",
              .scope = RequiredScope::kOperator,
              .operation_id = "patchCustomer",
              .request_schema = "CustomerInput",
              .response_schema = "Customer"});
  AddOpenApiRoute(&router);
  const auto document = JsonValue::Parse(OpenApiDocument(router.routes()));
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(*document->Find("openapi")->string(), "3.1.0");
  const JsonValue* paths = document->Find("paths");
  ASSERT_EQ(paths->object()->size(), 2u);
  const JsonValue* patch = paths->Find("/v1/customers/{customer}")->Find("patch");
  ASSERT_NE(patch, nullptr);
  EXPECT_EQ(*patch->Find("operationId")->string(), "patchCustomer");
  EXPECT_EQ(*(*patch->Find("parameters")->array())[0].Find("name")->string(), "customer");
  EXPECT_EQ(patch->Find("security"), nullptr);
  const JsonValue* itself = paths->Find("/openapi.json")->Find("get");
  ASSERT_NE(itself, nullptr);
  EXPECT_TRUE(itself->Find("security")->array()->empty());
}

TEST(OpenApiTest, ShowsWhatCustomersAreToldOfTheirEndpoints) {
  const auto document = JsonValue::Parse(OpenApiDocument({}));
  ASSERT_TRUE(document.ok());
  const JsonValue* webhooks = document->Find("webhooks");
  ASSERT_NE(webhooks, nullptr);
  EXPECT_EQ(webhooks->object()->size(), subscriptions::OperationalEventTypes().size());
  for (const absl::string_view type : subscriptions::OperationalEventTypes()) {
    ASSERT_NE(webhooks->Find(type), nullptr) << type;
  }
}

TEST(OpenApiTest, IsWhatTheRouteServes) {
  Router router;
  AddOpenApiRoute(&router);
  Response served;
  router.routes()[0].handler(Request(), [&](Response response) { served = std::move(response); });
  EXPECT_EQ(served.body, OpenApiDocument(router.routes()));
}

}  // namespace
}  // namespace postrider::api
