#include "subscriptions/registry/endpoint.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/crypto/certificate.h"
#include "core/http/header_rules.h"
#include "core/http/url.h"
#include "core/json/reader.h"
#include "subscriptions/registry/endpoint_names.h"
#include "subscriptions/registry/internal/text_rules.h"

namespace postrider::subscriptions {
namespace {

void Range(int64_t value, int64_t least, int64_t most, absl::string_view pointer,
           FieldFaults* faults) {
  if (value < least || value > most) {
    faults->push_back(
        {std::string(pointer), absl::StrCat("must be between ", least, " and ", most)});
  }
}

void Range(std::chrono::milliseconds value, std::chrono::milliseconds least,
           std::chrono::milliseconds most, absl::string_view pointer, FieldFaults* faults) {
  Range(value.count(), least.count(), most.count(), pointer, faults);
}

// The first header that stands among those of the event.
absl::optional<HeaderFault> FindEventHeader(const EndpointSettings& settings) {
  if (settings.body.format != BodyFormat::kCloudEventsBinary) return absl::nullopt;
  for (size_t i = 0; i < settings.headers.size(); ++i) {
    if (absl::StartsWithIgnoreCase(settings.headers[i].first, "ce-")) {
      return HeaderFault{i, "is of the event with the body format cloudevents_binary"};
    }
  }
  return absl::nullopt;
}

void CheckHeaders(const EndpointSettings& settings, FieldFaults* faults) {
  auto fault = FindHeaderFault(settings.headers);
  if (!fault) fault = FindEventHeader(settings);
  if (!fault) return;
  if (fault->index >= settings.headers.size() || settings.headers.size() > kCustomHeadersMax) {
    faults->push_back({"/headers", fault->detail});
    return;
  }
  // A JSON pointer escapes '~' and '/', and a token may hold the former.
  std::string name;
  for (const char c : settings.headers[fault->index].first) {
    if (c == '~') {
      name += "~0";
    } else if (c == '/') {
      name += "~1";
    } else {
      name.push_back(c);
    }
  }
  faults->push_back({absl::StrCat("/headers/", name), fault->detail});
}

void CheckRetry(const RetrySettings& retry, FieldFaults* faults) {
  Range(retry.attempts, 1, RetrySettings::kAttemptsMost, "/retry/attempts", faults);
  Range(retry.horizon, RetrySettings::kHorizonLeast, RetrySettings::kHorizonMost,
        "/retry/horizon_ms", faults);
  Range(retry.first_delay, RetrySettings::kFirstDelayLeast, RetrySettings::kCapMost,
        "/retry/first_delay_ms", faults);
  Range(retry.cap, RetrySettings::kFirstDelayLeast, RetrySettings::kCapMost, "/retry/cap_ms",
        faults);
  // NaN is in no range.
  if (!(retry.factor >= 1 && retry.factor <= RetrySettings::kFactorMost)) {
    faults->push_back(
        {"/retry/factor", absl::StrCat("must be between 1 and ", RetrySettings::kFactorMost)});
  }
  if (retry.schedule.size() > RetrySettings::kAttemptsMost - 1) {
    faults->push_back(
        {"/retry/schedule_ms",
         absl::StrCat("must have at most ", RetrySettings::kAttemptsMost - 1, " delays")});
    return;
  }
  for (size_t i = 0; i < retry.schedule.size(); ++i) {
    Range(retry.schedule[i], RetrySettings::kFirstDelayLeast, RetrySettings::kCapMost,
          absl::StrCat("/retry/schedule_ms/", i), faults);
  }
}

void CheckRate(const absl::optional<double>& rate, absl::string_view pointer, FieldFaults* faults) {
  if (rate && !(*rate >= LimitSettings::kRateLeast && *rate <= LimitSettings::kRateMost)) {
    faults->push_back({std::string(pointer), "must be between 0.001 and 1000000000"});
  }
}

// `used`: whether the pointer has a meaning.
void CheckKeyPointer(const std::string& text, bool used, absl::string_view unused_because,
                     absl::string_view pointer, FieldFaults* faults) {
  constexpr size_t kBytesMax = 500;
  if (text.empty()) return;
  if (!used) {
    faults->push_back({std::string(pointer), std::string(unused_because)});
  } else if (text.size() > kBytesMax || !internal::IsPlainText(text)) {
    faults->push_back(
        {std::string(pointer), absl::StrCat("must be UTF-8 without control characters, at most ",
                                            kBytesMax, " bytes long")});
  } else if (const auto parsed = JsonPointer::Parse(text); !parsed.ok()) {
    faults->push_back({std::string(pointer), "must be a JSON pointer (RFC 6901)"});
  }
}

void CheckOrder(const EndpointSettings& settings, FieldFaults* faults) {
  const OrderSettings& order = settings.order;
  CheckKeyPointer(order.key_pointer, order.kind == OrderKind::kKey, "needs the order key",
                  "/order/key_pointer", faults);
}

// Each part has its own share of what an endpoint may have: there must be one for each.
void CheckParallelism(const EndpointSettings& settings, FieldFaults* faults) {
  constexpr absl::string_view kPointer = "/parallelism";
  Range(settings.parallelism, 1, EndpointSettings::kParallelismMost, kPointer, faults);
  if (settings.parallelism <= 1 || settings.parallelism > EndpointSettings::kParallelismMost) {
    return;
  }
  const auto refuse = [&](absl::string_view why) {
    faults->push_back({std::string(kPointer), std::string(why)});
  };
  const auto above = [&](const absl::optional<double>& rate) {
    return rate && settings.parallelism > *rate;
  };
  if (settings.order.kind != OrderKind::kNone) {
    refuse("must be 1 for an endpoint that is sent to in order");
  } else if (settings.backlog.policy == BacklogPolicy::kCollapseByKey) {
    refuse("must be 1 with the backlog's policy collapse_by_key");
  } else if (settings.parallelism > settings.window_max) {
    refuse("must not be above window_max");
  } else if (above(settings.limits.requests_per_second)) {
    refuse("must not be above limits.requests_per_second");
  } else if (above(settings.limits.messages_per_second)) {
    refuse("must not be above limits.messages_per_second");
  } else if (settings.backlog.bytes_max / settings.parallelism < BacklogSettings::kBytesLeast) {
    refuse(absl::StrCat("must leave ", BacklogSettings::kBytesLeast,
                        " of backlog.bytes_max for each part"));
  }
}

void CheckBacklog(const BacklogSettings& backlog, FieldFaults* faults) {
  Range(backlog.bytes_max, BacklogSettings::kBytesLeast, BacklogSettings::kBytesMost,
        "/backlog/bytes_max", faults);
  Range(backlog.age_max, BacklogSettings::kAgeLeast, BacklogSettings::kAgeMost,
        "/backlog/age_max_ms", faults);
  CheckKeyPointer(backlog.collapse_pointer, backlog.policy == BacklogPolicy::kCollapseByKey,
                  "needs the policy collapse_by_key", "/backlog/collapse_pointer", faults);
}

// RFC 6749, appendix A: printable ASCII; a scope has neither '"' nor '\\'.
bool IsVisibleAscii(absl::string_view text, absl::string_view but = "") {
  return std::all_of(text.begin(), text.end(), [but](char c) {
    return c >= ' ' && c <= '~' && but.find(c) == absl::string_view::npos;
  });
}

bool HasHeader(const EndpointSettings& settings, absl::string_view name) {
  return std::any_of(settings.headers.begin(), settings.headers.end(), [name](const auto& header) {
    return absl::EqualsIgnoreCase(header.first, name);
  });
}

void CheckAuthName(const EndpointSettings& settings, FieldFaults* faults) {
  const AuthSettings& auth = settings.auth;
  const std::string pointer = absl::StrCat("/auth/", AuthNameField(auth.kind));
  if (auth.kind == AuthKind::kHeader) {
    if (!IsHeaderName(auth.name) || IsReservedHeader(auth.name)) {
      faults->push_back({pointer, "must be a header's name that is not reserved"});
    } else if (HasHeader(settings, auth.name)) {
      faults->push_back({pointer, "is set in headers too"});
    }
    return;
  }
  if (HasHeader(settings, "authorization")) {
    faults->push_back({"/headers/authorization", "is set by auth"});
  }
  if (auth.kind == AuthKind::kBearer) return;
  if (auth.name.empty() || auth.name.size() > AuthSettings::kTextBytesMax) {
    faults->push_back(
        {pointer, absl::StrCat("must be 1 to ", AuthSettings::kTextBytesMax, " bytes long")});
  } else if (auth.kind == AuthKind::kOAuth2 && !IsVisibleAscii(auth.name)) {
    faults->push_back({pointer, "must be printable ASCII"});
  } else if (auth.kind == AuthKind::kBasic &&
             (!internal::IsPlainText(auth.name) || absl::StrContains(auth.name, ":"))) {
    // RFC 7617: the first colon ends the user's name.
    faults->push_back({pointer, "must be UTF-8 without control characters and colons"});
  }
}

void CheckAuth(const EndpointSettings& settings, FieldFaults* faults) {
  const AuthSettings& auth = settings.auth;
  if (auth.kind == AuthKind::kNone) return;
  CheckAuthName(settings, faults);
  if (auth.kind != AuthKind::kOAuth2) return;
  if (const auto url = ParseHttpUrl(auth.token_url); !url.ok()) {
    faults->push_back({"/auth/token_url", std::string(url.status().message())});
  }
  if (auth.scope.size() > AuthSettings::kTextBytesMax || !IsVisibleAscii(auth.scope, "\"\\")) {
    faults->push_back({"/auth/scope", absl::StrCat("must be printable ASCII without quotes and "
                                                   "backslashes, at most ",
                                                   AuthSettings::kTextBytesMax, " bytes long")});
  }
}

void CheckTls(const TlsSettings& tls, FieldFaults* faults) {
  for (const auto& [pem, pointer] : {std::pair(&tls.ca_pem, "/tls/ca_pem"),
                                     std::pair(&tls.certificate_pem, "/tls/certificate_pem")}) {
    if (pem->empty()) continue;
    if (const absl::Status fault = CheckCertificates(*pem); !fault.ok()) {
      faults->push_back({pointer, std::string(fault.message())});
    }
  }
}

}  // namespace

absl::string_view EndpointModeName(EndpointMode mode) {
  switch (mode) {
    case EndpointMode::kBatch:
      return "batch";
    case EndpointMode::kStreaming:
      return "streaming";
  }
  POSTRIDER_CHECK(false);
}

absl::optional<EndpointMode> ParseEndpointMode(absl::string_view name) {
  if (name == "batch") return EndpointMode::kBatch;
  if (name == "streaming") return EndpointMode::kStreaming;
  return absl::nullopt;
}

FieldFaults Validate(const EndpointSettings& settings) {
  FieldFaults faults;
  if (const auto url = ParseHttpUrl(settings.url); !url.ok()) {
    faults.push_back({"/url", std::string(url.status().message())});
  }
  if (settings.description.size() > EndpointSettings::kDescriptionBytesMax) {
    faults.push_back(
        {"/description",
         absl::StrCat("must be at most ", EndpointSettings::kDescriptionBytesMax, " bytes long")});
  } else if (!internal::IsPlainText(settings.description)) {
    faults.push_back({"/description", "must be UTF-8 without control characters"});
  }
  const BatchSettings& batch = settings.batch;
  Range(batch.events_max, BatchSettings::kEventsLeast, BatchSettings::kEventsMost,
        "/batch/events_max", &faults);
  Range(batch.bytes_max, BatchSettings::kBytesLeast, BatchSettings::kBytesMost, "/batch/bytes_max",
        &faults);
  Range(batch.wait_max, std::chrono::milliseconds(0), BatchSettings::kWaitMost,
        "/batch/wait_max_ms", &faults);
  CheckHeaders(settings, &faults);
  CheckRetry(settings.retry, &faults);
  Range(settings.window_max, 1, EndpointSettings::kWindowMost, "/window_max", &faults);
  Range(settings.timeout, EndpointSettings::kTimeoutLeast, EndpointSettings::kTimeoutMost,
        "/timeout_ms", &faults);
  if (settings.mode != EndpointMode::kStreaming &&
      (settings.body.format == BodyFormat::kRaw ||
       settings.body.format == BodyFormat::kCloudEventsBinary)) {
    faults.push_back({"/body/format", absl::StrCat(BodyFormatName(settings.body.format),
                                                   " needs the mode streaming")});
  }
  CheckRate(settings.limits.requests_per_second, "/limits/requests_per_second", &faults);
  CheckRate(settings.limits.messages_per_second, "/limits/messages_per_second", &faults);
  CheckRate(settings.limits.bytes_per_second, "/limits/bytes_per_second", &faults);
  CheckOrder(settings, &faults);
  CheckParallelism(settings, &faults);
  CheckBacklog(settings.backlog, &faults);
  CheckAuth(settings, &faults);
  CheckTls(settings.tls, &faults);
  return faults;
}

FieldFaults ValidateAuthSecret(AuthKind kind, absl::string_view secret) {
  if (kind == AuthKind::kNone) return {};
  const std::string pointer = absl::StrCat("/auth/", AuthSecretField(kind));
  if (secret.empty() || secret.size() > AuthSettings::kSecretBytesMax) {
    return {{pointer, absl::StrCat("must be 1 to ", AuthSettings::kSecretBytesMax, " bytes long")}};
  }
  switch (kind) {
    case AuthKind::kBasic:
      if (internal::IsPlainText(secret)) return {};
      return {{pointer, "must be UTF-8 without control characters"}};
    case AuthKind::kBearer:
      if (IsVisibleAscii(secret, " ")) return {};
      return {{pointer, "must be printable ASCII without spaces"}};
    case AuthKind::kHeader:
      if (IsHeaderValue(secret)) return {};
      return {{pointer, "must be a header's value"}};
    default:
      if (IsVisibleAscii(secret)) return {};
      return {{pointer, "must be printable ASCII"}};
  }
}

}  // namespace postrider::subscriptions
