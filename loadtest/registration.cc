#include "loadtest/registration.h"

#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "loadtest/internal/rest_client.h"

namespace postrider::loadtest {
namespace {

namespace json = boost::json;
using internal::RestClient;
using internal::RestRequest;

constexpr size_t kTenantsPerGrant = 1000;
constexpr size_t kShownOfAnswer = 300;

absl::StatusOr<json::object> ParseAnswer(int status, absl::string_view body) {
  if (status < 200 || status > 299) {
    return absl::FailedPreconditionError(
        absl::StrCat("answered ", status, ": ", body.substr(0, kShownOfAnswer)));
  }
  json::error_code error;
  json::value value = json::parse(json::string_view(body.data(), body.size()), error);
  if (error || !value.is_object()) return absl::InternalError("the answer is no JSON object");
  return std::move(value.get_object());
}

absl::StatusOr<std::string> TextMember(const json::object& object, absl::string_view name) {
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || !value->is_string()) {
    return absl::InternalError(absl::StrCat("the answer has no text ", name));
  }
  return std::string(value->get_string().data(), value->get_string().size());
}

json::array TenantNames(const Plan& plan, const std::vector<uint32_t>& tenants, size_t from,
                        size_t to) {
  json::array names;
  for (size_t i = from; i < to && i < tenants.size(); ++i) {
    names.emplace_back(plan.TenantName(tenants[i]));
  }
  return names;
}

std::string EndpointBody(const Plan& plan, uint32_t endpoint, uint16_t port) {
  const PlanOptions& o = plan.options();
  const bool streams = plan.Streams(endpoint);
  json::object retry = {
      {"attempts", o.attempts}, {"first_delay_ms", o.first_delay_ms}, {"horizon_ms", o.horizon_ms}};
  if (o.cap_ms > 0) retry["cap_ms"] = o.cap_ms;
  json::object body = {{"url", plan.Url(endpoint, port)},
                       {"mode", streams ? "streaming" : "batch"},
                       {"window_max", o.window_max},
                       {"retry", std::move(retry)}};
  if (!streams) {
    body["batch"] = {
        {"events_max", o.events_max}, {"bytes_max", o.bytes_max}, {"wait_max_ms", o.wait_max_ms}};
  }
  const PlannedOrder order = plan.endpoints()[endpoint].order;
  if (order != PlannedOrder::kNone) {
    body["order"] = {{"kind", order == PlannedOrder::kTenant ? "key" : "endpoint"}};
  }
  return json::serialize(body);
}

std::string SubscriptionBody(const Plan& plan, const Plan::Subscription& subscription,
                             const std::string& endpoint_id) {
  json::array types;
  for (const std::string& pattern : plan.TypePatterns(subscription)) types.emplace_back(pattern);
  json::object scope;
  switch (subscription.scope) {
    case ScopeKind::kGranted:
      scope["kind"] = "granted";
      break;
    case ScopeKind::kTenants:
      scope["kind"] = "tenants";
      scope["tenants"] = TenantNames(plan, subscription.tenants, 0, subscription.tenants.size());
      break;
    case ScopeKind::kDepartments: {
      scope["kind"] = "departments";
      scope["tenant"] = plan.TenantName(subscription.tenants[0]);
      json::array departments;
      for (uint8_t d : subscription.departments) departments.emplace_back(Plan::DepartmentName(d));
      scope["departments"] = std::move(departments);
      break;
    }
  }
  return json::serialize(json::object{{"endpoint_id", endpoint_id},
                                      {"event_types", std::move(types)},
                                      {"scope", std::move(scope)}});
}

// Says how far a long step is, at most once a second.
class Progress {
 public:
  Progress(absl::string_view what, size_t count) : what_(what), count_(count) {}
  ~Progress() { fprintf(stderr, "register: %zu of %zu %s\n", done_, count_, what_.c_str()); }
  void Step() {
    ++done_;
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < std::chrono::seconds(5)) return;
    shown_ = now;
    fprintf(stderr, "register: %zu of %zu %s\n", done_, count_, what_.c_str());
  }

 private:
  std::string what_;
  size_t count_;
  size_t done_ = 0;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

// Every step is one kind of call for each of `count` things.
class Registration {
 public:
  Registration(const Plan& plan, const RegisterOptions& options)
      : plan_(plan), options_(options), client_(options.api, options.parallel) {
    state_.fingerprint = plan.fingerprint();
    state_.receiver_port = options.receiver_port;
    state_.api = options.api;
    state_.customers.resize(plan.customers().size());
    state_.endpoints.resize(plan.endpoints().size());
  }

  absl::StatusOr<State> Run() {
    RETURN_IF_ERROR(EventTypes());
    RETURN_IF_ERROR(Customers());
    RETURN_IF_ERROR(Keys());
    RETURN_IF_ERROR(Grants());
    RETURN_IF_ERROR(Endpoints());
    RETURN_IF_ERROR(Subscriptions());
    return std::move(state_);
  }

 private:
  using Take = std::function<absl::Status(size_t, const json::object&)>;

  absl::Status Step(absl::string_view what, size_t count,
                    const std::function<RestRequest(size_t)>& make, const Take& take) {
    Progress progress(what, count);
    return client_.RunAll(count, make, [&](size_t i, int status, absl::string_view body) {
      ASSIGN_OR_RETURN(const json::object answer, ParseAnswer(status, body));
      progress.Step();
      return take(i, answer);
    });
  }
  RestRequest Operator(std::string method, std::string path, const json::object& body) const {
    return {std::move(method), std::move(path), options_.operator_key, json::serialize(body)};
  }

  absl::Status EventTypes() {
    return Step(
        "event types", plan_.options().topics,
        [&](size_t i) {
          return Operator(
              "PUT", absl::StrCat("/v1/event-types/", plan_.TypeName(static_cast<uint32_t>(i))),
              {{"description", "load test"}});
        },
        [](size_t, const json::object&) { return absl::OkStatus(); });
  }
  absl::Status Customers() {
    return Step(
        "customers", state_.customers.size(),
        [&](size_t i) {
          return Operator("POST", "/v1/customers", {{"name", absl::StrCat("customer ", i)}});
        },
        [&](size_t i, const json::object& answer) -> absl::Status {
          ASSIGN_OR_RETURN(state_.customers[i].id, TextMember(answer, "id"));
          return absl::OkStatus();
        });
  }
  absl::Status Keys() {
    // The last one is the publisher's.
    const size_t customers = state_.customers.size();
    return Step(
        "keys", customers + 1,
        [&](size_t i) {
          if (i == customers) {
            return Operator("POST", "/v1/keys",
                            {{"scope", "publisher"},
                             {"event_types", json::array{"*"}},
                             {"tenants", json::array{"*"}}});
          }
          return Operator("POST", "/v1/keys",
                          {{"scope", "customer"}, {"customer_id", state_.customers[i].id}});
        },
        [&](size_t i, const json::object& answer) -> absl::Status {
          ASSIGN_OR_RETURN(std::string key, TextMember(answer, "key"));
          (i == customers ? state_.publisher_key : state_.customers[i].key) = std::move(key);
          return absl::OkStatus();
        });
  }
  absl::Status Grants() {
    struct Chunk {
      uint32_t customer;
      size_t from;
    };
    std::vector<Chunk> chunks;
    for (uint32_t c = 0; c < plan_.customers().size(); ++c) {
      const size_t size = plan_.customers()[c].tenants.size();
      for (size_t from = 0; from < size; from += kTenantsPerGrant) chunks.push_back({c, from});
    }
    return Step(
        "grants", chunks.size(),
        [&](size_t i) {
          const Chunk& chunk = chunks[i];
          return Operator(
              "POST",
              absl::StrCat("/v1/customers/", state_.customers[chunk.customer].id, "/grants"),
              {{"tenants", TenantNames(plan_, plan_.customers()[chunk.customer].tenants, chunk.from,
                                       chunk.from + kTenantsPerGrant)}});
        },
        [](size_t, const json::object&) { return absl::OkStatus(); });
  }
  absl::Status Endpoints() {
    return Step(
        "endpoints", state_.endpoints.size(),
        [&](size_t i) {
          const auto endpoint = static_cast<uint32_t>(i);
          return RestRequest{"POST", "/v1/endpoints",
                             state_.customers[plan_.endpoints()[i].customer].key,
                             EndpointBody(plan_, endpoint, options_.receiver_port)};
        },
        [&](size_t i, const json::object& answer) -> absl::Status {
          ASSIGN_OR_RETURN(state_.endpoints[i].id, TextMember(answer, "id"));
          ASSIGN_OR_RETURN(state_.endpoints[i].secret, TextMember(answer, "secret"));
          return absl::OkStatus();
        });
  }
  absl::Status Subscriptions() {
    return Step(
        "subscriptions", plan_.subscriptions().size(),
        [&](size_t i) {
          const Plan::Subscription& subscription = plan_.subscriptions()[i];
          const Plan::Endpoint& endpoint = plan_.endpoints()[subscription.endpoint];
          return RestRequest{
              "POST", "/v1/subscriptions", state_.customers[endpoint.customer].key,
              SubscriptionBody(plan_, subscription, state_.endpoints[subscription.endpoint].id)};
        },
        [&](size_t, const json::object&) {
          ++state_.subscriptions;
          return absl::OkStatus();
        });
  }

  const Plan& plan_;
  const RegisterOptions& options_;
  RestClient client_;
  State state_;
};

}  // namespace

absl::StatusOr<State> Register(const Plan& plan, const RegisterOptions& options) {
  return Registration(plan, options).Run();
}

absl::StatusOr<uint64_t> SaveLetters(const State& state, const std::string& api, int parallel,
                                     const std::string& path) {
  std::ofstream out(path, std::ios::trunc);
  RestClient client(api, parallel);
  struct Page {
    std::string key;
    std::string cursor;
  };
  std::vector<Page> pages;
  for (const State::Customer& customer : state.customers) {
    if (!customer.key.empty()) pages.push_back({customer.key, ""});
  }
  uint64_t letters = 0;
  // A round asks for one page of each customer that has more.
  while (!pages.empty()) {
    std::vector<Page> more;
    RETURN_IF_ERROR(client.RunAll(
        pages.size(),
        [&](size_t i) {
          const Page& page = pages[i];
          std::string target = "/v1/dead-letters?limit=1000";
          if (!page.cursor.empty()) absl::StrAppend(&target, "&cursor=", page.cursor);
          return RestRequest{"GET", std::move(target), page.key, ""};
        },
        [&](size_t i, int status, absl::string_view body) -> absl::Status {
          ASSIGN_OR_RETURN(const json::object answer, ParseAnswer(status, body));
          const json::value* data = answer.if_contains("data");
          if (data == nullptr || !data->is_array()) return absl::InternalError("no data");
          for (const json::value& item : data->get_array()) {
            if (!item.is_object()) return absl::InternalError("a letter is no object");
            const json::object& letter = item.get_object();
            ASSIGN_OR_RETURN(const std::string event, TextMember(letter, "event_id"));
            ASSIGN_OR_RETURN(const std::string endpoint, TextMember(letter, "endpoint_id"));
            ASSIGN_OR_RETURN(const std::string reason, TextMember(letter, "reason"));
            ASSIGN_OR_RETURN(const std::string letter_state, TextMember(letter, "state"));
            out << event << " " << endpoint << " " << reason << " " << letter_state << "\n";
            ++letters;
          }
          const json::value* cursor = answer.if_contains("next_cursor");
          if (cursor != nullptr && cursor->is_string()) {
            more.push_back({pages[i].key,
                            std::string(cursor->get_string().data(), cursor->get_string().size())});
          }
          return absl::OkStatus();
        }));
    pages = std::move(more);
  }
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("loadtest: cannot write ", path));
  return letters;
}

}  // namespace postrider::loadtest
