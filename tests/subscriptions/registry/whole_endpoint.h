#pragma once

#include <chrono>

#include "subscriptions/registry/endpoint.h"
#include "tests/support/certificates.h"

namespace postrider::subscriptions {

// Valid settings in which no field has its default.
inline EndpointSettings WholeSettings() {
  using std::chrono::milliseconds;
  EndpointSettings s;
  s.url = "https://example.com/a'b";
  s.description = "d\"\\";
  s.mode = EndpointMode::kStreaming;
  s.batch = {7, 2048, milliseconds(3)};
  s.headers = {{"x-b", "1, {\"}"}, {"x-a", ""}};
  s.retry = {.attempts = 3,
             .horizon = milliseconds(5000),
             .first_delay = milliseconds(20),
             .factor = 1.7,
             .cap = milliseconds(900),
             .schedule = {milliseconds(10), milliseconds(86'400'000)}};
  s.window_max = 5;
  s.body = {BodyFormat::kCloudEventsBinary, BodyCompression::kZstd};
  s.signature = SignatureScheme::kBoth;
  s.partial_ack = true;
  s.limits = {0.001, 1.0 / 3, 1e9};
  s.order = {OrderKind::kKey, "/a~1b/0", BlockedHead::kDeadLetter};
  s.parallelism = 1;
  s.backlog = {1'048'577, milliseconds(60'001), BacklogPolicy::kCollapseByKey, "/id"};
  s.auth = {AuthKind::kOAuth2, "client", "https://login.example/token", "a b"};
  s.tls = {tests::kCertificateOne, tests::kCertificateTwo};
  s.timeout = milliseconds(2000);
  return s;
}

}  // namespace postrider::subscriptions
