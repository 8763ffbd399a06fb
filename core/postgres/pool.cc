#include "core/postgres/pool.h"

#include <deque>
#include <utility>

#include "core/base/clock.h"

namespace postrider {

namespace {
struct Slot {
  std::unique_ptr<Connection> connection;
  bool lent = false;
};
struct Waiter {
  Pool::Acquired done;
  MonotonicTime deadline;
};
}  // namespace

struct PooledConnection::Core : std::enable_shared_from_this<PooledConnection::Core> {
  EventLoop& loop;
  const PoolOptions options;
  const uint64_t seed;
  std::vector<Slot> slots;
  std::deque<Waiter> waiters;
  TimerId serve_timer = 0;
  TimerId waiter_timer = 0;
  absl::Status last_error;
  bool closed = false;

  Core(EventLoop& event_loop, PoolOptions pool_options, uint64_t pool_seed)
      : loop(event_loop), options(std::move(pool_options)), seed(pool_seed) {}

  bool AnyUp() const {
    for (const Slot& slot : slots) {
      if (slot.connection->ready()) return true;
    }
    return false;
  }

  void Answer(Pool::Acquired done, absl::Status status) {
    loop.CallAfter(Duration::zero(),
                   [done = std::move(done), status = std::move(status)]() mutable {
                     std::move(done)(std::move(status));
                   });
  }

  void Acquire(Pool::Acquired done) {
    if (waiters.size() >= options.waiters_max) {
      Answer(std::move(done),
             absl::ResourceExhaustedError("postgres: too many wait for a connection"));
      return;
    }
    waiters.push_back({std::move(done), loop.clock().Now() + options.acquire_timeout});
    ServeSoon();
  }

  void ServeSoon() {
    if (serve_timer != 0 || closed) return;
    serve_timer = loop.CallAfter(Duration::zero(), [this] {
      serve_timer = 0;
      const auto self = shared_from_this();
      Serve();
    });
  }

  void Serve() {
    size_t connecting = 0;
    for (size_t i = 0; i < slots.size() && !waiters.empty(); ++i) {
      Slot& slot = slots[i];
      if (slot.lent) continue;
      if (!slot.connection->ready()) {
        ++connecting;
        continue;
      }
      slot.lent = true;
      Waiter waiter = std::move(waiters.front());
      waiters.pop_front();
      std::move(waiter.done)(PooledConnection(shared_from_this(), slot.connection.get()));
      if (closed) return;
    }
    while (waiters.size() > connecting && slots.size() < options.connections_max) {
      AddSlot();
      ++connecting;
    }
    WatchWaiters();
  }

  void AddSlot() {
    Slot slot;
    slot.connection = std::make_unique<Connection>(loop, options.connection, seed + slots.size());
    slot.connection->SetOnReady([this](bool ready) {
      if (ready) {
        last_error = absl::OkStatus();
        ServeSoon();
      }
    });
    slot.connection->SetOnFailure([this](const absl::Status& why) {
      last_error = why;
      if (!AnyUp()) FailWaiters(why);
    });
    slots.push_back(std::move(slot));
  }

  void FailWaiters(const absl::Status& why) {
    Cancel(&waiter_timer);
    std::deque<Waiter> failed;
    failed.swap(waiters);
    for (Waiter& waiter : failed) Answer(std::move(waiter.done), why);
  }

  void WatchWaiters() {
    if (waiter_timer != 0 || waiters.empty()) return;
    waiter_timer = loop.CallAt(waiters.front().deadline, [this] {
      waiter_timer = 0;
      const auto self = shared_from_this();
      const MonotonicTime now = loop.clock().Now();
      absl::Status why = AnyUp()
                             ? absl::ResourceExhaustedError("postgres: every connection is in use")
                             : absl::UnavailableError("postgres: there is no connection");
      if (!AnyUp() && !last_error.ok()) why = last_error;
      while (!waiters.empty() && waiters.front().deadline <= now) {
        Answer(std::move(waiters.front().done), why);
        waiters.pop_front();
      }
      WatchWaiters();
    });
  }

  void Cancel(TimerId* timer) {
    if (*timer != 0) loop.CancelTimer(*timer);
    *timer = 0;
  }

  void Return(Connection* connection) {
    for (size_t i = 0; i < slots.size(); ++i) {
      Slot& slot = slots[i];
      if (slot.connection.get() != connection) continue;
      slot.lent = false;
      if (closed) {
        // Not from inside one of its own callbacks.
        loop.CallAfter(Duration::zero(), [gone = std::move(slot.connection)] {});
        slots.erase(slots.begin() + static_cast<std::ptrdiff_t>(i));
        return;
      }
      if (connection->ready() && (!connection->idle() || connection->in_transaction())) {
        connection->Reset(absl::CancelledError("postgres: given back in a transaction"));
      }
      ServeSoon();
      return;
    }
  }

  void Close() {
    closed = true;
    Cancel(&serve_timer);
    FailWaiters(absl::CancelledError("postgres: closed"));
    std::vector<Slot> kept;
    for (Slot& slot : slots) {
      if (!slot.lent) continue;
      slot.connection->SetOnReady(nullptr);
      slot.connection->SetOnFailure(nullptr);
      kept.push_back(std::move(slot));
    }
    slots = std::move(kept);
  }
};

PooledConnection::PooledConnection(PooledConnection&& other) noexcept
    : core_(std::move(other.core_)), connection_(std::exchange(other.connection_, nullptr)) {}

PooledConnection& PooledConnection::operator=(PooledConnection&& other) noexcept {
  if (this != &other) {
    Release();
    core_ = std::move(other.core_);
    connection_ = std::exchange(other.connection_, nullptr);
  }
  return *this;
}

PooledConnection::~PooledConnection() { Release(); }

void PooledConnection::Release() {
  if (connection_ == nullptr) return;
  const std::shared_ptr<Core> core = std::move(core_);
  core_ = nullptr;
  core->Return(std::exchange(connection_, nullptr));
}

Pool::Pool(EventLoop& loop, PoolOptions options, uint64_t seed)
    : core_(std::make_shared<PooledConnection::Core>(loop, std::move(options), seed)) {}

Pool::~Pool() { core_->Close(); }

void Pool::Acquire(Acquired done) { core_->Acquire(std::move(done)); }

size_t Pool::in_use() const {
  size_t count = 0;
  for (const Slot& slot : core_->slots) count += slot.lent ? 1 : 0;
  return count;
}

size_t Pool::waiting() const { return core_->waiters.size(); }

absl::Status Pool::health() const { return core_->AnyUp() ? absl::OkStatus() : core_->last_error; }

}  // namespace postrider
