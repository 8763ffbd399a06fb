#include "delivery/token_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/crypto/digest.h"
#include "core/http/header_rules.h"
#include "core/json/json.h"

namespace postrider::delivery {
namespace {

constexpr size_t kTokenBytesMax = 4'000;
constexpr size_t kAnswerBytesMax = 16 * 1024;
// What a token's end is brought forward by, for clocks and ways; never more than a tenth.
constexpr Duration kMargin = std::chrono::seconds(5);

// token68 of RFC 9110: what "Bearer" takes.
bool IsToken(absl::string_view text) {
  if (text.empty() || text.size() > kTokenBytesMax) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("-._~+/=").find(c) != absl::string_view::npos;
  });
}

// expires_in is a number; some providers write it as text.
absl::optional<double> SecondsOf(const JsonValue& value) {
  if (const absl::optional<double> number = value.number()) return number;
  double seconds = 0;
  if (value.string() != nullptr && absl::SimpleAtod(*value.string(), &seconds)) return seconds;
  return absl::nullopt;
}

HttpRequest MakeTokenRequest(const TokenSource& source, const TokenCacheOptions& options) {
  HttpRequest request;
  request.url = source.url;
  request.total_timeout = options.fetch_timeout;
  request.response_body_bytes_max = kAnswerBytesMax;
  request.connection_group = absl::StrCat(source.customer.view(), "\ntoken");
  request.body = "grant_type=client_credentials";
  if (!source.scope.empty()) absl::StrAppend(&request.body, "&scope=", PercentEncode(source.scope));
  const std::string id = PercentEncode(source.client_id);
  const std::string secret = PercentEncode(source.client_secret);
  // RFC 6749, 2.3.1: each of the two is encoded first.
  const std::string basic =
      absl::StrCat("Basic ", absl::Base64Escape(absl::StrCat(id, ":", secret)));
  request.headers = {{"content-type", "application/x-www-form-urlencoded"},
                     {"accept", "application/json"},
                     {"user-agent", "Postrider/" POSTRIDER_VERSION}};
  if (IsHeaderValue(basic)) {
    request.headers.emplace_back("authorization", basic);
  } else {
    absl::StrAppend(&request.body, "&client_id=", id, "&client_secret=", secret);
  }
  return request;
}

}  // namespace

std::shared_ptr<const TokenSource> TokenSource::Make(subscriptions::CustomerId customer,
                                                     HttpUrl url, std::string client_id,
                                                     std::string client_secret, std::string scope) {
  auto source = std::make_shared<TokenSource>();
  ByteWriter writer;
  const std::string text = url.ToString();
  for (const absl::string_view part :
       {customer.view(), absl::string_view(text), absl::string_view(client_id),
        absl::string_view(client_secret), absl::string_view(scope)}) {
    writer.String(part);
  }
  source->key = std::string(DigestView(Sha256(writer.bytes())));
  source->customer = customer;
  source->authority = url.authority();
  source->url = std::move(url);
  source->client_id = std::move(client_id);
  source->client_secret = std::move(client_secret);
  source->scope = std::move(scope);
  return source;
}

TokenCache::TokenCache(const Clock& clock, HttpSink& sink, const TokenCacheOptions& options,
                       Counter& fetches, Counter& failures, OnChange on_change)
    : clock_(clock),
      sink_(sink),
      options_(options),
      fetches_(fetches),
      failures_(failures),
      on_change_(std::move(on_change)) {}

TokenCache::~TokenCache() {
  for (const auto& [key, entry] : entries_) POSTRIDER_CHECK(!entry.fetching);
}

TokenCache::Token TokenCache::Get(const std::shared_ptr<const TokenSource>& source) {
  auto found = entries_.find(source->key);
  if (found == entries_.end()) {
    if (entries_.size() >= options_.tokens_max) MakeRoom();
    found = entries_.try_emplace(source->key).first;
    found->second.source = source;
  }
  Entry& entry = found->second;
  const MonotonicTime now = clock_.Now();
  entry.last_used = now;
  if (!entry.value.empty() && now >= entry.ends_at) entry.value.clear();
  const bool wanted = entry.value.empty() || now >= entry.refresh_at;
  if (wanted && !entry.fetching && now >= entry.failed_until) Fetch(entry);
  Token token;
  if (!entry.value.empty()) {
    token.state = State::kReady;
    token.value = entry.value;
    token.number = entry.number;
    token.ends_at = entry.ends_at;
  } else {
    token.state = entry.fetching ? State::kFetching : State::kFailed;
    token.retry_in = std::max(entry.failed_until - now, Duration::zero());
  }
  return token;
}

void TokenCache::Reject(const TokenSource& source, uint64_t number) {
  const auto found = entries_.find(source.key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  const MonotonicTime now = clock_.Now();
  if (entry.value.empty() || entry.number != number || now < entry.reject_from) return;
  entry.value.clear();
  entry.reject_from = now + options_.reject_every;
}

void TokenCache::Fetch(Entry& entry) {
  // A renewal leaves a place for the request that it is asked for.
  const size_t places = entry.value.empty() ? 1 : 2;
  if (!sink_.CanSend() || sink_.RoomFor(entry.source->authority) < places) {
    if (!entry.value.empty()) return;
    entry.failed_until = clock_.Now() + options_.failure_valid_for;
    failures_.Increment();
    return;
  }
  entry.fetching = true;
  fetches_.Increment();
  sink_.Send(MakeTokenRequest(*entry.source, options_),
             [this, key = entry.source->key](const HttpResult& result) { OnAnswer(key, result); });
}

void TokenCache::OnAnswer(const std::string& key, const HttpResult& result) {
  const auto found = entries_.find(key);
  POSTRIDER_CHECK(found != entries_.end());
  Entry& entry = found->second;
  entry.fetching = false;
  if (const absl::Status taken = TakeAnswer(entry, result); !taken.ok()) {
    failures_.Increment();
    entry.failed_until = clock_.Now() + options_.failure_valid_for;
    POSTRIDER_LOG(kWarn, "an endpoint's token provider gave no token", {"why", taken.message()});
  }
  on_change_(key);
}

absl::Status TokenCache::TakeAnswer(Entry& entry, const HttpResult& result) {
  const auto fault = [](absl::string_view why) { return absl::UnavailableError(why); };
  if (result.failure != HttpFailure::kNone) return fault(HttpFailureName(result.failure));
  if (result.status != 200) return fault(absl::StrCat("status ", result.status));
  if (result.body_cut) return fault("the answer was cut or is too long");
  const absl::StatusOr<JsonValue> answer = JsonValue::Parse(result.body_excerpt);
  if (!answer.ok()) return fault("the answer is no JSON");
  const JsonValue* const type = answer->Find("token_type");
  if (type != nullptr &&
      (type->string() == nullptr || !absl::EqualsIgnoreCase(*type->string(), "bearer"))) {
    return fault("the token_type is not bearer");
  }
  const JsonValue* const token = answer->Find("access_token");
  if (token == nullptr || token->string() == nullptr || !IsToken(*token->string())) {
    return fault("there is no access_token that is fit for a header");
  }
  Duration life = options_.valid_for;
  if (const JsonValue* const expires = answer->Find("expires_in");
      expires != nullptr && !expires->is_null()) {
    const absl::optional<double> seconds = SecondsOf(*expires);
    // Also what is no number at all.
    if (!seconds || !(*seconds >= 1)) return fault("expires_in is no number of seconds");
    const double most = std::chrono::duration<double>(options_.valid_for_max).count();
    life = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(std::min(*seconds, most)));
  }
  const MonotonicTime now = clock_.Now();
  entry.value = *token->string();
  entry.number = next_number_++;
  entry.ends_at = now + life - std::min(kMargin, life / 10);
  entry.refresh_at = now + life / 5 * 4;
  return absl::OkStatus();
}

// An eighth at once, so that a full cache does not look through all of it for each new token.
void TokenCache::MakeRoom() {
  std::vector<std::pair<MonotonicTime, std::string>> idle;
  for (const auto& [key, entry] : entries_) {
    if (!entry.fetching) idle.emplace_back(entry.last_used, key);
  }
  const size_t count = std::min(idle.size(), options_.tokens_max / 8 + 1);
  std::partial_sort(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(count), idle.end());
  for (size_t i = 0; i < count; ++i) entries_.erase(idle[i].second);
}

}  // namespace postrider::delivery
