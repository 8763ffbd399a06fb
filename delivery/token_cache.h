#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/http/http_sink.h"
#include "core/http/url.h"
#include "subscriptions/registry/ids.h"

namespace postrider::delivery {

// Where an endpoint's tokens come from: OAuth 2.0 client credentials (RFC 6749, 4.4).
struct TokenSource {
  subscriptions::CustomerId customer;
  HttpUrl url;
  std::string authority;  // of the URL
  std::string client_id;
  std::string client_secret;
  std::string scope;  // may be empty
  // Of all of them: endpoints whose sources have the same key share a token.
  std::string key;

  static std::shared_ptr<const TokenSource> Make(subscriptions::CustomerId customer, HttpUrl url,
                                                 std::string client_id, std::string client_secret,
                                                 std::string scope);
};

struct TokenCacheOptions {
  size_t tokens_max = 4'096;
  Duration fetch_timeout = std::chrono::seconds(10);
  // After a failure the provider is left alone for so long.
  Duration failure_valid_for = std::chrono::seconds(5);
  // What a provider that names no expires_in has said, and the most that is believed.
  Duration valid_for = std::chrono::hours(1);
  Duration valid_for_max = std::chrono::hours(24);
  // A receiver that refuses one token after the other has one fetched so often at most.
  Duration reject_every = std::chrono::minutes(1);
};

// The access tokens of one shard. They are fetched through the shard's sink and so past its guard,
// one fetch at a time for a source, over connections that carry nothing else. A token is fetched
// anew when four fifths of its life are over, and used to its end meanwhile. Tokens, secrets and
// URLs are never logged.
//
// Threads: the shard's.
// Bounds:  tokens_max; beyond it those that were used longest ago go. A token has at most 4,000
//          bytes, an answer 16 KB.
class TokenCache {
 public:
  enum class State : uint8_t {
    kReady,
    kFetching,  // OnChange is called when that has ended
    kFailed,    // for failure_valid_for
  };
  struct Token {
    State state = State::kFailed;
    Duration retry_in{};      // of kFailed: no fetch is begun before
    std::string value;        // of kReady; fit for "Bearer <value>"
    uint64_t number = 0;      // never reused; of kReady
    MonotonicTime ends_at{};  // likewise
  };
  using OnChange = std::function<void(const std::string& key)>;

  // `clock`, `sink` and the counters outlive it, and requests of the sink must have ended before it
  // goes.
  TokenCache(const Clock& clock, HttpSink& sink, const TokenCacheOptions& options, Counter& fetches,
             Counter& failures, OnChange on_change);
  ~TokenCache();

  // Begins a fetch when one is needed, which needs HttpSink::CanSend().
  Token Get(const std::shared_ptr<const TokenSource>& source);
  // A receiver has answered 401 to that token: it is not used again.
  void Reject(const TokenSource& source, uint64_t number);

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::shared_ptr<const TokenSource> source;
    std::string value;  // empty: none
    uint64_t number = 0;
    bool fetching = false;
    MonotonicTime refresh_at;
    MonotonicTime ends_at;
    MonotonicTime failed_until;  // no fetch is begun before
    MonotonicTime reject_from;
    MonotonicTime last_used;
  };

  void Fetch(Entry& entry);
  void OnAnswer(const std::string& key, const HttpResult& result);
  absl::Status TakeAnswer(Entry& entry, const HttpResult& result);
  void MakeRoom();

  const Clock& clock_;
  HttpSink& sink_;
  const TokenCacheOptions options_;
  Counter& fetches_;
  Counter& failures_;
  const OnChange on_change_;
  absl::flat_hash_map<std::string, Entry> entries_;
  uint64_t next_number_ = 1;
};

}  // namespace postrider::delivery
