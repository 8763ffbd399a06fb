#pragma once

#include <memory>

#include "api/internal/test_limits.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/crypto/key_ring.h"
#include "core/http/address_guard.h"
#include "core/postgres/pool.h"

namespace postrider::api {

class EndpointTester;
class Publisher;

// What handlers stand on. Outlives all of them.
struct ApiParts {
  EventLoop& loop;
  Pool& pool;
  const Clock& clock;
  const KeyRing& keys;
  std::shared_ptr<const AddressRules> rules;
  Publisher& publisher;
  // Polls that wait for letters; the next one is answered at once.
  size_t polls_waiting_max = 256;
  mutable size_t polls_waiting = 0;
  EndpointTester* tester = nullptr;  // null: there is none
  bool tests_allowed = false;
  mutable TestLimits test_limits = {};
  // Set at the beginning of a stop: nobody waits any more.
  bool stopping = false;
};

}  // namespace postrider::api
