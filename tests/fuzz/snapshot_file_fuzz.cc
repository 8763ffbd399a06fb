#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"
#include "core/crypto/digest.h"
#include "subscriptions/registry/endpoint_names.h"
#include "subscriptions/registry/snapshot.h"
#include "subscriptions/registry/snapshot_file.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using subscriptions::DecodeSnapshot;
using subscriptions::EncodeSnapshot;
using subscriptions::Endpoint;
using subscriptions::PgSnapshot;
using subscriptions::Snapshot;
using subscriptions::SnapshotBuilder;
using subscriptions::StringId;
using subscriptions::SubscriptionSettings;

std::string TextsOf(const Snapshot& snapshot, absl::Span<const StringId> ids) {
  std::vector<std::string> texts;
  for (const StringId id : ids) texts.push_back(absl::StrCat("'", snapshot.StringOf(id), "'"));
  std::sort(texts.begin(), texts.end());
  return absl::StrJoin(texts, ",");
}

std::string Bits(const absl::optional<double>& rate) {
  if (!rate) return "none";
  uint64_t bits = 0;
  std::memcpy(&bits, &*rate, sizeof(bits));
  return absl::StrCat(bits);
}

std::string DescribeDelivery(const subscriptions::EndpointSettings& s) {
  std::string text =
      absl::StrCat(BodyFormatName(s.body.format), " ", BodyCompressionName(s.body.compression), " ",
                   SignatureSchemeName(s.signature), " ", s.partial_ack, " ");
  for (const std::chrono::milliseconds delay : s.retry.schedule) {
    absl::StrAppend(&text, delay.count(), ",");
  }
  absl::StrAppend(&text, " ", Bits(s.limits.requests_per_second), " ",
                  Bits(s.limits.messages_per_second), " ", Bits(s.limits.bytes_per_second), " ");
  absl::StrAppend(&text, OrderKindName(s.order.kind), " ", BlockedHeadName(s.order.blocked), " ",
                  s.parallelism, " ", s.order.key_pointer, "|");
  absl::StrAppend(&text, s.backlog.bytes_max, " ", s.backlog.age_max.count(), " ",
                  BacklogPolicyName(s.backlog.policy), " ", s.backlog.collapse_pointer, "|");
  absl::StrAppend(&text, s.pause.by_customer, s.pause.by_operator, " ",
                  ResumeKindName(s.pause.resume), " ", MillisSinceEpoch(s.pause.resume_from), " ",
                  MillisSinceEpoch(s.pause.resumed_at), " ");
  absl::StrAppend(&text, AuthKindName(s.auth.kind), " ", s.auth.name, "|", s.auth.token_url, "|",
                  s.auth.scope, "|", s.tls.ca_pem, "|", s.tls.certificate_pem);
  return text;
}

// All that a snapshot says, apart from the numbers of its strings and its version in this process.
std::string Describe(const Snapshot& snapshot) {
  std::string text = absl::StrCat(snapshot.pg_snapshot().ToString(), "|",
                                  MillisSinceEpoch(snapshot.confirmed_at()), "|", snapshot.origin(),
                                  "|", absl::StrJoin(snapshot.event_types(), ","), "\n");
  for (uint32_t i = 0; i < snapshot.customers().size(); ++i) {
    const subscriptions::CustomerEntry& customer = snapshot.customers()[i];
    POSTRIDER_CHECK(snapshot.CustomerIndex(customer.id) == i);
    absl::StrAppend(&text, customer.id.ToString(), " ", customer.generation, " ",
                    customer.changed_xid, " ", customer.grants_xid_max);
    std::vector<std::string> grants;
    for (const StringId tenant : snapshot.TenantsGranted(i)) {
      grants.push_back(
          absl::StrCat("'", snapshot.StringOf(tenant), "'", *snapshot.GrantXid(i, tenant)));
      const absl::Span<const uint32_t> holders = snapshot.CustomersGranted(tenant);
      POSTRIDER_CHECK(std::find(holders.begin(), holders.end(), i) != holders.end());
    }
    std::sort(grants.begin(), grants.end());
    absl::StrAppend(&text, " ", absl::StrJoin(grants, ","), "\n");
  }
  for (const std::shared_ptr<const Endpoint>& endpoint : snapshot.endpoints()) {
    const subscriptions::EndpointSettings& s = endpoint->settings;
    POSTRIDER_CHECK(snapshot.FindEndpoint(endpoint->id) == endpoint);
    uint64_t factor = 0;
    std::memcpy(&factor, &s.retry.factor, sizeof(factor));
    absl::StrAppend(&text, endpoint->id.ToString(), " ", endpoint->customer.ToString(), " ",
                    endpoint->generation, " ", endpoint->changed_xid, " ",
                    MillisSinceEpoch(endpoint->created_at), " ",
                    MillisSinceEpoch(endpoint->updated_at), " ");
    absl::StrAppend(&text, s.url, "|", s.description, "|", EndpointModeName(s.mode), " ",
                    s.batch.events_max, " ", s.batch.bytes_max, " ", s.batch.wait_max.count(), " ");
    for (const auto& [name, value] : s.headers) absl::StrAppend(&text, name, ":", value, "|");
    absl::StrAppend(&text, s.retry.attempts, " ", s.retry.horizon.count(), " ",
                    s.retry.first_delay.count(), " ", factor, " ", s.retry.cap.count(), " ",
                    s.window_max, " ", s.timeout.count(), " ");
    absl::StrAppend(&text, s.enabled, "|", endpoint->secrets_sealed, "|", DescribeDelivery(s), "|",
                    endpoint->auth_sealed, "|", endpoint->tls_key_sealed, "\n");
  }
  for (const subscriptions::SubscriptionEntry& entry : snapshot.subscriptions()) {
    POSTRIDER_CHECK(entry.endpoint_index < snapshot.endpoints().size());
    absl::StrAppend(&text, entry.id.ToString(), " ",
                    snapshot.endpoints()[entry.endpoint_index]->id.ToString(), " ",
                    ScopeKindName(entry.scope), " ");
    absl::StrAppend(&text, TextsOf(snapshot, snapshot.EventTypesOf(entry)), " ",
                    TextsOf(snapshot, snapshot.TenantsOf(entry)), " ",
                    TextsOf(snapshot, snapshot.DepartmentsOf(entry)), "\n");
  }
  return text;
}

void Decode(absl::string_view bytes) {
  const absl::StatusOr<std::shared_ptr<const Snapshot>> decoded = DecodeSnapshot(bytes);
  if (!decoded.ok()) return POSTRIDER_CHECK(absl::IsDataLoss(decoded.status()));
  POSTRIDER_CHECK(*decoded != nullptr);
  const absl::StatusOr<std::shared_ptr<const Snapshot>> again =
      DecodeSnapshot(EncodeSnapshot(**decoded));
  POSTRIDER_CHECK(again.ok());
  POSTRIDER_CHECK(Describe(**again) == Describe(**decoded));
}

// The same between the beginning and the checksum, which random bytes hardly ever pass.
void DecodeBody(absl::string_view body) {
  std::string bytes = absl::StrCat("postrider snapshot\n", body);
  bytes.append(std::string(DigestView(Sha256(bytes))));
  Decode(bytes);
}

void MakeDeliverySettings(Input& in, Endpoint* endpoint) {
  subscriptions::EndpointSettings& s = endpoint->settings;
  s.body.format = static_cast<subscriptions::BodyFormat>(in.Byte() % 5);
  s.signature = static_cast<subscriptions::SignatureScheme>(in.Byte() % 3);
  for (int left = in.Byte() % 4; left > 0; --left) s.retry.schedule.emplace_back(in.Signed());
  if (in.Flag()) s.limits.bytes_per_second = static_cast<double>(in.Signed());
  s.order.kind = static_cast<subscriptions::OrderKind>(in.Byte() % 3);
  s.order.key_pointer = std::string(in.Text());
  s.backlog.age_max = std::chrono::milliseconds(in.Signed());
  s.pause.by_operator = in.Flag();
  s.pause.resume_from = WallTimeFromMillis(in.Signed());
  s.auth.kind = static_cast<subscriptions::AuthKind>(in.Byte() % 5);
  s.auth.name = std::string(in.Text());
  s.tls.ca_pem = std::string(in.Text());
  endpoint->auth_sealed = std::string(in.Text());
}

Endpoint MakeEndpoint(Input& in) {
  Endpoint endpoint;
  endpoint.id = in.IdOf<subscriptions::EndpointId>();
  endpoint.customer = in.IdOf<subscriptions::CustomerId>();
  endpoint.generation = in.Number();
  endpoint.changed_xid = in.Number();
  endpoint.created_at = WallTimeFromMillis(in.Signed());
  endpoint.settings.url = std::string(in.Text());
  endpoint.settings.batch.events_max = in.Signed();
  endpoint.settings.mode =
      in.Flag() ? subscriptions::EndpointMode::kStreaming : subscriptions::EndpointMode::kBatch;
  for (int left = in.Byte() % 4; left > 0; --left) {
    std::string name(in.Text());
    endpoint.settings.headers.emplace_back(std::move(name), std::string(in.Text()));
  }
  endpoint.settings.window_max = static_cast<int>(in.Between(INT32_MIN, INT32_MAX));
  endpoint.settings.enabled = in.Flag();
  endpoint.secrets_sealed = std::string(in.Text());
  MakeDeliverySettings(in, &endpoint);
  return endpoint;
}

SubscriptionSettings MakeSubscription(Input& in) {
  SubscriptionSettings settings;
  settings.endpoint = in.IdOf<subscriptions::EndpointId>();
  settings.scope = static_cast<subscriptions::ScopeKind>(in.Byte() % 3);
  for (std::vector<std::string>* list :
       {&settings.event_types, &settings.tenants, &settings.departments}) {
    for (int left = in.Byte() % 4; left > 0; --left) list->emplace_back(in.Text());
  }
  return settings;
}

// A snapshot of any rows, dangling ones too, is written and read.
void EncodeAndDecode(Input in) {
  SnapshotBuilder builder;
  const PgSnapshot pg_snapshot = *PgSnapshot::Parse("10:20:12,15");
  const WallTime confirmed_at = WallTimeFromMillis(in.Signed());
  const std::string origin(in.Text());
  std::vector<Endpoint> endpoints;
  while (!in.empty()) {
    switch (in.Byte() % 5) {
      case 0: {
        const auto id = in.IdOf<subscriptions::CustomerId>();
        const uint64_t generation = in.Number();
        builder.PutCustomer(id, generation, in.Number());
        break;
      }
      case 1: {
        const auto id = in.IdOf<subscriptions::CustomerId>();
        const absl::string_view tenant = in.Text();
        builder.PutGrant(id, tenant, in.Number());
        break;
      }
      case 2:
        endpoints.push_back(MakeEndpoint(in));
        // An owner, so that it is not dropped.
        if (in.Flag()) builder.PutCustomer(endpoints.back().customer, 1, 1);
        builder.PutEndpoint(endpoints.back());
        break;
      case 3: {
        const auto id = in.IdOf<subscriptions::SubscriptionId>();
        auto customer = in.IdOf<subscriptions::CustomerId>();
        SubscriptionSettings settings = MakeSubscription(in);
        if (!endpoints.empty() && in.Flag()) {
          settings.endpoint = endpoints.back().id;
          customer = endpoints.back().customer;
        }
        builder.PutSubscription(id, customer, std::move(settings));
        break;
      }
      default:
        builder.PutEventType(in.Text());
    }
  }
  const std::shared_ptr<const Snapshot> snapshot = builder.Build(pg_snapshot, confirmed_at, origin);
  const std::string bytes = EncodeSnapshot(*snapshot);
  const absl::StatusOr<std::shared_ptr<const Snapshot>> decoded = DecodeSnapshot(bytes);
  POSTRIDER_CHECK(decoded.ok());
  POSTRIDER_CHECK(Describe(**decoded) == Describe(*snapshot));
  POSTRIDER_CHECK(!DecodeSnapshot(absl::string_view(bytes).substr(0, bytes.size() - 1)).ok());
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  DecodeBody(View(data, size));
  EncodeAndDecode(Input(data, size));
  return 0;
}
