#include "core/http/internal/curl_sink_impl.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/http/internal/curl_failure.h"

namespace postrider::internal {
namespace {

constexpr Duration kSweepEvery = std::chrono::minutes(1);

bool IsCleanForWire(const HttpRequest& request) {
  for (const auto& [name, value] : request.headers) {
    if (!IsHeaderName(name) || !IsHeaderValue(value)) return false;
    for (const absl::string_view ours :
         {"host", "content-length", "transfer-encoding", "connection", "expect"}) {
      if (name.size() == ours.size() && absl::EqualsIgnoreCase(name, ours)) return false;
    }
  }
  return true;
}

}  // namespace

CurlSinkMetrics::CurlSinkMetrics(Metrics& metrics)
    : resends(
          metrics.AddCounter("postrider_http_resends_total",
                             "Requests that were sent again because a kept connection was dead")),
      connections(
          metrics.AddCounter("postrider_http_connections_total", "Connections that were opened")),
      idle_events(metrics.AddCounter("postrider_http_idle_socket_events_total",
                                     "Events on connections that no request used")),
      unknown_codes(metrics.AddCounter("postrider_http_unknown_ends_total",
                                       "Requests that ended without a head and without a fault")),
      queue_seconds(metrics.AddHistogram("postrider_http_queue_seconds",
                                         "What a request waited for its name and a slot",
                                         {0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60})) {
  for (int i = 0; i < kHttpFailures; ++i) {
    requests.push_back(
        &metrics.AddCounter("postrider_http_requests_total", "Requests that ended, by failure",
                            {{"failure", HttpFailureName(static_cast<HttpFailure>(i))}}));
  }
}

CurlSink::CurlSink(EventLoop& loop, const CurlSinkOptions& options, Resolver& resolver,
                   std::shared_ptr<const AddressRules> rules, Metrics& metrics)
    : loop_(loop),
      options_(options),
      resolver_(resolver),
      rules_(std::move(rules)),
      metrics_(metrics),
      inbox_(std::make_shared<Inbox>()),
      plain_(loop, {options.idle_connections_max, options.connection_age_max, options.idle_age_max},
             curl_idle_, *this, metrics_.idle_events) {
  {
    absl::MutexLock lock(&inbox_->mutex);
    inbox_->loop = &loop_;
  }
  inbox_->sink = this;
  for (int i = 0; i < options_.pools; ++i) pools_.push_back(MakePool());
  if (options_.proxy != nullptr) {
    auto route = std::make_unique<Route>();
    route->key = "proxy";  // no authority is without a port
    route->host = options_.proxy->host;
    route->users = 1;
    route->valid_until = MonotonicTime::min();
    if (options_.proxy->address) SetLiteral(*route, *options_.proxy->address);
    proxy_ = route.get();
    routes_.emplace(route->key, std::move(route));
  }
  sweep_timer_ = loop_.CallAfter(kSweepEvery, [this] { SweepRoutes(); });
}

CurlSink::~CurlSink() {
  POSTRIDER_CHECK(in_flight() == 0);
  {
    absl::MutexLock lock(&inbox_->mutex);
    inbox_->loop = nullptr;
  }
  inbox_->sink = nullptr;
  loop_.CancelTimer(turn_timer_);
  loop_.CancelTimer(sweep_timer_);
  loop_.CancelTimer(trim_timer_);
  for (const auto& [key, route] : routes_) loop_.CancelTimer(route->resolve_timer);
}

bool CurlSink::CanSend() const { return transfers_.size() - active_ < options_.waiting_max; }

size_t CurlSink::RoomFor(const std::string& authority) const {
  const auto room = [](size_t most, size_t waiting) { return most - std::min(most, waiting); };
  const size_t line = room(options_.waiting_max, transfers_.size() - active_);
  const auto host = hosts_.find(authority);
  if (host == hosts_.end()) return std::min(line, options_.host_waiting_max);
  return std::min(line,
                  room(options_.host_waiting_max, host->second->users - host->second->active));
}

HttpRequestId CurlSink::Send(HttpRequest request, Done done) {
  POSTRIDER_CHECK(CanSend());
  const HttpRequestId id = next_id_++;
  auto owned = std::make_unique<Transfer>();
  Transfer& transfer = *owned;
  transfer.id = id;
  transfer.request = std::move(request);
  transfer.done = std::move(done);
  transfer.accepted = transfer.named = loop_.clock().Now();
  transfers_.emplace(id, std::move(owned));
  if (!IsCleanForWire(transfer.request)) {
    HttpResult result;
    result.failure = HttpFailure::kBadRequest;
    Forget(transfer, std::move(result));
    return id;
  }
  transfer.host = FindHost(transfer.request);
  ++transfer.host->users;
  Route& route = *FindRoute(transfer.request);
  transfer.route = &route;
  ++route.users;
  route.last_used = transfer.accepted;
  if (transfer.accepted < route.valid_until) {
    OnNamed(transfer);
    Pump();
  } else {
    route.naming.push_back(id);
    if (!route.resolving) StartResolving(route);
  }
  return id;
}

CurlSink::Host* CurlSink::FindHost(const HttpRequest& request) {
  std::string key = request.url.authority();
  std::unique_ptr<Host>& host = hosts_[key];
  if (host == nullptr) {
    host = std::make_unique<Host>();
    host->key = std::move(key);
  }
  return host.get();
}

CurlSink::Route* CurlSink::FindRoute(const HttpRequest& request) {
  std::string key = absl::StrCat(request.url.authority(), "\n", request.connection_group, "\n",
                                 request.tls == nullptr ? "" : request.tls->digest);
  std::unique_ptr<Route>& route = routes_[key];
  if (route == nullptr) {
    route = std::make_unique<Route>();
    route->host = request.url.host;
    route->alias = absl::StrCat("r", next_alias_++, ".postrider.invalid");
    route->port = Proxied() ? options_.proxy->port : request.url.port;
    route->connect_to.Add(absl::StrCat("::", route->alias, ":"));
    route->pool_index = std::hash<std::string>()(key) % pools_.size();
    route->key = std::move(key);
    route->valid_until = MonotonicTime::min();
    if (request.url.address) SetLiteral(*route, *request.url.address);
  }
  return route.get();
}

void CurlSink::SetLiteral(Route& route, const IpAddress& address) {
  route.addresses = {address};
  route.valid_until = MonotonicTime::max();
  route.version = 1;
}

void CurlSink::StartResolving(Route& route) {
  route.resolving = true;
  route.resolve_timer =
      loop_.CallAfter(options_.resolve_timeout, [this, key = route.key] { OnResolveTimeout(key); });
  resolver_.Resolve(route.host, [inbox = inbox_, key = route.key](ResolveResult result) mutable {
    absl::MutexLock lock(&inbox->mutex);
    if (inbox->loop == nullptr) return;
    // When the loop has no room for it, the timer of the route ends the wait.
    static_cast<void>(
        inbox->loop->Post([inbox, key = std::move(key), result = std::move(result)]() mutable {
          if (inbox->sink != nullptr) inbox->sink->OnResolved(key, std::move(result));
        }));
  });
}

void CurlSink::OnResolved(const std::string& route_key, ResolveResult result) {
  const auto found = routes_.find(route_key);
  if (found == routes_.end()) return;
  Route& route = *found->second;
  loop_.CancelTimer(route.resolve_timer);
  route.resolve_timer = 0;
  route.resolving = false;
  if (result.addresses.empty()) {
    FailNaming(route, false);
    return;
  }
  if (result.addresses != route.addresses) {
    route.addresses = std::move(result.addresses);
    ++route.version;
  }
  route.valid_until = result.valid_until;
  const MonotonicTime now = loop_.clock().Now();
  for (const HttpRequestId id : std::exchange(route.naming, {})) {
    Transfer& transfer = *transfers_.at(id);
    transfer.named = now;
    if (&route == proxy_) {
      Enqueue(transfer);
    } else {
      OnNamed(transfer);
    }
  }
  Pump();
}

void CurlSink::OnNamed(Transfer& transfer) {
  if (!Proxied() || loop_.clock().Now() < proxy_->valid_until) return Enqueue(transfer);
  proxy_->naming.push_back(transfer.id);
  if (!proxy_->resolving) StartResolving(*proxy_);
}

void CurlSink::OnResolveTimeout(const std::string& route_key) {
  const auto found = routes_.find(route_key);
  if (found == routes_.end()) return;
  Route& route = *found->second;
  route.resolve_timer = 0;
  route.resolving = false;
  FailNaming(route, true);
}

void CurlSink::FailNaming(Route& route, bool timed_out) {
  const MonotonicTime now = loop_.clock().Now();
  for (const HttpRequestId id : std::exchange(route.naming, {})) {
    Transfer& transfer = *transfers_.at(id);
    HttpResult result;
    result.failure = &route == proxy_ ? HttpFailure::kProxy : HttpFailure::kDns;
    result.timed_out = timed_out;
    result.timings.queued = result.timings.dns = now - transfer.accepted;
    Forget(transfer, std::move(result));
  }
}

void CurlSink::SweepRoutes() {
  const MonotonicTime now = loop_.clock().Now();
  absl::erase_if(routes_, [&](const auto& entry) {
    const Route& route = *entry.second;
    if (route.users > 0 || route.resolving || now - route.last_used < options_.connection_age_max) {
      return false;
    }
    Pool& pool = pools_[route.pool_index];
    if (route.loaded_generation == pool.generation) {
      pool.pool->removals.push_back(absl::StrCat("-", route.alias, ":", route.port));
    }
    plain_.CloseIdle(entry.second->shelf);
    return true;
  });
  plain_.CloseAged();
  sweep_timer_ = loop_.CallAfter(kSweepEvery, [this] { SweepRoutes(); });
}

void CurlSink::Enqueue(Transfer& transfer) {
  transfer.state = State::kQueued;
  queue_.push_back(transfer.id);
}

void CurlSink::Pump() {
  while (active_ < options_.in_flight_max && !queue_.empty()) {
    const auto found = transfers_.find(queue_.front());
    queue_.pop_front();
    POSTRIDER_CHECK(found != transfers_.end());
    Transfer& transfer = *found->second;
    if (transfer.host->active >= options_.host_in_flight_max) {
      transfer.state = State::kParked;
      transfer.host->parked.push_back(transfer.id);
    } else if (rules_->IsOwnHost(transfer.request.url.host)) {
      HttpResult result;
      result.failure = HttpFailure::kAddressRefused;
      Forget(transfer, std::move(result));
    } else if (transfer.request.may_start && !transfer.request.may_start(transfer.request)) {
      HttpResult result;
      result.failure = HttpFailure::kAborted;
      result.timings.queued = loop_.clock().Now() - transfer.accepted;
      Forget(transfer, std::move(result));
    } else if (const absl::optional<IpAddress> target = ProxyTarget(transfer);
               Proxied() && !target) {
      HttpResult result;
      result.failure = HttpFailure::kAddressRefused;
      Forget(transfer, std::move(result));
    } else {
      if (target) {
        transfer.proxy_target = target;
        const bool v6 = target->family() == IpAddress::Family::kV6;
        transfer.connect_to.Add(
            absl::StrCat("::", v6 ? "[" : "", target->ToString(), v6 ? "]:" : ":"));
      }
      Start(transfer);
    }
  }
}

absl::optional<IpAddress> CurlSink::ProxyTarget(Transfer& transfer) const {
  if (!Proxied()) return absl::nullopt;
  const Route& route = *transfer.route;
  for (size_t i = 0; i < route.addresses.size(); ++i) {
    const IpAddress& address = route.addresses[(route.next_address + i) % route.addresses.size()];
    if (rules_->Check(address, transfer.request.url.port) == AddressRules::Verdict::kAllowed) {
      return address;
    }
  }
  return absl::nullopt;
}

void CurlSink::Start(Transfer& transfer) {
  transfer.state = State::kActive;
  transfer.started = loop_.clock().Now();
  metrics_.queue_seconds.Observe(
      std::chrono::duration<double>(transfer.started - transfer.accepted).count());
  ++active_;
  ++transfer.host->active;
  transfer.deadline = loop_.CallAfter(transfer.request.total_timeout, [this, id = transfer.id] {
    Transfer& late = *transfers_.at(id);
    late.deadline = 0;
    End(late, Cause::kDeadline, CURLE_OPERATION_TIMEDOUT);
  });
  transfer.ours = !Proxied() && transfer.request.url.scheme == HttpUrl::Scheme::kHttp;
  if (transfer.ours) {
    if (PlainConnection* const kept = plain_.Take(transfer.route->shelf); kept != nullptr) {
      return StartExchange(transfer, *kept);
    }
  }
  StartInCurl(transfer);
}

void CurlSink::StartInCurl(Transfer& transfer) {
  transfer.connecting_generation = plain_.generation();
  transfer.slot = TakeSlot();
  transfer.slot->transfer = &transfer;
  transfer.pool = pools_[transfer.route->pool_index].pool.get();
  SetRequestOptions(transfer);
  // It fails only for a handle that is in a multi already.
  POSTRIDER_CHECK(transfer.pool->Add(transfer.slot->easy.get()) == CURLM_OK);
}

void CurlSink::LeaveCurl(Transfer& transfer) {
  CURL* const easy = transfer.slot->easy.get();
  transfer.pool->Remove(easy);
  // The list goes with the transfer, and libcurl may not have read it.
  curl_easy_setopt(easy, CURLOPT_RESOLVE, nullptr);
  SetTls(*transfer.slot, nullptr);
  transfer.slot->transfer = nullptr;
  // A handle counts the resends of its whole life and refuses the sixth.
  if (transfer.ours || transfer.sends <= 1) FreeSlot(std::move(transfer.slot));
  transfer.slot.reset();
}

void CurlSink::OnTransferDone(CURL* easy, CURLcode code) {
  void* slot = nullptr;
  curl_easy_getinfo(easy, CURLINFO_PRIVATE, &slot);
  Transfer& transfer = *static_cast<Slot*>(slot)->transfer;
  if (transfer.ours && code == CURLE_OK) {
    OnConnected(transfer);
  } else {
    End(transfer, Cause::kFinished, code);
  }
}

void CurlSink::End(Transfer& transfer, Cause cause, int code) {
  HttpResult result = ResultOf(transfer, cause, code);
  // Another one of the receiver's addresses the next time.
  if (Proxied() && result.failure == HttpFailure::kConnect) ++transfer.route->next_address;
  loop_.CancelTimer(transfer.deadline);
  if (transfer.slot != nullptr) LeaveCurl(transfer);
  if (transfer.connection != nullptr) plain_.Abandon(transfer);
  --active_;
  LeaveHost(transfer);
  Forget(transfer, std::move(result));
}

void CurlSink::LeaveHost(Transfer& transfer) {
  --transfer.host->active;
  Unpark(*transfer.host);
}

void CurlSink::Unpark(Host& host) {
  if (host.parked.empty()) return;
  const HttpRequestId next = host.parked.front();
  host.parked.pop_front();
  transfers_.at(next)->state = State::kQueued;
  queue_.push_front(next);
}

void CurlSink::Forget(Transfer& transfer, HttpResult result) {
  metrics_.requests[static_cast<size_t>(result.failure)]->Increment();
  if (transfer.route != nullptr) {
    --transfer.route->users;
    transfer.route->last_used = loop_.clock().Now();
  }
  if (Host* const host = transfer.host; host != nullptr) {
    // Its turn passes on to one that waits behind it.
    if (transfer.state == State::kQueued) Unpark(*host);
    if (--host->users == 0) hosts_.erase(host->key);
  }
  ended_.push_back(Ended{std::move(transfer.done), std::move(result)});
  transfers_.erase(transfer.id);
  ScheduleTurn();
}

void CurlSink::Abort(HttpRequestId id) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  Transfer& transfer = *found->second;
  if (transfer.state == State::kActive) {
    End(transfer, Cause::kAborted, CURLE_ABORTED_BY_CALLBACK);
    return;
  }
  if (transfer.state == State::kNaming) {
    std::erase(transfer.route->naming, id);
    if (Proxied()) std::erase(proxy_->naming, id);
  }
  if (transfer.state == State::kQueued) std::erase(queue_, id);
  if (transfer.state == State::kParked) std::erase(transfer.host->parked, id);
  HttpResult result;
  result.failure = HttpFailure::kAborted;
  result.timings.queued = loop_.clock().Now() - transfer.accepted;
  Forget(transfer, std::move(result));
}

void CurlSink::AbortAll() {
  std::vector<HttpRequestId> ids;
  ids.reserve(transfers_.size());
  for (const auto& [id, transfer] : transfers_) ids.push_back(id);
  for (const HttpRequestId id : ids) Abort(id);
}

void CurlSink::SetAddressRules(std::shared_ptr<const AddressRules> rules) {
  rules_ = std::move(rules);
  const auto is_refused = [this](const IpAddress& address, uint16_t port) {
    return rules_->Check(address, port) != AddressRules::Verdict::kAllowed;
  };
  for (Pool& pool : pools_) {
    if (!Proxied() && !pool.pool->IsConnectedToAny(is_refused)) continue;
    std::erase(due_, pool.pool.get());
    pool.pool->due = false;
    retired_.push_back(std::exchange(pool, MakePool()).pool);
    OnPoolDue(*retired_.back());
  }
  plain_.CloseThose([&is_refused](int fd) {
    const auto peer = PeerOf(fd);
    return !peer || is_refused(peer->first, peer->second);
  });
}

void CurlSink::OnIdleChanged(ptrdiff_t change) {
  curl_idle_ += static_cast<size_t>(change);
  if (change > 0) plain_.Trim();
}

void CurlSink::OnPoolDue(CurlPool& pool) {
  if (pool.due) return;
  pool.due = true;
  due_.push_back(&pool);
  ScheduleTurn();
}

void CurlSink::ScheduleTurn() {
  if (turn_timer_ != 0) return;
  turn_timer_ = loop_.CallAfter(Duration::zero(), [this] {
    turn_timer_ = 0;
    Turn();
  });
}

void CurlSink::Turn() {
  for (CurlPool* const pool : std::exchange(due_, {})) {
    pool->due = false;
    pool->Drive();
  }
  std::erase_if(retired_, [this](const std::unique_ptr<CurlPool>& pool) {
    if (pool->transfers() > 0) return false;
    std::erase(due_, pool.get());
    return true;
  });
  for (size_t left = ended_.size(); left > 0; --left) {
    Ended ended = std::move(ended_.front());
    ended_.pop_front();
    std::move(ended.done)(std::move(ended.result));
  }
  Pump();
}

}  // namespace postrider::internal
