#include "api/api_role.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "api/api_key.h"
#include "api/idempotency_key.h"
#include "api/internal/parts.h"
#include "api/internal/resources.h"
#include "api/openapi.h"
#include "api/problem.h"
#include "api/server.h"
#include "core/base/check.h"
#include "core/base/event_loop.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/thread_name.h"
#include "core/crypto/random.h"
#include "core/postgres/pool.h"

namespace postrider::api {
namespace {

constexpr std::chrono::seconds kHealthInterval{1};
// Of one statement; a database that is silent for longer is away.
constexpr std::chrono::seconds kStatementMax{5};
constexpr std::chrono::seconds kFinishWaitMax{7};
constexpr std::chrono::milliseconds kFinishTurn{10};

void AddAllRoutes(const ApiParts& parts, Router* router) {
  AddCustomerRoutes(parts, router);
  AddGrantRoutes(parts, router);
  AddKeyRoutes(parts, router);
  AddEventTypeRoutes(parts, router);
  AddEndpointRoutes(parts, router);
  AddEndpointVerbRoutes(parts, router);
  AddEndpointTestRoutes(parts, router);
  AddEndpointReportRoutes(parts, router);
  AddSubscriptionRoutes(parts, router);
  AddDeadLetterRoutes(parts, router);
  AddErasureRoutes(parts, router);
  AddEventRoutes(parts, router);
  AddOpenApiRoute(router);
}

bool ScopeFits(RequiredScope needed, subscriptions::KeyScope scope) {
  switch (needed) {
    case RequiredScope::kNone:
      return true;
    case RequiredScope::kOperator:
      return scope == subscriptions::KeyScope::kOperator;
    case RequiredScope::kCustomer:
      return scope == subscriptions::KeyScope::kCustomer;
    case RequiredScope::kPublisher:
      return scope == subscriptions::KeyScope::kPublisher;
  }
  return false;
}

// Parameters that the route does not have: a filter with a typing error would otherwise be none.
subscriptions::FieldFaults UnknownParameters(const Route& route, const Request& request) {
  subscriptions::FieldFaults faults;
  for (const auto& [name, value] : request.query) {
    bool known = false;
    for (const QueryParameter& parameter : route.query) known = known || parameter.name == name;
    if (!known) faults.push_back({name, "is no parameter of this"});
  }
  return faults;
}

}  // namespace

void ApiOptions::Register(Options& options) {
  options.Add("api.listen", &listen, "Where the REST API listens: address:port.");
  options.Add("api.connections_max", &connections_max, 1, 10'000,
              "Connections at once; the next one is answered 503.");
  options.Add("api.database_connections", &database_connections, 1, 100,
              "Connections to Postgres for the REST API.");
  options.Add("api.create_topics", &create_topics,
              "Whether publishing an event of a type that has no topic yet makes it.");
  options.Add("source.partitions", &source_partitions, 1, 1'000,
              "Partitions of a source topic that publishing makes.");
}

struct ApiRole::Impl {
  // All of it lives on the loop's thread between Run()'s beginning and end.
  struct OnLoop {
    OnLoop(EventLoop& loop, Log& log, const KeyRing& keys, PoolOptions pool_options,
           PublishOptions publish, std::shared_ptr<const AddressRules> rules, uint64_t seed)
        : pool(loop, std::move(pool_options), seed),
          publisher(loop, log, pool, std::move(publish)),
          authenticator(pool, loop.clock()),
          parts{loop, pool, loop.clock(), keys, std::move(rules), publisher} {}
    Pool pool;
    Publisher publisher;
    Authenticator authenticator;
    FailureLimiter limiter;
    std::unique_ptr<EndpointTester> tester;  // null: there is none
    ApiParts parts;
    std::unique_ptr<Server> server;
  };

  void MakeTester(const ApiRoleParts& parts);
  void Admit(const Route& route, Request request, Respond respond);
  void LookAtHealth();
  // On the loop's thread, after its last turn as such.
  void Finish();

  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<OnLoop> on_loop;
  uint16_t port = 0;
  std::thread thread;
  mutable absl::Mutex mutex;
  absl::Status health ABSL_GUARDED_BY(mutex) = absl::UnavailableError("not asked yet");
};

void ApiRole::Impl::MakeTester(const ApiRoleParts& parts) {
  if (parts.make_tester == nullptr) return;
  absl::StatusOr<std::unique_ptr<EndpointTester>> made = parts.make_tester(*loop);
  if (!made.ok()) {
    POSTRIDER_LOG(kWarn, "endpoints cannot be tested by the API", {"why", made.status().message()});
    return;
  }
  on_loop->tester = *std::move(made);
  on_loop->parts.tester = on_loop->tester.get();
}

void ApiRole::Impl::Admit(const Route& route, Request request, Respond respond) {
  if (auto faults = UnknownParameters(route, request); !faults.empty()) {
    return std::move(respond)(ProblemFromParameters(faults));
  }
  if (route.scope == RequiredScope::kNone) {
    return route.handler(std::move(request), std::move(respond));
  }
  // Of a body of lines the first part was let in: others' guesses do not end it.
  const bool begun = request.lines != nullptr && request.lines->first_line > 1;
  if (!begun && on_loop->limiter.Blocked(request.remote_address, loop->clock().Now())) {
    return std::move(respond)(ProblemRetry(
        429, "Too many requests with a bad key from this address.", std::chrono::seconds(1)));
  }
  const std::string* authorization = request.Header("authorization");
  const absl::optional<std::string> header =
      authorization == nullptr ? absl::nullopt : absl::optional<std::string>(*authorization);
  on_loop->authenticator.Authenticate(
      header ? &*header : nullptr,
      [this, &route, request = std::move(request),
       respond = std::move(respond)](absl::StatusOr<Principal> principal) mutable {
        if (on_loop->server == nullptr) return;  // and `route` went with it
        if (!principal.ok()) {
          if (absl::IsUnauthenticated(principal.status())) {
            on_loop->limiter.Failed(request.remote_address, loop->clock().Now());
          }
          return std::move(respond)(ProblemFromStatus(principal.status()));
        }
        if (!ScopeFits(route.scope, principal->scope)) {
          return std::move(respond)(
              Problem(403, "A key of this scope may not do this; see /openapi.json."));
        }
        request.principal = *std::move(principal);
        if (absl::optional<Response> refusal = ReadIdempotencyKey(route, &request)) {
          return std::move(respond)(*std::move(refusal));
        }
        route.handler(std::move(request), std::move(respond));
      });
}

void ApiRole::Impl::LookAtHealth() {
  // The pool connects when it is asked to, so ask.
  on_loop->pool.Acquire([this](absl::StatusOr<PooledConnection> connection) {
    {
      absl::MutexLock lock(&mutex);
      // All connections in use is work, not a fault.
      health =
          absl::IsResourceExhausted(connection.status()) ? absl::OkStatus() : connection.status();
    }
    loop->CallAfter(kHealthInterval, [this] { LookAtHealth(); });
  });
}

void ApiRole::Impl::Finish() {
  on_loop->server.reset();
  on_loop->parts.stopping = true;
  on_loop->publisher.Close();
  if (on_loop->tester != nullptr) on_loop->tester->AbortAll();
  const auto busy = [this] {
    return on_loop->pool.in_use() > 0 || on_loop->pool.waiting() > 0 ||
           (on_loop->tester != nullptr && on_loop->tester->in_flight() > 0);
  };
  // Requests that nobody waits for any more hold connections until their statements end.
  const MonotonicTime patience = loop->clock().Now() + kFinishWaitMax;
  do {
    loop->RunOnce(kFinishTurn);
  } while (busy() && loop->clock().Now() < patience);
  on_loop.reset();
}

absl::StatusOr<std::unique_ptr<ApiRole>> ApiRole::Start(const ApiRoleParts& parts,
                                                        const ApiOptions& options,
                                                        ConnectionOptions database,
                                                        PublishOptions publish,
                                                        std::shared_ptr<const AddressRules> rules) {
  auto impl = std::make_unique<Impl>();
  ASSIGN_OR_RETURN(impl->loop, EventLoop::Create(parts.clock));
  PoolOptions pool;
  pool.connection = std::move(database);
  pool.connection.statement_timeout =
      std::min<std::chrono::milliseconds>(pool.connection.statement_timeout, kStatementMax);
  pool.connections_max = static_cast<size_t>(options.database_connections);
  publish.create_topics = options.create_topics;
  publish.partitions = static_cast<int32_t>(options.source_partitions);
  uint64_t seed = 0;
  FillRandom(&seed, sizeof(seed));

  absl::Status started;
  absl::Notification ready;
  impl->thread = std::thread(
      [raw = impl.get(), &started, &ready, &parts, &options, &pool, &publish, &rules, seed] {
        NameThread("api-loop");
        raw->on_loop =
            std::make_unique<Impl::OnLoop>(*raw->loop, parts.log, parts.keys, std::move(pool),
                                           std::move(publish), std::move(rules), seed);
        raw->MakeTester(parts);
        Router router;
        AddAllRoutes(raw->on_loop->parts, &router);
        ServerOptions server;
        server.listen = options.listen;
        server.connections_max = static_cast<size_t>(options.connections_max);
        absl::StatusOr<std::unique_ptr<Server>> listening =
            Server::Start(*raw->loop, std::move(router), server, parts.metrics, "api",
                          [raw](const Route& route, Request request, Respond respond) {
                            raw->Admit(route, std::move(request), std::move(respond));
                          });
        if (listening.ok()) {
          raw->on_loop->server = *std::move(listening);
          raw->port = raw->on_loop->server->port();
          raw->LookAtHealth();
        } else {
          started = listening.status();
        }
        const bool run = started.ok();
        ready.Notify();
        if (run) raw->loop->Run();
        raw->Finish();
      });
  ready.WaitForNotification();
  if (!started.ok()) {
    impl->thread.join();
    return started;
  }
  return std::unique_ptr<ApiRole>(new ApiRole(std::move(impl)));
}

ApiRole::ApiRole(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ApiRole::~ApiRole() {
  impl_->loop->Stop();
  impl_->thread.join();
}

uint16_t ApiRole::port() const { return impl_->port; }
const Router& ApiRole::router() const { return impl_->on_loop->server->router(); }

absl::Status ApiRole::health() const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->health;
}

void ApiRole::SetAddressRules(std::shared_ptr<const AddressRules> rules) {
  EventLoop::Callback set = [impl = impl_.get(), rules = std::move(rules)]() mutable {
    if (impl->on_loop->tester != nullptr) impl->on_loop->tester->SetAddressRules(rules);
    impl->on_loop->parts.rules = std::move(rules);
  };
  while (!impl_->loop->Post(std::move(set))) std::this_thread::yield();
}

void ApiRole::AllowTests() {
  EventLoop::Callback allow = [impl = impl_.get()] { impl->on_loop->parts.tests_allowed = true; };
  while (!impl_->loop->Post(std::move(allow))) std::this_thread::yield();
}

void ApiRole::Stop(std::function<void()> done) {
  EventLoop::Callback stop = [impl = impl_.get(), done = std::move(done)]() mutable {
    impl->on_loop->parts.stopping = true;
    if (impl->on_loop->server == nullptr) return;  // it ends already
    impl->on_loop->server->Stop(std::move(done));
  };
  while (!impl_->loop->Post(std::move(stop))) std::this_thread::yield();
}

}  // namespace postrider::api
