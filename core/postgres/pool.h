#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/event_loop.h"
#include "core/postgres/connection.h"

namespace postrider {

struct PoolOptions {
  ConnectionOptions connection;
  size_t connections_max = 8;
  // Who waits for a connection; the next one is kResourceExhausted at once.
  size_t waiters_max = 256;
  // After this a waiter gets kResourceExhausted (all are in use) or kUnavailable (none is up).
  std::chrono::milliseconds acquire_timeout{1000};
};

// A connection lent by a Pool; goes back when destroyed. One that is in a transaction or still
// runs a statement then is closed instead of being lent again.
class PooledConnection {
 public:
  PooledConnection() = default;
  PooledConnection(PooledConnection&& other) noexcept;
  PooledConnection& operator=(PooledConnection&& other) noexcept;
  ~PooledConnection();

  Connection* operator->() const { return connection_; }
  Connection& operator*() const { return *connection_; }
  explicit operator bool() const { return connection_ != nullptr; }
  void Release();

 private:
  friend class Pool;
  struct Core;
  PooledConnection(std::shared_ptr<Core> core, Connection* connection)
      : core_(std::move(core)), connection_(connection) {}

  std::shared_ptr<Core> core_;
  Connection* connection_ = nullptr;
};

// Connections to one database as one role. They are opened when asked for and kept.
//
// Threads: the loop's. The pool is destroyed after everything that it lent.
// Bounds:  connections_max and waiters_max.
class Pool {
 public:
  using Acquired = absl::AnyInvocable<void(absl::StatusOr<PooledConnection>) &&>;

  Pool(EventLoop& loop, PoolOptions options, uint64_t seed);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // kUnavailable as soon as an attempt to connect fails while no connection is up; at the latest
  // after acquire_timeout.
  void Acquire(Acquired done);

  size_t in_use() const;
  size_t waiting() const;
  // OK, or why no connection is up.
  absl::Status health() const;

 private:
  std::shared_ptr<PooledConnection::Core> core_;
};

}  // namespace postrider
