#pragma once

#include <curl/curl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/http/internal/curl_handles.h"
#include "core/http/ip_address.h"

namespace postrider::internal {

class CurlPool;

// Whom the socket is connected to.
absl::optional<std::pair<IpAddress, uint16_t>> PeerOf(int fd);
bool IsConnected(int fd);

class CurlPoolOwner {
 public:
  virtual ~CurlPoolOwner() = default;
  // A transfer has ended; it is still in the pool and must be removed now. Never from inside a
  // callback of libcurl.
  virtual void OnTransferDone(CURL* easy, CURLcode code) = 0;
  // The pool wants Drive() soon.
  virtual void OnPoolDue(CurlPool& pool) = 0;
  // So many connections more, or less, are kept without a transfer.
  virtual void OnIdleChanged(ptrdiff_t change) = 0;
};

// One multi handle on the loop: its connections, and the names that it was told.
//
// A socket stays watched for reading while its connection idles, which saves two system calls
// per request; the first event on a socket that no transfer uses ends the watch and the
// connection, so that a receiver that closes its half wakes the loop once, and one that talks
// unasked is not heard.
//
// Of several addresses libcurl 7.88 closes the sockets that did not become the connection without
// CURLOPT_CLOSESOCKETFUNCTION (cf_socket_close), and only then says that they are not to be
// watched; when the next one gets the same number, it says nothing. Nor does it set a timer for
// going on with the next address: Drive() then asks all of its transfers.
class CurlPool {
 public:
  struct Limits {
    long connections_max = 0;
  };

  CurlPool(EventLoop& loop, const Limits& limits, CurlPoolOwner& owner, Counter& idle_events);
  ~CurlPool();
  CurlPool(const CurlPool&) = delete;
  CurlPool& operator=(const CurlPool&) = delete;

  CURLMcode Add(CURL* easy);
  void Remove(CURL* easy);
  size_t transfers() const { return transfers_; }

  // Lets libcurl do what its timers ask for.
  void Drive();

  // A socket was opened for one of its transfers, to be connected to `address`.
  void OnOpened(int fd, const IpAddress& address, uint16_t port);
  // Whether one of its connections, perhaps not made yet, or one that may be gone, is to such a
  // place.
  bool IsConnectedToAny(
      absl::FunctionRef<bool(const IpAddress& address, uint16_t port)> is_such) const;
  // Whether a socket that libcurl has closed in this turn had been connected.
  bool ClosedConnected(int fd) const { return closed_connected_.contains(fd); }

  // For CURLOPT_CLOSESOCKETFUNCTION; `pool` is a CurlPool.
  static int CloseSocket(void* pool, curl_socket_t fd);

  bool due = false;  // the owner's mark: OnPoolDue() was called and Drive() not yet
  // Names to be forgotten, as lines of CURLOPT_RESOLVE; the next transfer takes them.
  std::vector<std::string> removals;

 private:
  struct Socket {
    uint32_t watched = 0;  // FdEvents; 0: not watched
    bool used = true;      // by a transfer
  };

  static int OnSocket(CURL* easy, curl_socket_t fd, int what, void* pool, void* socket);
  static int OnTimer(CURLM* multi, long timeout_ms, void* pool);

  void Want(int fd, uint32_t events);
  void Forget(int fd);
  void SetUsed(Socket& socket, bool used);
  void OnEvents(int fd, uint32_t events);
  void CollectDone();

  EventLoop& loop_;
  CurlPoolOwner& owner_;
  Counter& idle_events_;
  absl::flat_hash_map<int, Socket> sockets_;
  // Of sockets, and of some that libcurl has closed without a word.
  absl::flat_hash_map<int, std::pair<IpAddress, uint16_t>> peers_;
  absl::flat_hash_set<int> closed_connected_;
  // Transfers that gave an attempt to connect up since Drive(), and have not ended.
  absl::flat_hash_set<CURL*> gave_up_;
  TimerId timer_ = 0;
  size_t transfers_ = 0;
  size_t idle_ = 0;  // sockets_ that are not used
  MultiHandle multi_;
};

}  // namespace postrider::internal
