#include "delivery/delivery_request.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "delivery/headers.h"
#include "delivery/partial_ack.h"
#include "delivery/steering.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {
namespace {

using subscriptions::BodyCompression;

// The value of content-encoding; empty: the body is left as it is.
absl::string_view Compress(BodyCompression compression, Compressor& compressor, std::string* body) {
  switch (compression) {
    case BodyCompression::kGzip:
      *body = compressor.Compress(Compression::kGzip, *body);
      return "gzip";
    case BodyCompression::kZstd:
      *body = compressor.Compress(Compression::kZstd, *body);
      return "zstd";
    case BodyCompression::kNone:
      break;
  }
  return "";
}

// Those of the one that has most.
uint32_t HopsOf(absl::Span<const MessageView> messages) {
  uint32_t hops = 0;
  for (const MessageView& message : messages) hops = std::max(hops, message.hops);
  return hops;
}

}  // namespace

std::string WebhookId(Composition composition, absl::Span<const MessageView> messages) {
  return composition == Composition::kAlone ? std::string(messages.front().message_id)
                                            : BatchId(messages);
}

bool SignAnew(HttpRequest& request, PreparedEndpoint& endpoint, WallTime now) {
  const auto line = [&request](absl::string_view name) -> std::string& {
    const auto found = std::find_if(request.headers.begin(), request.headers.end(),
                                    [name](const auto& header) { return header.first == name; });
    POSTRIDER_CHECK(found != request.headers.end());
    return found->second;
  };
  const int64_t seconds = MillisSinceEpoch(now) / 1000;
  std::string signature = endpoint.secrets.Sign(line("webhook-id"), seconds, request.body, now);
  if (signature.empty()) return false;
  line("webhook-timestamp") = absl::StrCat(seconds);
  line("webhook-signature") = std::move(signature);
  return true;
}

absl::StatusOr<HttpRequest> MakeDeliveryRequest(const DeliveryRequest& input,
                                                PreparedEndpoint& endpoint,
                                                Compressor& compressor) {
  const subscriptions::EndpointSettings& settings = endpoint.endpoint->settings;
  HttpRequest request;
  request.url = endpoint.url;
  request.total_timeout = settings.timeout;
  request.response_header_prefix = std::string(kSteeringPrefix);
  if (settings.partial_ack) request.response_body_bytes_max = kPartialAckBytesMax;
  request.connection_group = endpoint.connection_group;
  request.tls = endpoint.tls;
  const std::string id = WebhookId(input.composition, input.messages);
  Body body = MakeBody(settings.body.format, input.composition, input.messages);
  const absl::string_view encoding = Compress(settings.body.compression, compressor, &body.bytes);
  const int64_t seconds = MillisSinceEpoch(input.now) / 1000;
  const std::string signature = endpoint.secrets.Sign(id, seconds, body.bytes, input.now);
  if (signature.empty()) {
    return absl::FailedPreconditionError("delivery: the endpoint has no valid signing secret");
  }
  DeliveryHeaders headers;
  headers.webhook_id = id;
  headers.timestamp_seconds = seconds;
  headers.signature = signature;
  headers.attempt = input.attempt;
  headers.batch_size = input.messages.size();
  headers.hops = 1 + HopsOf(input.messages);
  headers.content_type = body.content_type;
  headers.content_encoding = encoding;
  headers.event = std::move(body.headers);
  std::pair<std::string, std::string> bearer;
  if (!input.token.empty()) {
    bearer = {"authorization", absl::StrCat("Bearer ", input.token)};
    headers.auth = &bearer;
  } else if (endpoint.auth.header) {
    headers.auth = &*endpoint.auth.header;
  }
  headers.custom = &settings.headers;
  ASSIGN_OR_RETURN(request.headers, MakeDeliveryHeaders(std::move(headers)));
  request.body = std::move(body.bytes);
  return request;
}

}  // namespace postrider::delivery
