#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/http/internal/response_parser.h"

namespace postrider::internal {

class PlainConnection;

// One request and its answer on a connection. Its user fills `head` and `body` and starts `parser`.
struct Exchange {
  std::string head;        // up to and with the empty line
  absl::string_view body;  // outlives the exchange
  ResponseParser parser;

  enum class End : uint8_t {
    kEnded,  // as the parser says
    kDead,   // the connection had served before and broke before a byte of this answer came
  };

  size_t sent = 0;                        // of head and body
  MonotonicTime first_byte;               // when one was received
  PlainConnection* connection = nullptr;  // until it ends
};

class ExchangeOwner {
 public:
  virtual ~ExchangeOwner() = default;
  // `exchange` has let go of its connection. It may come from inside Start().
  virtual void OnExchangeEnd(Exchange& exchange, Exchange::End end) = 0;
};

// Connections without TLS that carry HTTP/1.1: what libcurl does for a request on a kept
// connection, in three system calls (a look whether it lives, the request, the answer) and without
// its copies. Who makes them is no matter of this.
//
// A connection is watched for reading as long as it lives. What comes on one that idles ends it, so
// that bytes nobody asked for are never taken for an answer.
//
// Threads: the loop's thread.
// Bounds:  idle_max connections idle, those that others keep counted in; beyond it the one that
//          idles longest is closed.
class PlainConnections {
 public:
  struct Limits {
    size_t idle_max = 0;
    std::chrono::seconds age_max{0};
    std::chrono::seconds idle_age_max{0};
  };
  using List = std::list<PlainConnection>;

  // The idle connections to one receiver, for one customer; the last to come is the next to go.
  struct Shelf {
    std::vector<List::iterator> idle;
  };

  // `others_idle` is read again each time.
  PlainConnections(EventLoop& loop, const Limits& limits, const size_t& others_idle,
                   ExchangeOwner& owner, Counter& idle_events);
  // No exchange is under way.
  ~PlainConnections();
  PlainConnections(const PlainConnections&) = delete;
  PlainConnections& operator=(const PlainConnections&) = delete;

  // An idle one that seems alive, or null. It must be started.
  PlainConnection* Take(Shelf& shelf);
  // Takes a connected socket, which is non-blocking, over; null, and closed, when it cannot be
  // watched. It must be started. `shelf` lives as long as anything is on it or comes back to it.
  // `generation` is the one in which connecting began: one of an older one serves once.
  PlainConnection* Adopt(int fd, Shelf& shelf, uint64_t generation);
  uint64_t generation() const { return generation_; }
  // Sends at once what the socket takes.
  void Start(PlainConnection& connection, Exchange& exchange);
  // Ends the exchange without telling its owner.
  void Abandon(Exchange& exchange);

  // Keeps to the bound when others keep more.
  void Trim();
  // For a shelf that goes.
  void CloseIdle(Shelf& shelf);
  // Those that are too old to be used again.
  void CloseAged();
  // Also those in use, once their exchange has ended; and a new generation, so that those being
  // made serve once.
  void CloseThose(absl::FunctionRef<bool(int fd)> are_to_go);

 private:
  friend class PlainConnection;

  enum class Sending : uint8_t { kFine, kBroken };

  void OnEvents(PlainConnection& connection, uint32_t events);
  // False: nothing can be sent any more.
  bool Write(PlainConnection& connection);
  void WatchFor(PlainConnection& connection, uint32_t events);
  // One read; a connection that sends no more and has nothing to be read has ended.
  void Read(PlainConnection& connection, Sending sending);
  void Finish(PlainConnection& connection, Exchange::End end);
  bool IsAged(const PlainConnection& connection, MonotonicTime now) const;
  void Shelve(PlainConnection& connection);
  void CloseIdle(List::iterator connection);
  void Close(PlainConnection& connection);

  EventLoop& loop_;
  const Limits limits_;
  const size_t& others_idle_;
  ExchangeOwner& owner_;
  Counter& idle_events_;
  List busy_;
  List idle_;  // the one that idles longest is the first
  uint64_t generation_ = 1;
  std::array<char, 16'384> bytes_;
};

class PlainConnection {
 public:
  PlainConnection(int fd, PlainConnections::Shelf& shelf) : fd_(fd), shelf_(shelf) {}

 private:
  friend class PlainConnections;

  const int fd_;
  PlainConnections::Shelf& shelf_;
  PlainConnections::List::iterator self_;
  Exchange* exchange_ = nullptr;  // null: idle, or about to be started
  uint32_t watched_ = 0;
  MonotonicTime opened_;
  MonotonicTime idle_since_;
  uint64_t generation_ = 0;
  bool served_ = false;
};

}  // namespace postrider::internal
