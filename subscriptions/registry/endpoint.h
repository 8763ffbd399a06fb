#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "subscriptions/registry/field_fault.h"
#include "subscriptions/registry/ids.h"

namespace postrider::subscriptions {

enum class EndpointMode { kBatch, kStreaming };

absl::string_view EndpointModeName(EndpointMode mode);
absl::optional<EndpointMode> ParseEndpointMode(absl::string_view name);

// A batch is closed by whichever comes first.
struct BatchSettings {
  static constexpr int64_t kEventsLeast = 1;
  static constexpr int64_t kEventsMost = 5000;
  static constexpr int64_t kBytesLeast = 1024;
  static constexpr int64_t kBytesMost = 10'485'760;
  static constexpr std::chrono::milliseconds kWaitMost{60'000};

  int64_t events_max = 1000;
  int64_t bytes_max = 1'048'576;
  std::chrono::milliseconds wait_max{1000};

  friend bool operator==(const BatchSettings&, const BatchSettings&) = default;
};

enum class BodyFormat {
  kEnvelope,
  kRaw,                // the event's own bytes; streaming only
  kCloudEvents,        // structured; in a batch the batch media type
  kCloudEventsBinary,  // streaming only
  kNdjson,             // an envelope a line
};
enum class BodyCompression { kNone, kGzip, kZstd };
enum class SignatureScheme { kHmac, kEd25519, kBoth };  // v1, v1a, v1 and v1a

struct BodySettings {
  BodyFormat format = BodyFormat::kEnvelope;
  BodyCompression compression = BodyCompression::kNone;
  friend bool operator==(const BodySettings&, const BodySettings&) = default;
};

// How much an endpoint is sent; no value: as much as its window allows.
struct LimitSettings {
  static constexpr double kRateLeast = 0.001;
  static constexpr double kRateMost = 1e9;

  absl::optional<double> requests_per_second;
  absl::optional<double> messages_per_second;
  absl::optional<double> bytes_per_second;  // of bodies, before compression

  friend bool operator==(const LimitSettings&, const LimitSettings&) = default;
};

enum class OrderKind { kNone, kKey, kEndpoint };
enum class BlockedHead { kHold, kDeadLetter };

struct OrderSettings {
  OrderKind kind = OrderKind::kNone;
  std::string key_pointer;  // a JSON pointer into the event; empty: the tenant is the key
  BlockedHead blocked = BlockedHead::kHold;
  friend bool operator==(const OrderSettings&, const OrderSettings&) = default;
};

enum class BacklogPolicy { kDeadLetterOldest, kCollapseByKey };

struct BacklogSettings {
  static constexpr int64_t kBytesLeast = 1'048'576;
  static constexpr int64_t kBytesMost = 1'073'741'824;
  static constexpr std::chrono::milliseconds kAgeLeast{60'000};
  static constexpr std::chrono::milliseconds kAgeMost = std::chrono::hours(24 * 14);

  int64_t bytes_max = kBytesMost;
  std::chrono::milliseconds age_max = std::chrono::hours(24 * 3);
  BacklogPolicy policy = BacklogPolicy::kDeadLetterOldest;
  std::string collapse_pointer;  // a JSON pointer into the event; empty: the tenant is the key
  friend bool operator==(const BacklogSettings&, const BacklogSettings&) = default;
};

// What of the backlog is sent when a pause ends; the rest becomes dead letters.
enum class ResumeKind { kAll, kFrom, kNewest };

struct PauseSettings {
  bool by_customer = false;
  bool by_operator = false;
  // Of the last resumption.
  ResumeKind resume = ResumeKind::kAll;
  WallTime resume_from;  // with kFrom: messages of events before are skipped
  WallTime resumed_at;   // with kNewest: those dispatched before are skipped
  friend bool operator==(const PauseSettings&, const PauseSettings&) = default;
};

enum class AuthKind { kNone, kBasic, kBearer, kHeader, kOAuth2 };

// Without what is secret, which stands in Endpoint::auth_sealed.
struct AuthSettings {
  static constexpr size_t kTextBytesMax = 1000;  // of a user, a client id, a scope
  static constexpr size_t kSecretBytesMax = 4096;

  AuthKind kind = AuthKind::kNone;
  std::string name;       // kBasic: the user; kHeader: the header's name; kOAuth2: the client id
  std::string token_url;  // kOAuth2
  std::string scope;      // kOAuth2; may be empty
  friend bool operator==(const AuthSettings&, const AuthSettings&) = default;
};

struct TlsSettings {
  std::string ca_pem;           // trusted instead of the system's; empty: the system's
  std::string certificate_pem;  // ours, with its chain; its key stands in Endpoint::tls_key_sealed
  friend bool operator==(const TlsSettings&, const TlsSettings&) = default;
};

struct RetrySettings {
  static constexpr int kAttemptsMost = 50;
  static constexpr std::chrono::milliseconds kHorizonLeast{1000};
  static constexpr std::chrono::milliseconds kHorizonMost = std::chrono::hours(24 * 7);
  static constexpr std::chrono::milliseconds kFirstDelayLeast{10};
  static constexpr double kFactorMost = 10;
  static constexpr std::chrono::milliseconds kCapMost = std::chrono::hours(24);

  int attempts = 10;
  std::chrono::milliseconds horizon = std::chrono::hours(24);
  std::chrono::milliseconds first_delay{5000};
  double factor = 2;
  std::chrono::milliseconds cap = std::chrono::hours(1);
  // Given, it stands for the three above: the delay before the second try, the third, ...; the last
  // one holds for all later ones. At most kAttemptsMost - 1.
  std::vector<std::chrono::milliseconds> schedule;

  friend bool operator==(const RetrySettings&, const RetrySettings&) = default;
};

// What a customer sets.
struct EndpointSettings {
  static constexpr int kWindowMost = 256;
  static constexpr int kParallelismMost = 64;
  static constexpr std::chrono::milliseconds kTimeoutLeast{1000};
  static constexpr std::chrono::milliseconds kTimeoutMost{30'000};
  static constexpr size_t kDescriptionBytesMax = 1000;

  std::string url;
  std::string description;
  EndpointMode mode = EndpointMode::kBatch;
  BatchSettings batch;
  std::vector<std::pair<std::string, std::string>> headers;  // core/http/header_rules.h
  RetrySettings retry;
  int window_max = 32;
  BodySettings body;
  SignatureScheme signature = SignatureScheme::kHmac;
  bool partial_ack = false;
  LimitSettings limits;
  OrderSettings order;
  // Parts over which an endpoint without order is spread. Each has its own breaker and its share of
  // window_max, limits and backlog.bytes_max.
  int parallelism = 1;
  BacklogSettings backlog;
  PauseSettings pause;
  AuthSettings auth;
  TlsSettings tls;
  std::chrono::milliseconds timeout{15'000};
  bool enabled = true;

  friend bool operator==(const EndpointSettings&, const EndpointSettings&) = default;
};

// Every field that is out of its bounds. Looks at the URL's form only; whether its address may be
// reached is the address guard's matter, and depends on options.
FieldFaults Validate(const EndpointSettings& settings);
// The faults of what is secret of `auth` (a password, a token, a header's value, a client secret).
FieldFaults ValidateAuthSecret(AuthKind kind, absl::string_view secret);

// An endpoint as it is kept.
struct Endpoint {
  EndpointId id;
  CustomerId customer;
  EndpointSettings settings;
  std::string secrets_sealed;  // see endpoint_secrets.h
  std::string auth_sealed;     // password, token, header's value or client secret; empty: none
  std::string tls_key_sealed;  // the key of settings.tls.certificate_pem; empty: none
  uint64_t generation = 0;
  uint64_t changed_xid = 0;
  WallTime created_at;
  WallTime updated_at;
};

}  // namespace postrider::subscriptions
