#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "core/base/event_loop.h"
#include "core/postgres/connection.h"

namespace postrider {

// LISTENs to one channel on a connection of its own, for as long as it lives. `wake` is called for
// each notification, and whenever the connection comes up, because those sent meanwhile are lost:
// it says "look", not what changed. Threads: the loop's.
class Listener {
 public:
  Listener(EventLoop& loop, ConnectionOptions options, std::string channel, uint64_t seed,
           absl::AnyInvocable<void()> wake);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  bool ready() const { return connection_->ready(); }

 private:
  absl::AnyInvocable<void()> wake_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace postrider
