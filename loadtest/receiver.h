#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadtest/plan.h"

namespace postrider::loadtest {

struct ReceiverOptions {
  uint16_t port = 0;         // 0: any free one
  std::string state_file;    // secrets; read again when it changes
  std::string ledger_file;   // empty: none
  std::string metrics_file;  // empty: none; else written anew once a second
  std::string rules_file;    // empty: none; read again when it changes
  uint64_t seed = 1;         // for flaky answers
};

// An HTTP/1.1 server on every loopback address at one port that plays all customers at once: it
// verifies each signature, checks each message against its own payload, answers as its path and
// the rules say, and keeps a ledger of what it answered. Peers that are not on the loopback are
// hung up on.
//
// Threads: Run() on one; Stop() from any, and from a signal handler.
// Bounds:  20,000 connections (the process's limit), a body of 16 MB each.
class Receiver {
 public:
  struct Counts {
    uint64_t requests = 0;  // whole, whatever was answered
    uint64_t accepted_requests = 0;
    uint64_t messages = 0;        // in them
    uint64_t accepted = 0;        // messages answered 2xx
    uint64_t signatures_bad = 0;  // requests
    uint64_t contents_bad = 0;    // messages
    uint64_t envelopes_bad = 0;   // messages, or requests that are none
    uint64_t foreign = 0;      // requests for no endpoint of the plan, messages of no event of ours
    uint64_t malformed = 0;    // connections closed for bad HTTP
    uint64_t retries = 0;      // requests with an attempt above 1
    uint64_t connections = 0;  // accepted ones
    uint64_t connections_open = 0;
    uint64_t addresses = 0;   // distinct local ones that a request came to
    uint64_t endpoints = 0;   // distinct ones that got an accepted message
    uint64_t batch_max = 0;   // messages in a request
    uint64_t breakdowns = 0;  // of endpoints whose answers have a limit
  };

  static absl::StatusOr<std::unique_ptr<Receiver>> Create(const Plan& plan,
                                                          const ReceiverOptions& options);
  ~Receiver();

  uint16_t port() const;
  // Until Stop(); flushes the ledger at the end. A ledger that cannot be written ends it.
  absl::Status Run();
  void Stop();
  const Counts& counts() const;
  // The counts and the latency quantiles as one JSON object.
  std::string Summary() const;

 private:
  class Server;
  explicit Receiver(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

}  // namespace postrider::loadtest
