#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/compression/compressor.h"
#include "core/http/http_sink.h"
#include "delivery/body.h"
#include "delivery/message.h"
#include "delivery/prepared_endpoint.h"

namespace postrider::delivery {

struct DeliveryRequest {
  absl::Span<const MessageView> messages;  // at least one
  Composition composition = Composition::kList;
  int attempt = 1;  // the how manieth, counted from 1
  WallTime now;
  absl::string_view token;  // of the endpoint's provider, if it has one
};

// The webhook-id: of one that goes alone its message id, else the batch's.
std::string WebhookId(Composition composition, absl::Span<const MessageView> messages);

// What is sent to the endpoint: the body in its format, compressed as it asks, signed over the
// bytes on the wire, and the header lines. Everything but the body is that of the moment, so that
// a retry has a new time and a new signature. FailedPrecondition when none can be made: no secret
// is valid, or a header is unfit.
//
// Threads: that of the endpoint and the compressor.
absl::StatusOr<HttpRequest> MakeDeliveryRequest(const DeliveryRequest& input,
                                                PreparedEndpoint& endpoint, Compressor& compressor);

// Gives a request that MakeDeliveryRequest() made for this endpoint the time `now` and a signature
// of it. False: no secret is valid any more.
bool SignAnew(HttpRequest& request, PreparedEndpoint& endpoint, WallTime now);

}  // namespace postrider::delivery
