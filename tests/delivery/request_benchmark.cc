// What a request costs before it is sent: body, compression, signature and header lines of a
// message of about 700 bytes, alone and in a list; and what reading its record costs.

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/compression/compressor.h"
#include "core/crypto/key_ring.h"
#include "delivery/batch.h"
#include "delivery/delivery_request.h"
#include "delivery/prepared_endpoint.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/signing_keys.h"

namespace postrider::delivery {
namespace {

using subscriptions::BodyCompression;
using subscriptions::BodyFormat;
using subscriptions::SignatureScheme;

std::string Event(int number) {
  std::string data = absl::StrCat("{\"order\":\"o-", number * 7919, "\",\"items\":[");
  for (int i = 0; i < 9; ++i) {
    absl::StrAppend(&data, i > 0 ? "," : "", "{\"sku\":\"S", (number * 31 + i * 977) % 1'000'000,
                    "\",\"quantity\":", i + 1, ",\"price\":", (number * 17 + i * 41) % 9'973,
                    ".25,\"note\":\"n", i * number, "\"}");
  }
  return absl::StrCat(data, "]}");
}

struct Parts {
  explicit Parts(const subscriptions::EndpointSettings& settings) {
    auto endpoint = std::make_shared<subscriptions::Endpoint>();
    endpoint->settings = settings;
    endpoint->settings.url = "https://receiver.example/hook";
    subscriptions::EndpointSecret secret;
    secret.secret = subscriptions::NewSigningSecret();
    secret.private_key = subscriptions::NewPrivateKey();
    endpoint->secrets_sealed =
        *subscriptions::SealEndpointSecrets(keys, endpoint->customer, endpoint->id, {secret});
    prepared = *PrepareEndpoint(endpoint, keys);
  }
  KeyRing keys = *KeyRing::Parse(KeyRing::NewKeyLine("k1"));
  Compressor compressor;
  std::unique_ptr<PreparedEndpoint> prepared;
};

std::string Encoded(int number) {
  subscriptions::DispatchRecord record;
  record.identity.source_topic = "events.order.created";
  record.identity.source_offset = number;
  record.event_id = absl::StrCat("event-", number);
  record.type = "order.created";
  record.tenant = "tenant-1";
  record.event_time = WallTimeFromMillis(1'900'000'000'000);
  record.data = Event(number);
  record.message_id = subscriptions::MakeMessageId(record.identity, record.event_id);
  return subscriptions::EncodeDispatchRecord(record);
}

void Request(benchmark::State& state, BodyFormat format, BodyCompression compression,
             SignatureScheme signature, int count) {
  subscriptions::EndpointSettings settings;
  settings.body = {format, compression};
  settings.signature = signature;
  Parts parts(settings);
  std::vector<std::unique_ptr<MessageContent>> contents;
  std::vector<MessageView> views;
  for (int i = 0; i < count; ++i) {
    contents.push_back(*MakeMessageContent(Encoded(i)));
    views.push_back(contents.back()->View());
  }
  DeliveryRequest input;
  input.messages = views;
  input.composition = count == 1 ? Composition::kAlone : Composition::kList;
  input.now = WallTimeFromMillis(1'900'000'000'000);
  size_t bytes = 0;
  for (auto _ : state) {
    const auto request = MakeDeliveryRequest(input, *parts.prepared, parts.compressor);
    bytes = request->body.size();
    benchmark::DoNotOptimize(request);
  }
  state.counters["body_bytes"] = static_cast<double>(bytes);
  state.SetItemsProcessed(state.iterations() * count);
}

constexpr auto kNone = BodyCompression::kNone;
constexpr auto kHmac = SignatureScheme::kHmac;
BENCHMARK_CAPTURE(Request, hmac, BodyFormat::kEnvelope, kNone, kHmac, 1);
BENCHMARK_CAPTURE(Request, ed25519, BodyFormat::kEnvelope, kNone, SignatureScheme::kEd25519, 1);
BENCHMARK_CAPTURE(Request, both, BodyFormat::kEnvelope, kNone, SignatureScheme::kBoth, 1);
BENCHMARK_CAPTURE(Request, hmac_gzip, BodyFormat::kEnvelope, BodyCompression::kGzip, kHmac, 1);
BENCHMARK_CAPTURE(Request, hmac_zstd, BodyFormat::kEnvelope, BodyCompression::kZstd, kHmac, 1);
BENCHMARK_CAPTURE(Request, raw, BodyFormat::kRaw, kNone, kHmac, 1);
BENCHMARK_CAPTURE(Request, cloudevents, BodyFormat::kCloudEvents, kNone, kHmac, 1);
BENCHMARK_CAPTURE(Request, cloudevents_binary, BodyFormat::kCloudEventsBinary, kNone, kHmac, 1);
BENCHMARK_CAPTURE(Request, list_of_1000, BodyFormat::kEnvelope, kNone, kHmac, 1000);
BENCHMARK_CAPTURE(Request, list_of_1000_gzip, BodyFormat::kEnvelope, BodyCompression::kGzip, kHmac,
                  1000);
BENCHMARK_CAPTURE(Request, list_of_1000_zstd, BodyFormat::kEnvelope, BodyCompression::kZstd, kHmac,
                  1000);
BENCHMARK_CAPTURE(Request, lines_of_1000, BodyFormat::kNdjson, kNone, kHmac, 1000);

void ReadRecord(benchmark::State& state) {
  const std::string encoded = Encoded(1);
  for (auto _ : state) benchmark::DoNotOptimize(MakeMessageContent(encoded));
}
BENCHMARK(ReadRecord);

}  // namespace
}  // namespace postrider::delivery

BENCHMARK_MAIN();
