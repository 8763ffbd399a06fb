#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "subscriptions/registry/ids.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::subscriptions {

// Ids by number, so that tests can say which is which.
inline IdBytes NumberedId(uint32_t number) {
  IdBytes bytes{};
  bytes[0] = static_cast<uint8_t>(number >> 24);
  bytes[1] = static_cast<uint8_t>(number >> 16);
  bytes[2] = static_cast<uint8_t>(number >> 8);
  bytes[3] = static_cast<uint8_t>(number);
  return bytes;
}
inline CustomerId CustomerNumber(uint32_t number) { return CustomerId(NumberedId(number)); }
inline EndpointId EndpointNumber(uint32_t number) { return EndpointId(NumberedId(number)); }

// Builds snapshots by hand: customers, grants, endpoints and subscriptions by number.
class SnapshotFixture {
 public:
  SnapshotFixture& Customer(uint32_t customer, const std::vector<std::string>& tenants) {
    builder_.PutCustomer(CustomerNumber(customer), 1, 1);
    uint64_t xid = 100;
    for (const std::string& tenant : tenants)
      builder_.PutGrant(CustomerNumber(customer), tenant, ++xid);
    return *this;
  }
  SnapshotFixture& Endpoint(uint32_t endpoint, uint32_t customer, int parallelism = 1) {
    subscriptions::Endpoint made;
    made.id = EndpointNumber(endpoint);
    made.customer = CustomerNumber(customer);
    made.settings.url = "https://receiver.example/" + std::to_string(endpoint);
    made.settings.parallelism = parallelism;
    made.changed_xid = 1'000 + endpoint;
    owner_[endpoint] = customer;
    builder_.PutEndpoint(std::move(made));
    return *this;
  }
  SnapshotFixture& Granted(uint32_t endpoint, std::vector<std::string> types) {
    return Put(endpoint, std::move(types), ScopeKind::kGranted, {}, {});
  }
  SnapshotFixture& Tenants(uint32_t endpoint, std::vector<std::string> types,
                           std::vector<std::string> tenants) {
    return Put(endpoint, std::move(types), ScopeKind::kTenants, std::move(tenants), {});
  }
  SnapshotFixture& Departments(uint32_t endpoint, std::vector<std::string> types,
                               std::string tenant, std::vector<std::string> departments) {
    return Put(endpoint, std::move(types), ScopeKind::kDepartments, {std::move(tenant)},
               std::move(departments));
  }
  std::shared_ptr<const Snapshot> Build(
      WallTime confirmed_at = WallTimeFromMillis(1'704'067'200'000)) {
    return builder_.Build(*PgSnapshot::Parse("5000:5000:"), confirmed_at, "test");
  }

 private:
  SnapshotFixture& Put(uint32_t endpoint, std::vector<std::string> types, ScopeKind scope,
                       std::vector<std::string> tenants, std::vector<std::string> departments) {
    SubscriptionSettings settings;
    settings.endpoint = EndpointNumber(endpoint);
    settings.event_types = std::move(types);
    settings.scope = scope;
    settings.tenants = std::move(tenants);
    settings.departments = std::move(departments);
    builder_.PutSubscription(SubscriptionId(NumberedId(++subscriptions_)),
                             CustomerNumber(owner_.at(endpoint)), std::move(settings));
    return *this;
  }

  SnapshotBuilder builder_;
  std::map<uint32_t, uint32_t> owner_;
  uint32_t subscriptions_ = 0;
};

}  // namespace postrider::subscriptions
