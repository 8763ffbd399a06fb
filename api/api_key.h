#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "api/request.h"
#include "core/base/clock.h"
#include "core/postgres/pool.h"
#include "subscriptions/registry/api_key.h"

namespace postrider::api {

// A key as its owner holds it: `pr_<12-character id>_<secret><checksum>`, the id 12, the secret 52
// and the checksum 7 characters of lower-case base32. The checksum only tells typing errors and
// secret scanners apart from guesses; it protects nothing.
struct KeyText {
  std::string key_id;
  std::string secret;
};

// No value: it is not of the form, or the checksum is wrong.
absl::optional<KeyText> ParseKeyText(absl::string_view text);

// A new key: its text, to be shown once, and what is kept of it (key_id and secret_sha256).
struct NewKey {
  std::string text;
  std::string key_id;
  std::string secret_sha256;
};
NewKey MakeKey();

// Counts refused keys by the peer's address (IPv6: by its /64): ten in a second, then the address
// waits for the second's end.
//
// Threads: owned by one. Bounds: addresses_max; past it all of them begin anew.
class FailureLimiter {
 public:
  static constexpr int kFailuresMax = 10;
  static constexpr size_t kAddressesMax = 4'096;

  bool Blocked(absl::string_view address, MonotonicTime now) const;
  void Failed(absl::string_view address, MonotonicTime now);

 private:
  struct Window {
    MonotonicTime begin;
    int failures = 0;
  };
  absl::flat_hash_map<std::string, Window> windows_;
};

// Finds out whose a key is. What Postgres said is believed for two seconds, so a revoked key ends
// within them; that there is no such key is not kept.
//
// Threads: the pool's loop.
// Bounds:  kCachedMax keys; requests for one key at once share a look-up.
class Authenticator {
 public:
  static constexpr std::chrono::seconds kBelievedFor{2};
  static constexpr size_t kCachedMax = 10'000;

  Authenticator(Pool& pool, const Clock& clock) : pool_(pool), clock_(clock) {}
  Authenticator(const Authenticator&) = delete;
  Authenticator& operator=(const Authenticator&) = delete;

  using Done = absl::AnyInvocable<void(absl::StatusOr<Principal>) &&>;
  // `authorization`: the header's value; null when there is none. kUnauthenticated: no key, no such
  // key, a wrong secret, all with one text. kUnavailable: Postgres does not answer. `done` may run
  // from inside the call when the key is known.
  void Authenticate(const std::string* authorization, Done done);

 private:
  struct Known {
    subscriptions::ApiKey key;
    MonotonicTime until;
  };
  struct Waiter {
    KeyText text;
    Done done;
  };
  void LookUp(std::string key_id);
  void Finish(const std::string& key_id, absl::StatusOr<subscriptions::ApiKey> found);
  static absl::StatusOr<Principal> Judge(const KeyText& text, const subscriptions::ApiKey& key);

  Pool& pool_;
  const Clock& clock_;
  absl::flat_hash_map<std::string, Known> known_;
  absl::flat_hash_map<std::string, std::vector<Waiter>> waiting_;
};

}  // namespace postrider::api
