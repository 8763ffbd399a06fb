#include "api/idempotency_key.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace postrider::api {
namespace {

using subscriptions::CustomerId;
using subscriptions::KeyScope;

Route PatchRoute() {
  return {.method = HttpMethod::kPatch,
          .path = "/v1/customers/{customer}/endpoints/{endpoint}",
          .scope = RequiredScope::kOperator,
          .operation_id = "patchThing"};
}

CustomerId SomeCustomer(uint8_t last) {
  IdBytes bytes{};
  bytes[0] = 1;
  bytes[15] = last;
  return CustomerId(bytes);
}

Request SomeRequest(const std::string& key) {
  Request request;
  request.method = HttpMethod::kPatch;
  request.path = "/v1/customers/c/endpoints/e";
  request.params = {SomeCustomer(1).ToString(), "e"};
  request.headers = {{"idempotency-key", key}};
  request.body = "{}";
  request.principal.scope = KeyScope::kOperator;
  request.principal.key_id = "abcdefghijkl";
  return request;
}

int StatusOf(const Route& route, Request request) {
  const absl::optional<Response> refusal = ReadIdempotencyKey(route, &request);
  EXPECT_NE(refusal.has_value(), request.idempotency.has_value());
  return refusal ? refusal->status : 0;
}

Sha256Digest HashOf(const std::function<void(Request*)>& change) {
  Request request = SomeRequest("k");
  change(&request);
  EXPECT_FALSE(ReadIdempotencyKey(PatchRoute(), &request).has_value());
  return request.idempotency->request;
}

TEST(IdempotencyKeyTest, IsOneTo255PrintableCharacters) {
  for (const std::string& good : {std::string("x"), std::string("\"8e03978e-40d5\""),
                                  std::string("a ~"), std::string(255, 'x')}) {
    EXPECT_EQ(StatusOf(PatchRoute(), SomeRequest(good)), 0) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string(256, 'x'), std::string("a\tb"), std::string("\xc3\xa9")}) {
    EXPECT_EQ(StatusOf(PatchRoute(), SomeRequest(bad)), 400) << bad;
  }
}

TEST(IdempotencyKeyTest, IsGivenOnce) {
  Request request = SomeRequest("x");
  request.headers.emplace_back("idempotency-key", "x");
  EXPECT_EQ(StatusOf(PatchRoute(), request), 400);
}

TEST(IdempotencyKeyTest, IsRefusedWhereItWouldHaveNoEffect) {
  Route route = PatchRoute();
  route.takes_idempotency_key = false;
  EXPECT_FALSE(TakesIdempotencyKey(route));
  EXPECT_EQ(StatusOf(route, SomeRequest("x")), 400);
  Request without = SomeRequest("x");
  without.headers.clear();
  EXPECT_FALSE(ReadIdempotencyKey(route, &without).has_value());
  EXPECT_FALSE(without.idempotency.has_value());
}

TEST(IdempotencyKeyTest, WhatChangesNothingGoesWithoutLooking) {
  Route route = PatchRoute();
  route.method = HttpMethod::kGet;
  Request request = SomeRequest("");
  EXPECT_FALSE(ReadIdempotencyKey(route, &request).has_value());
  EXPECT_FALSE(request.idempotency.has_value());
}

TEST(IdempotencyKeyTest, BelongsToACustomerOrToAnOperatorsKey) {
  Request request = SomeRequest("x");
  ASSERT_FALSE(ReadIdempotencyKey(PatchRoute(), &request).has_value());
  EXPECT_EQ(request.idempotency->owner, "abcdefghijkl");
  EXPECT_EQ(request.idempotency->route, "patchThing");
  EXPECT_EQ(request.idempotency->customer, SomeCustomer(1)) << "it tells of the path's customer";

  Request theirs = SomeRequest("x");
  theirs.principal.scope = KeyScope::kCustomer;
  theirs.principal.customer = SomeCustomer(2);
  ASSERT_FALSE(ReadIdempotencyKey(PatchRoute(), &theirs).has_value());
  EXPECT_EQ(theirs.idempotency->owner, SomeCustomer(2).ToUuid());
  EXPECT_EQ(theirs.idempotency->customer, SomeCustomer(2));
  EXPECT_EQ(theirs.idempotency->key, request.idempotency->key);
}

TEST(IdempotencyKeyTest, APathQueryConditionOrBodyMakesAnotherRequest) {
  const Sha256Digest same = HashOf([](Request*) {});
  EXPECT_EQ(same, HashOf([](Request* request) {
              request->headers.emplace_back("user-agent", "other");
              request->headers.front().second = "another key";
            }));
  EXPECT_NE(same, HashOf([](Request* request) { request->path += "x"; }));
  EXPECT_NE(same, HashOf([](Request* request) { request->body = "{ }"; }));
  EXPECT_NE(same, HashOf([](Request* request) { request->query = {{"a", "b"}}; }));
  EXPECT_NE(same,
            HashOf([](Request* request) { request->headers.emplace_back("if-match", "\"g1\""); }));
  // Nor do the parts run into each other.
  EXPECT_NE(HashOf([](Request* request) {
              request->query = {{"a", "bc"}};
            }),
            HashOf([](Request* request) {
              request->query = {{"ab", "c"}};
            }));
}

}  // namespace
}  // namespace postrider::api
