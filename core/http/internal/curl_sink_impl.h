#pragma once

#include <curl/curl.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/http/address_guard.h"
#include "core/http/curl_sink.h"
#include "core/http/internal/curl_handles.h"
#include "core/http/internal/curl_pool.h"
#include "core/http/internal/plain_connections.h"
#include "core/http/resolver.h"

namespace postrider::internal {

// On kept connections that were dead, and then on a new one.
inline constexpr int kRequestSendsMax = 2;

struct CurlSinkMetrics {
  explicit CurlSinkMetrics(Metrics& metrics);

  std::vector<Counter*> requests;  // by HttpFailure
  Counter& resends;
  Counter& connections;
  Counter& idle_events;
  Counter& unknown_codes;
  Histogram& queue_seconds;
};

// Lives of a request:
//
//   Send() -> naming -> queued -> active -> ended -> Done called, then gone
//                |         |         ^
//                |         +- parked -+   (its host has all the requests that it may have)
//                +-----> ended            (no address; Abort() ends it from every state)
//
// Done is called from Turn() alone, so whatever it does to the sink finds no libcurl below it.
//
// libcurl is told a made-up name per (host, port, connection group, TLS material), by
// CURLOPT_CONNECT_TO, and the addresses of that name by CURLOPT_RESOLVE: it keeps connections and
// TLS sessions apart by that name, it never asks a name server, and an IPv6 literal can be
// forgotten like any other name.
//
// Behind an egress proxy the made-up name stands for the proxy, which keeps tunnels apart just so,
// and CURLOPT_CONNECT_TO names the receiver's address. As TLS sessions are known by that address,
// none is resumed then.
//
// Without TLS and without a proxy libcurl only makes the connection, which takes the guard, several
// addresses and their deadlines: the exchange is then ours (plain_connections.h), and so is every
// later one on that connection. An active request is so in libcurl (`slot`) or on a connection of
// ours (`connection`), and passes from one to the other.
class CurlSink final : public HttpSink, public CurlPoolOwner, public ExchangeOwner {
 public:
  CurlSink(EventLoop& loop, const CurlSinkOptions& options, Resolver& resolver,
           std::shared_ptr<const AddressRules> rules, Metrics& metrics);
  ~CurlSink() override;

  bool CanSend() const override;
  size_t RoomFor(const std::string& authority) const override;
  HttpRequestId Send(HttpRequest request, Done done) override;
  void Abort(HttpRequestId id) override;
  void AbortAll() override;
  size_t in_flight() const override { return transfers_.size() + ended_.size(); }
  void SetAddressRules(std::shared_ptr<const AddressRules> rules) override;

 private:
  // Requests at once to one host and port, and those that wait for one of them to end.
  struct Host {
    std::string key;
    size_t users = 0;  // requests to it, in whatever state
    size_t active = 0;
    std::deque<HttpRequestId> parked;
  };

  struct Route {
    std::string key;
    std::string host;
    std::string alias;
    uint16_t port = 0;
    CurlList connect_to;
    size_t pool_index = 0;
    std::vector<IpAddress> addresses;
    MonotonicTime valid_until;
    uint64_t version = 0;            // of `addresses`
    uint64_t loaded_version = 0;     // that the pool has surely got
    uint64_t loaded_generation = 0;  // of the pool that has got it
    bool resolving = false;
    TimerId resolve_timer = 0;
    std::vector<HttpRequestId> naming;
    size_t users = 0;
    MonotonicTime last_used;
    size_t next_address = 0;  // behind a proxy, which gets one of `addresses`
    PlainConnections::Shelf shelf;
  };

  struct Transfer;

  // An easy handle with the options that never change, and who uses it now.
  struct Slot {
    EasyHandle easy;
    Transfer* transfer = nullptr;
    CurlSink* sink = nullptr;
    bool has_tls = false;  // TLS material is set, and must not stay
  };

  enum class State : uint8_t { kNaming, kQueued, kParked, kActive };
  enum class Cause : uint8_t { kFinished, kDeadline, kAborted };

  struct Transfer : Exchange {
    HttpRequestId id = 0;
    State state = State::kNaming;
    HttpRequest request;
    Done done;
    Route* route = nullptr;
    Host* host = nullptr;
    CurlPool* pool = nullptr;
    std::unique_ptr<Slot> slot;
    CurlList headers;
    CurlList resolve;
    CurlList connect_to;                     // behind a proxy
    absl::optional<IpAddress> proxy_target;  // whom that names
    uint64_t carried_version = 0;
    uint64_t carried_generation = 0;
    bool ours = false;                   // its exchange is not libcurl's
    uint64_t connecting_generation = 0;  // of the address rules too
    Duration connect_time{};             // `ours`: of its connection, 0 when that was kept
    MonotonicTime accepted;
    MonotonicTime named;
    MonotonicTime started;
    TimerId deadline = 0;
    int sends = 0;
    bool address_refused = false;
    bool refused_since = false;  // by rules that came while its connection was being made
    bool own_limit = false;      // no socket was to be had
    int socket = -1;             // the last one that was opened for it, perhaps closed again
    int family = 0;              // of that one
  };

  struct Pool {
    std::unique_ptr<CurlPool> pool;
    uint64_t generation = 0;
  };

  struct Ended {
    Done done;
    HttpResult result;
  };

  // Between the resolver's threads and the loop. `sink` is touched by the loop's thread alone.
  struct Inbox {
    absl::Mutex mutex;
    EventLoop* loop ABSL_GUARDED_BY(mutex) = nullptr;
    CurlSink* sink = nullptr;
  };

  // CurlPoolOwner
  void OnTransferDone(CURL* easy, CURLcode code) override;
  void OnPoolDue(CurlPool& pool) override;
  void OnIdleChanged(ptrdiff_t change) override;

  // ExchangeOwner
  void OnExchangeEnd(Exchange& exchange, Exchange::End end) override;

  // Callbacks of libcurl.
  static size_t OnHeader(char* data, size_t size, size_t count, void* slot);
  static size_t OnBody(char* data, size_t size, size_t count, void* slot);
  static int OnBeforeSend(void* slot, char* to, char* from, int to_port, int from_port);
  static curl_socket_t OnOpenSocket(void* slot, curlsocktype purpose, curl_sockaddr* address);

  std::unique_ptr<Slot> TakeSlot();
  void SetProxy(CURL* easy);
  bool MayOpen(const Transfer& transfer, const IpAddress& address) const;
  Pool MakePool();

  Route* FindRoute(const HttpRequest& request);
  Host* FindHost(const HttpRequest& request);
  static void SetLiteral(Route& route, const IpAddress& address);
  void StartResolving(Route& route);
  void OnResolved(const std::string& route_key, ResolveResult result);
  void OnResolveTimeout(const std::string& route_key);
  void FailNaming(Route& route, bool timed_out);
  // The receiver's addresses are there.
  void OnNamed(Transfer& transfer);
  bool Proxied() const { return proxy_ != nullptr; }
  // Behind a proxy: which address it shall reach. No value: none may be reached.
  absl::optional<IpAddress> ProxyTarget(Transfer& transfer) const;
  // Whether rules that came after its connecting began refuse the receiver; `peer` is whom its
  // connection is to.
  bool RefusedSince(const Transfer& transfer, const absl::optional<IpAddress>& peer) const;
  void SweepRoutes();
  void FreeSlot(std::unique_ptr<Slot> slot);
  void ArmTrim();
  // Gives back the memory of slots that a burst has left.
  void TrimSlots();

  void Enqueue(Transfer& transfer);
  void Pump();
  void Start(Transfer& transfer);
  // Gives it to libcurl: to be carried out, or for a connection.
  void StartInCurl(Transfer& transfer);
  void LeaveCurl(Transfer& transfer);
  // Takes the connection over that libcurl has made.
  void OnConnected(Transfer& transfer);
  void EndWithoutSocket(Transfer& transfer);
  void StartExchange(Transfer& transfer, PlainConnection& connection);
  void StartReader(Transfer& transfer);
  void SetRequestOptions(Transfer& transfer);
  void SetRequest(Transfer& transfer);
  void SetAddresses(Transfer& transfer);
  static void SetTls(Slot& slot, const TlsMaterial* tls);
  void MarkLoaded(Transfer& transfer);
  static bool LacksPort(const Transfer& transfer);
  // Takes the transfer out of libcurl or off its connection, and puts its result on ended_.
  void End(Transfer& transfer, Cause cause, int code);
  HttpResult ResultOf(Transfer& transfer, Cause cause, int code);
  HttpTimings TimingsOf(Transfer& transfer);
  void LeaveHost(Transfer& transfer);
  void Unpark(Host& host);
  // Of a transfer that is not in libcurl: puts `result` on ended_, and `transfer` is gone.
  void Forget(Transfer& transfer, HttpResult result);

  void ScheduleTurn();
  void Turn();

  EventLoop& loop_;
  const CurlSinkOptions options_;
  Resolver& resolver_;
  std::shared_ptr<const AddressRules> rules_;
  CurlSinkMetrics metrics_;
  const std::shared_ptr<Inbox> inbox_;

  size_t curl_idle_ = 0;  // connections that libcurl keeps
  std::vector<Pool> pools_;
  std::vector<std::unique_ptr<CurlPool>> retired_;  // no new transfers; gone when theirs have ended
  std::vector<CurlPool*> due_;
  // The last to come is the next to go, so that the first are those that are not needed.
  std::vector<std::unique_ptr<Slot>> free_slots_;
  size_t unused_slots_ = 0;  // of them, since TrimSlots() last looked
  absl::flat_hash_map<std::string, std::unique_ptr<Route>> routes_;
  PlainConnections plain_;  // goes before the routes
  absl::flat_hash_map<std::string, std::unique_ptr<Host>> hosts_;
  absl::flat_hash_map<HttpRequestId, std::unique_ptr<Transfer>> transfers_;
  std::deque<HttpRequestId> queue_;
  std::deque<Ended> ended_;
  // The proxy's own name and addresses; null: no proxy.
  Route* proxy_ = nullptr;
  size_t active_ = 0;
  HttpRequestId next_id_ = 1;
  uint64_t next_alias_ = 1;
  uint64_t next_generation_ = 1;
  TimerId turn_timer_ = 0;
  TimerId sweep_timer_ = 0;
  TimerId trim_timer_ = 0;
};

}  // namespace postrider::internal
