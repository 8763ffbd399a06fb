#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "loadtest/zipf.h"

namespace postrider::loadtest {

// The department of an event that has none.
inline constexpr uint8_t kNoDepartment = 0xff;

// Everything that a plan follows from: equal options give an equal plan, on any machine.
struct PlanOptions {
  uint64_t seed = 1;
  uint32_t topics = 500;           // 1 .. 5,000: event types, one source topic each
  uint32_t tenants = 30000;        // 1 .. 1,000,000
  double tenant_skew = 1.1;        // 0 .. 3
  uint32_t departments = 8;        // 1 .. 64 per tenant; one event in ten names none
  uint32_t customers = 1000;       // 1 .. 100,000
  uint32_t large_customers = 60;   // 1 .. customers: they share out all tenants
  uint32_t endpoints = 10000;      // 3 * large_customers .. 1,000,000
  uint32_t subscriptions = 50000;  // .. 5,000,000; 0: the broad ones only
  double fan_out = 3.0;            // messages per event, mean; 0.1 .. large_customers
  uint32_t addresses = 2000;       // 1 .. 60,000 loopback addresses for the endpoints' URLs
  uint32_t failing = 0;            // .. endpoints: that many answer 500
  uint32_t ordered = 0;            // .. endpoints: that many ask for an order
  std::string topic_prefix = "events.";
  std::string tenant_prefix = "t";  // of their names: tells the tenants of two plans apart

  // Settings that every endpoint is registered with.
  std::string mode = "batch";  // "streaming", or "mixed": every second one is streaming
  uint32_t events_max = 1000;
  uint32_t bytes_max = 1048576;
  uint32_t wait_max_ms = 1000;
  uint32_t attempts = 5;
  uint32_t first_delay_ms = 1000;
  uint32_t cap_ms = 0;  // of a retry's delay; 0: the API's default
  uint32_t horizon_ms = 60000;
  uint32_t window_max = 32;
};

// What an endpoint asks for: none, the order of each tenant's messages, or of all.
enum class PlannedOrder : uint8_t { kNone, kTenant, kEndpoint };

enum class ScopeKind : uint8_t { kGranted, kTenants, kDepartments };

// An event as matching sees it.
struct EventFields {
  uint16_t type = 0;
  uint32_t tenant = 0;
  uint8_t department = kNoDepartment;
};

// Who is registered, what they subscribe to, and, worked out here once more and on our own, which
// endpoints an event must reach. A few *large* customers hold all tenants between them and have
// broad subscriptions in all three scopes, which make nearly all of the messages; the rest of the
// endpoints are small and rarely hear anything. So the mean fan-out is met, batches fill as they do
// for busy receivers, and every endpoint is still in the snapshot and may be called.
//
// Threads: any, it never changes once built.
class Plan {
 public:
  struct Customer {
    std::vector<uint32_t> tenants;  // granted, ascending
  };
  struct Endpoint {
    uint32_t customer = 0;
    uint32_t address = 0;  // IPv4 in host order, within 127.16.0.0/12
    bool fails = false;
    PlannedOrder order = PlannedOrder::kNone;
  };
  struct Subscription {
    uint32_t endpoint = 0;
    ScopeKind scope = ScopeKind::kGranted;
    std::vector<uint32_t> tenants;     // kTenants: ascending; kDepartments: exactly one
    std::vector<uint8_t> departments;  // kDepartments: ascending
    bool every_type = false;           // "*"
    std::vector<uint16_t> areas;       // prefixes such as "area07.*"
    std::vector<uint16_t> types;       // single types
  };

  static absl::StatusOr<Plan> Build(const PlanOptions& options);
  // A JSON file of the options and a fingerprint; Load builds anew and compares it.
  static absl::StatusOr<Plan> Load(const std::string& path);
  absl::Status Save(const std::string& path) const;

  const PlanOptions& options() const { return options_; }
  const std::vector<Customer>& customers() const { return customers_; }
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  const std::vector<Subscription>& subscriptions() const { return subscriptions_; }
  const Zipf& tenant_popularity() const { return zipf_; }
  uint64_t fingerprint() const { return fingerprint_; }

  // The endpoints that `event` must reach: ascending, each once. Clears `endpoints` first.
  void Match(const EventFields& event, std::vector<uint32_t>* endpoints) const;

  std::string TypeName(uint32_t type) const;              // "area07.event3"
  std::string AreaPattern(uint32_t area) const;           // "area07.*"
  std::string Topic(uint32_t type) const;                 // topic_prefix + TypeName
  std::string TenantName(uint32_t tenant) const;          // "t00042"
  static std::string DepartmentName(uint8_t department);  // "d3"
  bool Streams(uint32_t endpoint) const;                  // else it takes batches
  // http://127.x.y.z:port/e/<index>, or /answer/500/e/<index> for one that fails.
  std::string Url(uint32_t endpoint, uint16_t port) const;
  std::vector<std::string> TypePatterns(const Subscription& subscription) const;

  // What sampled events say of the plan.
  struct Expectation {
    double fan_out = 0;               // messages per event
    double endpoints_per_second = 0;  // that get something in a second at the rate asked for
    double messages_per_request = 0;  // with a batch a second
  };
  Expectation Expect(double events_per_second, uint32_t samples) const;

 private:
  // What Match looks through: one per tenant and subscription that can match it.
  struct Entry {
    uint32_t endpoint;
    uint32_t types;        // index into type_sets_
    uint64_t departments;  // a bit each; all ones: any, or none
  };

  explicit Plan(const PlanOptions& options);
  void MakeCustomers();
  void MakeEndpoints();
  absl::Status MakeSubscriptions();
  void MakeBroadSubscriptions(double share);
  void MakeSmallSubscriptions(uint32_t subscriptions);
  uint32_t BroadCount() const;
  // The fan-out of the broad subscriptions if each named every type; that of the small ones.
  double BroadReach() const;
  double SmallFanOut() const;
  void ChooseTypes(double share, uint64_t draw, Subscription* subscription) const;
  void BuildIndex();
  uint64_t Fingerprint() const;

  PlanOptions options_;
  Zipf zipf_;
  uint32_t copies_ = 1;  // large customers that hold each tenant
  std::vector<Customer> customers_;
  std::vector<Endpoint> endpoints_;
  std::vector<Subscription> subscriptions_;
  std::vector<std::vector<uint64_t>> type_sets_;
  std::vector<std::vector<Entry>> entries_;  // by tenant
  uint64_t fingerprint_ = 0;
};

}  // namespace postrider::loadtest
