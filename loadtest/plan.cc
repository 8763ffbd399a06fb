#include "loadtest/plan.h"

#include <xxhash.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/check.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "loadtest/event_source.h"
#include "loadtest/internal/draws.h"

namespace postrider::loadtest {
namespace {

using internal::Draws;
using internal::kDepartmentShare;

constexpr uint32_t kTypesPerArea = 10;
constexpr uint32_t kBroadEndpoints = 3;      // of a large customer
constexpr uint32_t kTenantsPerScope = 1000;  // the API's bound
constexpr uint32_t kDepartmentTenants = 3;   // of a large customer, the busiest

absl::Status Want(bool holds, absl::string_view what) {
  if (holds) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("loadtest: plan: want ", what));
}

absl::Status CheckOptions(const PlanOptions& o) {
  RETURN_IF_ERROR(Want(o.topics >= 1 && o.topics <= 5000, "topics 1..5000"));
  RETURN_IF_ERROR(Want(o.tenants >= 1 && o.tenants <= 1000000, "tenants 1..1000000"));
  RETURN_IF_ERROR(Want(o.tenant_skew >= 0 && o.tenant_skew <= 3, "tenant skew 0..3"));
  RETURN_IF_ERROR(Want(o.departments >= 1 && o.departments <= 64, "departments 1..64"));
  RETURN_IF_ERROR(Want(o.customers >= 1 && o.customers <= 100000, "customers 1..100000"));
  RETURN_IF_ERROR(Want(o.large_customers >= 1 && o.large_customers <= o.customers,
                       "large customers 1..customers"));
  RETURN_IF_ERROR(Want(o.endpoints >= kBroadEndpoints * o.large_customers && o.endpoints <= 1000000,
                       "endpoints 3 * large customers .. 1000000"));
  RETURN_IF_ERROR(Want(o.subscriptions <= 5000000, "subscriptions ..5000000"));
  RETURN_IF_ERROR(
      Want(o.fan_out >= 0.1 && o.fan_out <= o.large_customers, "fan-out 0.1 .. large customers"));
  RETURN_IF_ERROR(Want(o.addresses >= 1 && o.addresses <= 60000, "addresses 1..60000"));
  RETURN_IF_ERROR(Want(o.failing <= o.endpoints, "failing 0..endpoints"));
  RETURN_IF_ERROR(Want(o.ordered <= o.endpoints, "ordered 0..endpoints"));
  RETURN_IF_ERROR(Want(!o.tenant_prefix.empty(), "a tenant prefix"));
  return Want(o.mode == "batch" || o.mode == "streaming" || o.mode == "mixed",
              "mode batch, streaming or mixed");
}

// 127.16.0.1 and on; neither 0 nor 255 in the last place.
uint32_t Address(uint32_t index) {
  const uint32_t last = 1 + index % 250;
  const uint32_t third = (index / 250) % 250;
  const uint32_t second = 16 + index / 62500;
  return (127U << 24) | (second << 16) | (third << 8) | last;
}

boost::json::object ToJson(const PlanOptions& o) {
  return {{"seed", o.seed},
          {"topics", o.topics},
          {"tenants", o.tenants},
          {"tenant_skew", o.tenant_skew},
          {"departments", o.departments},
          {"customers", o.customers},
          {"large_customers", o.large_customers},
          {"endpoints", o.endpoints},
          {"subscriptions", o.subscriptions},
          {"fan_out", o.fan_out},
          {"addresses", o.addresses},
          {"failing", o.failing},
          {"ordered", o.ordered},
          {"topic_prefix", o.topic_prefix},
          {"tenant_prefix", o.tenant_prefix},
          {"mode", o.mode},
          {"events_max", o.events_max},
          {"bytes_max", o.bytes_max},
          {"wait_max_ms", o.wait_max_ms},
          {"attempts", o.attempts},
          {"first_delay_ms", o.first_delay_ms},
          {"cap_ms", o.cap_ms},
          {"horizon_ms", o.horizon_ms},
          {"window_max", o.window_max}};
}

// Reads one member after the other; after the first that is missing or wrong, ok is false.
struct OptionReader {
  const boost::json::object& json;
  bool ok = true;

  const boost::json::value* Find(absl::string_view name) {
    const auto* value = json.if_contains(boost::json::string_view(name.data(), name.size()));
    if (value == nullptr) ok = false;
    return value;
  }
  void Read(absl::string_view name, uint32_t* out) {
    const auto* value = Find(name);
    if (value == nullptr) return;
    boost::json::error_code error;
    *out = value->to_number<uint32_t>(error);
    if (error) ok = false;
  }
  void Read(absl::string_view name, uint64_t* out) {
    const auto* value = Find(name);
    if (value == nullptr) return;
    boost::json::error_code error;
    *out = value->to_number<uint64_t>(error);
    if (error) ok = false;
  }
  void Read(absl::string_view name, double* out) {
    const auto* value = Find(name);
    if (value == nullptr) return;
    boost::json::error_code error;
    *out = value->to_number<double>(error);
    if (error) ok = false;
  }
  void Read(absl::string_view name, std::string* out) {
    const auto* value = Find(name);
    if (value == nullptr || !value->is_string()) {
      ok = false;
      return;
    }
    out->assign(value->get_string().data(), value->get_string().size());
  }
};

absl::StatusOr<PlanOptions> FromJson(const boost::json::object& json) {
  PlanOptions o;
  OptionReader reader{json};
  reader.Read("seed", &o.seed);
  reader.Read("topics", &o.topics);
  reader.Read("tenants", &o.tenants);
  reader.Read("tenant_skew", &o.tenant_skew);
  reader.Read("departments", &o.departments);
  reader.Read("customers", &o.customers);
  reader.Read("large_customers", &o.large_customers);
  reader.Read("endpoints", &o.endpoints);
  reader.Read("subscriptions", &o.subscriptions);
  reader.Read("fan_out", &o.fan_out);
  reader.Read("addresses", &o.addresses);
  reader.Read("failing", &o.failing);
  reader.Read("ordered", &o.ordered);
  reader.Read("topic_prefix", &o.topic_prefix);
  reader.Read("tenant_prefix", &o.tenant_prefix);
  reader.Read("mode", &o.mode);
  reader.Read("events_max", &o.events_max);
  reader.Read("bytes_max", &o.bytes_max);
  reader.Read("wait_max_ms", &o.wait_max_ms);
  reader.Read("attempts", &o.attempts);
  reader.Read("first_delay_ms", &o.first_delay_ms);
  reader.Read("cap_ms", &o.cap_ms);
  reader.Read("horizon_ms", &o.horizon_ms);
  reader.Read("window_max", &o.window_max);
  if (!reader.ok) return absl::DataLossError("loadtest: plan: a member is missing or wrong");
  return o;
}

// `count` different numbers of first .. first+size-1, ascending.
std::vector<uint32_t> Sample(uint32_t first, uint32_t size, uint32_t count, Random* random) {
  std::vector<uint32_t> picked;
  count = std::min(count, size);
  while (picked.size() < count) {
    for (size_t missing = count - picked.size(); missing > 0; --missing) {
      picked.push_back(first + static_cast<uint32_t>(random->Below(size)));
    }
    std::sort(picked.begin(), picked.end());
    picked.erase(std::unique(picked.begin(), picked.end()), picked.end());
  }
  return picked;
}

class Hasher {
 public:
  void Add(uint64_t value) { hash_ = XXH3_64bits_withSeed(&value, sizeof(value), hash_); }
  template <typename T>
  void AddAll(const std::vector<T>& values) {
    Add(values.size());
    hash_ = XXH3_64bits_withSeed(values.data(), values.size() * sizeof(T), hash_);
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

}  // namespace

Plan::Plan(const PlanOptions& options)
    : options_(options), zipf_(options.tenants, options.tenant_skew) {}

absl::StatusOr<Plan> Plan::Build(const PlanOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  Plan plan(options);
  plan.MakeCustomers();
  plan.MakeEndpoints();
  RETURN_IF_ERROR(plan.MakeSubscriptions());
  plan.BuildIndex();
  plan.fingerprint_ = plan.Fingerprint();
  return plan;
}

void Plan::MakeCustomers() {
  customers_.resize(options_.customers);
  const uint32_t large = options_.large_customers;
  // Two broad endpoints for each copy of a tenant.
  copies_ = std::min(large, static_cast<uint32_t>(std::ceil(options_.fan_out / 2.0)));
  for (uint32_t tenant = 0; tenant < options_.tenants; ++tenant) {
    Random random = Draws(options_.seed, 1, tenant);
    for (uint32_t customer : Sample(0, large, copies_, &random)) {
      customers_[customer].tenants.push_back(tenant);
    }
  }
  // The busiest thirtieth of the tenants has only large customers.
  const uint32_t first = options_.tenants >= 30 ? options_.tenants / 30 : 0;
  for (uint32_t customer = large; customer < options_.customers; ++customer) {
    Random random = Draws(options_.seed, 2, customer);
    const auto count = static_cast<uint32_t>(1 + random.Below(60));
    customers_[customer].tenants = Sample(first, options_.tenants - first, count, &random);
  }
}

void Plan::MakeEndpoints() {
  const uint32_t large = options_.large_customers;
  const uint32_t small = options_.customers - large;
  endpoints_.resize(options_.endpoints);
  for (uint32_t i = 0; i < options_.endpoints; ++i) {
    Endpoint& endpoint = endpoints_[i];
    if (i < kBroadEndpoints * large) {
      endpoint.customer = i / kBroadEndpoints;
    } else {
      const uint32_t turn = i - kBroadEndpoints * large;
      endpoint.customer = small > 0 ? large + turn % small : turn % large;
    }
    endpoint.address = Address(i % options_.addresses);
  }
  // Spread evenly, so that busy and quiet ones fail alike.
  for (uint32_t i = 0; i < options_.failing; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * options_.endpoints / options_.failing;
    endpoints_[at].fails = true;
  }
  for (uint32_t i = 0; i < options_.ordered; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * options_.endpoints / options_.ordered;
    endpoints_[at].order = i % 2 == 0 ? PlannedOrder::kEndpoint : PlannedOrder::kTenant;
  }
}

void Plan::ChooseTypes(double share, uint64_t draw, Subscription* subscription) const {
  Random random = Draws(options_.seed, 3, draw);
  const double wanted = share * options_.topics;
  auto count = static_cast<uint32_t>(wanted);
  if (random.Fraction() < wanted - count) ++count;
  count = std::max(count, 1U);
  if (count >= options_.topics) {
    subscription->every_type = true;
    return;
  }
  // Whole areas as prefixes first, the rest one by one from the areas not taken.
  const uint32_t whole_areas = options_.topics / kTypesPerArea;
  const uint32_t prefixes = std::min(count / kTypesPerArea, whole_areas);
  for (uint32_t area : Sample(0, whole_areas, prefixes, &random)) {
    subscription->areas.push_back(static_cast<uint16_t>(area));
  }
  std::vector<uint16_t> rest;
  for (uint32_t type = 0; type < options_.topics; ++type) {
    const auto area = static_cast<uint16_t>(type / kTypesPerArea);
    if (!std::binary_search(subscription->areas.begin(), subscription->areas.end(), area)) {
      rest.push_back(static_cast<uint16_t>(type));
    }
  }
  for (uint32_t i = 0; i < count - prefixes * kTypesPerArea && i < rest.size(); ++i) {
    std::swap(rest[i], rest[i + random.Below(rest.size() - i)]);
    subscription->types.push_back(rest[i]);
  }
  std::sort(subscription->types.begin(), subscription->types.end());
}

double Plan::BroadReach() const {
  const uint32_t large = options_.large_customers;
  const uint32_t half = std::max(1U, options_.departments / 2);
  double reach = 2.0 * copies_;
  for (uint32_t customer = 0; customer < large; ++customer) {
    const std::vector<uint32_t>& tenants = customers_[customer].tenants;
    for (size_t i = 0; i < tenants.size() && i < kDepartmentTenants; ++i) {
      reach += zipf_.Probability(tenants[i]) * kDepartmentShare * half / options_.departments;
    }
  }
  return reach;
}

double Plan::SmallFanOut() const {
  double sum = 0;
  for (const Subscription& subscription : subscriptions_) {
    double share = static_cast<double>(subscription.types.size()) / options_.topics;
    const bool granted = subscription.scope == ScopeKind::kGranted;
    if (subscription.scope == ScopeKind::kDepartments) {
      share *= kDepartmentShare * static_cast<double>(subscription.departments.size()) /
               options_.departments;
    }
    double tenants = 0;
    const uint32_t customer = endpoints_[subscription.endpoint].customer;
    for (uint32_t tenant : granted ? customers_[customer].tenants : subscription.tenants) {
      tenants += zipf_.Probability(tenant);
    }
    sum += share * tenants;
  }
  return sum;
}

uint32_t Plan::BroadCount() const {
  size_t count = 0;
  for (uint32_t customer = 0; customer < options_.large_customers; ++customer) {
    const size_t tenants = customers_[customer].tenants.size();
    if (tenants == 0) continue;
    count += 1 + (tenants + kTenantsPerScope - 1) / kTenantsPerScope +
             std::min<size_t>(tenants, kDepartmentTenants);
  }
  return static_cast<uint32_t>(count);
}

absl::Status Plan::MakeSubscriptions() {
  const uint32_t broad = BroadCount();
  const uint32_t wanted = options_.subscriptions == 0 ? broad : options_.subscriptions;
  RETURN_IF_ERROR(
      Want(wanted >= broad, absl::StrCat("subscriptions >= ", broad, ", the broad ones")));
  const uint32_t narrow = options_.endpoints - kBroadEndpoints * options_.large_customers;
  RETURN_IF_ERROR(Want(narrow > 0 || wanted == broad,
                       absl::StrCat("exactly ", broad, " subscriptions without small endpoints")));
  MakeSmallSubscriptions(wanted - broad);
  // The broad ones bring what is missing to the fan-out that was asked for.
  const double missing = options_.fan_out - SmallFanOut();
  RETURN_IF_ERROR(Want(missing > 0, "fewer small subscriptions: they alone pass the fan-out"));
  MakeBroadSubscriptions(std::min(1.0, missing / BroadReach()));
  POSTRIDER_CHECK(subscriptions_.size() == wanted);
  return absl::OkStatus();
}

void Plan::MakeBroadSubscriptions(double share) {
  const uint32_t large = options_.large_customers;
  const uint32_t half = std::max(1U, options_.departments / 2);
  for (uint32_t customer = 0; customer < large; ++customer) {
    const std::vector<uint32_t>& tenants = customers_[customer].tenants;
    if (tenants.empty()) continue;
    const uint32_t endpoint = customer * kBroadEndpoints;
    Subscription granted;
    granted.endpoint = endpoint;
    ChooseTypes(share, endpoint, &granted);
    subscriptions_.push_back(std::move(granted));

    Subscription listed;
    listed.endpoint = endpoint + 1;
    listed.scope = ScopeKind::kTenants;
    ChooseTypes(share, endpoint + 1, &listed);
    for (size_t from = 0; from < tenants.size(); from += kTenantsPerScope) {
      const size_t to = std::min(tenants.size(), from + kTenantsPerScope);
      listed.tenants.assign(tenants.begin() + static_cast<std::ptrdiff_t>(from),
                            tenants.begin() + static_cast<std::ptrdiff_t>(to));
      subscriptions_.push_back(listed);
    }

    Subscription departments;
    departments.endpoint = endpoint + 2;
    departments.scope = ScopeKind::kDepartments;
    ChooseTypes(share, endpoint + 2, &departments);
    for (size_t i = 0; i < tenants.size() && i < kDepartmentTenants; ++i) {
      Random random = Draws(options_.seed, 4, uint64_t{endpoint} * 8 + i);
      departments.tenants = {tenants[i]};
      departments.departments.clear();
      for (uint32_t d : Sample(0, options_.departments, half, &random)) {
        departments.departments.push_back(static_cast<uint8_t>(d));
      }
      subscriptions_.push_back(departments);
    }
  }
}

void Plan::MakeSmallSubscriptions(uint32_t subscriptions) {
  const uint32_t first = kBroadEndpoints * options_.large_customers;
  const uint32_t narrow = options_.endpoints - first;
  if (narrow == 0) return;
  for (uint32_t i = 0; i < subscriptions; ++i) {
    Subscription subscription;
    subscription.endpoint = first + i % narrow;
    const std::vector<uint32_t>& tenants =
        customers_[endpoints_[subscription.endpoint].customer].tenants;
    subscription.scope = static_cast<ScopeKind>((i + i / narrow) % 3);
    Random random = Draws(options_.seed, 5, i);
    const auto granted = static_cast<uint32_t>(tenants.size());
    if (granted == 0) subscription.scope = ScopeKind::kGranted;
    if (subscription.scope == ScopeKind::kTenants) {
      const auto count = static_cast<uint32_t>(1 + random.Below(20));
      for (uint32_t at : Sample(0, granted, count, &random)) {
        subscription.tenants.push_back(tenants[at]);
      }
    } else if (subscription.scope == ScopeKind::kDepartments) {
      subscription.tenants = {tenants[random.Below(granted)]};
      const auto count = static_cast<uint32_t>(1 + random.Below(3));
      for (uint32_t d : Sample(0, options_.departments, count, &random)) {
        subscription.departments.push_back(static_cast<uint8_t>(d));
      }
    }
    const auto count = static_cast<uint32_t>(1 + random.Below(5));
    for (uint32_t type : Sample(0, options_.topics, count, &random)) {
      subscription.types.push_back(static_cast<uint16_t>(type));
    }
    subscriptions_.push_back(std::move(subscription));
  }
}

void Plan::BuildIndex() {
  entries_.assign(options_.tenants, {});
  const size_t words = (options_.topics + 63) / 64;
  type_sets_.reserve(subscriptions_.size());
  for (const Subscription& subscription : subscriptions_) {
    std::vector<uint64_t> set(words, subscription.every_type ? ~0ULL : 0ULL);
    for (uint16_t area : subscription.areas) {
      const uint32_t end = std::min(options_.topics, (area + 1U) * kTypesPerArea);
      for (uint32_t type = area * kTypesPerArea; type < end; ++type) {
        set[type / 64] |= 1ULL << (type % 64);
      }
    }
    for (uint16_t type : subscription.types) set[type / 64] |= 1ULL << (type % 64);
    Entry entry{subscription.endpoint, static_cast<uint32_t>(type_sets_.size()), ~0ULL};
    type_sets_.push_back(std::move(set));
    if (subscription.scope == ScopeKind::kDepartments) {
      entry.departments = 0;
      for (uint8_t d : subscription.departments) entry.departments |= 1ULL << d;
      entries_[subscription.tenants[0]].push_back(entry);
      continue;
    }
    const std::vector<uint32_t>& tenants =
        subscription.scope == ScopeKind::kGranted
            ? customers_[endpoints_[subscription.endpoint].customer].tenants
            : subscription.tenants;
    for (uint32_t tenant : tenants) entries_[tenant].push_back(entry);
  }
}

void Plan::Match(const EventFields& event, std::vector<uint32_t>* endpoints) const {
  endpoints->clear();
  if (event.tenant >= entries_.size() || event.type >= options_.topics) return;
  for (const Entry& entry : entries_[event.tenant]) {
    if ((type_sets_[entry.types][event.type / 64] >> (event.type % 64) & 1) == 0) continue;
    if (entry.departments != ~0ULL) {
      if (event.department == kNoDepartment) continue;
      if ((entry.departments >> event.department & 1) == 0) continue;
    }
    endpoints->push_back(entry.endpoint);
  }
  std::sort(endpoints->begin(), endpoints->end());
  endpoints->erase(std::unique(endpoints->begin(), endpoints->end()), endpoints->end());
}

uint64_t Plan::Fingerprint() const {
  Hasher hasher;
  for (const Customer& customer : customers_) hasher.AddAll(customer.tenants);
  for (const Endpoint& endpoint : endpoints_) {
    hasher.Add(endpoint.customer);
    hasher.Add(endpoint.address);
    hasher.Add(endpoint.fails ? 1 : 0);
    hasher.Add(static_cast<uint64_t>(endpoint.order));
  }
  for (const Subscription& subscription : subscriptions_) {
    hasher.Add(subscription.endpoint);
    hasher.Add(static_cast<uint64_t>(subscription.scope));
    hasher.AddAll(subscription.tenants);
    hasher.AddAll(subscription.departments);
    hasher.Add(subscription.every_type ? 1 : 0);
    hasher.AddAll(subscription.areas);
    hasher.AddAll(subscription.types);
  }
  return hasher.hash();
}

absl::Status Plan::Save(const std::string& path) const {
  const boost::json::object file = {{"options", ToJson(options_)},
                                    {"fingerprint", absl::StrFormat("%016x", fingerprint_)}};
  std::ofstream out(path, std::ios::trunc);
  out << boost::json::serialize(file) << "\n";
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("loadtest: cannot write ", path));
  return absl::OkStatus();
}

absl::StatusOr<Plan> Plan::Load(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) return absl::NotFoundError(absl::StrCat("loadtest: cannot read ", path));
  boost::json::error_code error;
  const boost::json::value file = boost::json::parse(text.str(), error);
  if (error || !file.is_object()) {
    return absl::DataLossError(absl::StrCat("loadtest: ", path, " is no plan"));
  }
  const auto* options = file.get_object().if_contains("options");
  const auto* fingerprint = file.get_object().if_contains("fingerprint");
  if (options == nullptr || !options->is_object() || fingerprint == nullptr ||
      !fingerprint->is_string()) {
    return absl::DataLossError(absl::StrCat("loadtest: ", path, " is no plan"));
  }
  ASSIGN_OR_RETURN(PlanOptions read, FromJson(options->get_object()));
  ASSIGN_OR_RETURN(Plan plan, Build(read));
  const auto& text_print = fingerprint->get_string();
  if (absl::string_view(text_print.data(), text_print.size()) !=
      absl::StrFormat("%016x", plan.fingerprint_)) {
    return absl::FailedPreconditionError(
        absl::StrCat("loadtest: ", path, " was made by another version of the plan"));
  }
  return plan;
}

std::string Plan::TypeName(uint32_t type) const {
  return absl::StrFormat("area%02d.event%d", type / kTypesPerArea, type % kTypesPerArea);
}
std::string Plan::AreaPattern(uint32_t area) const { return absl::StrFormat("area%02d.*", area); }
std::string Plan::Topic(uint32_t type) const {
  return absl::StrCat(options_.topic_prefix, TypeName(type));
}
std::string Plan::TenantName(uint32_t tenant) const {
  return absl::StrFormat("%s%05d", options_.tenant_prefix, tenant);
}
bool Plan::Streams(uint32_t endpoint) const {
  return options_.mode == "streaming" || (options_.mode == "mixed" && endpoint % 2 == 0);
}
std::string Plan::DepartmentName(uint8_t department) {
  return absl::StrCat("d", static_cast<int>(department));
}

std::string Plan::Url(uint32_t endpoint, uint16_t port) const {
  const uint32_t a = endpoints_[endpoint].address;
  return absl::StrFormat("http://%d.%d.%d.%d:%d%s/e/%d", a >> 24, (a >> 16) & 255, (a >> 8) & 255,
                         a & 255, port, endpoints_[endpoint].fails ? "/answer/500" : "", endpoint);
}

std::vector<std::string> Plan::TypePatterns(const Subscription& subscription) const {
  if (subscription.every_type) return {"*"};
  std::vector<std::string> patterns;
  for (uint16_t area : subscription.areas) patterns.push_back(AreaPattern(area));
  for (uint16_t type : subscription.types) patterns.push_back(TypeName(type));
  return patterns;
}

Plan::Expectation Plan::Expect(double events_per_second, uint32_t samples) const {
  const EventSource source(*this, options_.seed, 300, 300);
  std::vector<uint32_t> hits(endpoints_.size(), 0);
  std::vector<uint32_t> matched;
  uint64_t messages = 0;
  for (uint32_t n = 0; n < samples; ++n) {
    Match(source.At(n), &matched);
    messages += matched.size();
    for (uint32_t endpoint : matched) ++hits[endpoint];
  }
  Expectation result;
  result.fan_out = static_cast<double>(messages) / samples;
  for (uint32_t count : hits) {
    const double rate = events_per_second * count / samples;
    result.endpoints_per_second += 1 - std::exp(-rate);
  }
  if (result.endpoints_per_second > 0) {
    result.messages_per_request = result.fan_out * events_per_second / result.endpoints_per_second;
  }
  return result;
}

}  // namespace postrider::loadtest
