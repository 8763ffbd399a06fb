#include "api/api_key.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/id.h"
#include "core/crypto/constant_time.h"
#include "core/crypto/digest.h"
#include "core/crypto/random.h"
#include "core/http/ip_address.h"
#include "core/postgres/transaction.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

constexpr absl::string_view kPrefix = "pr_";
constexpr size_t kIdLength = 12;
constexpr size_t kSecretLength = 52;
constexpr size_t kChecksumLength = 7;
constexpr size_t kChecksumBytes = 4;

std::string Checksum(absl::string_view id, absl::string_view secret) {
  const Sha256Digest digest = Sha256({"postrider api key ", id, "_", secret});
  return EncodeBase32(DigestView(digest).substr(0, kChecksumBytes));
}

bool IsBase32(absl::string_view text) {
  for (const char c : text) {
    if (!absl::StrContains("0123456789abcdefghjkmnpqrstvwxyz", c)) return false;
  }
  return true;
}

// One customer of an IPv6 provider has a whole /64.
std::string LimiterKey(absl::string_view address) {
  const absl::optional<IpAddress> parsed = IpAddress::Parse(address);
  if (!parsed || parsed->family() == IpAddress::Family::kV4) return std::string(address);
  return std::string(reinterpret_cast<const char*>(parsed->bytes().data()), 8);
}

absl::Status NoSuchKey() {
  return absl::UnauthenticatedError("A valid key is needed: send `authorization: Bearer pr_...`.");
}

}  // namespace

absl::optional<KeyText> ParseKeyText(absl::string_view text) {
  constexpr size_t kLength = kPrefix.size() + kIdLength + 1 + kSecretLength + kChecksumLength;
  if (text.size() != kLength || !absl::StartsWith(text, kPrefix)) return absl::nullopt;
  const absl::string_view id = text.substr(kPrefix.size(), kIdLength);
  const absl::string_view rest = text.substr(kPrefix.size() + kIdLength);
  const absl::string_view secret = rest.substr(1, kSecretLength);
  if (rest[0] != '_' || !IsBase32(id) || !IsBase32(rest.substr(1))) return absl::nullopt;
  if (rest.substr(1 + kSecretLength) != Checksum(id, secret)) return absl::nullopt;
  return KeyText{std::string(id), std::string(secret)};
}

NewKey MakeKey() {
  std::array<char, 32> bytes;
  FillRandom(bytes.data(), bytes.size());
  NewKey key;
  key.key_id = EncodeBase32(absl::string_view(bytes.data(), 8)).substr(0, kIdLength);
  FillRandom(bytes.data(), bytes.size());
  const std::string secret = EncodeBase32(absl::string_view(bytes.data(), bytes.size()));
  key.text = absl::StrCat(kPrefix, key.key_id, "_", secret, Checksum(key.key_id, secret));
  key.secret_sha256 = std::string(DigestView(Sha256(secret)));
  return key;
}

bool FailureLimiter::Blocked(absl::string_view address, MonotonicTime now) const {
  const auto found = windows_.find(LimiterKey(address));
  return found != windows_.end() && found->second.failures >= kFailuresMax &&
         now - found->second.begin < std::chrono::seconds(1);
}

void FailureLimiter::Failed(absl::string_view address, MonotonicTime now) {
  if (windows_.size() >= kAddressesMax) windows_.clear();
  Window& window = windows_[LimiterKey(address)];
  if (window.failures == 0 || now - window.begin >= std::chrono::seconds(1)) {
    window = Window{now, 0};
  }
  ++window.failures;
}

void Authenticator::Authenticate(const std::string* authorization, Done done) {
  if (authorization == nullptr) return std::move(done)(NoSuchKey());
  absl::string_view value = *authorization;
  if (value.size() < 7 || !absl::EqualsIgnoreCase(value.substr(0, 7), "bearer ")) {
    return std::move(done)(NoSuchKey());
  }
  absl::optional<KeyText> text = ParseKeyText(value.substr(7));
  if (!text) return std::move(done)(NoSuchKey());
  const auto known = known_.find(text->key_id);
  if (known != known_.end() && clock_.Now() < known->second.until) {
    return std::move(done)(Judge(*text, known->second.key));
  }
  const std::string key_id = text->key_id;
  std::vector<Waiter>& waiters = waiting_[key_id];
  waiters.push_back(Waiter{*std::move(text), std::move(done)});
  if (waiters.size() == 1) LookUp(key_id);
}

void Authenticator::LookUp(std::string key_id) {
  Transaction::Begin(
      pool_, subscriptions::AsKeyLookup(key_id), [this, key_id](absl::StatusOr<Transaction> begun) {
        if (!begun.ok()) return Finish(key_id, begun.status());
        auto tx = std::make_shared<Transaction>(*std::move(begun));
        subscriptions::FindKey(*tx, key_id,
                               [this, key_id, tx](absl::StatusOr<subscriptions::ApiKey> found) {
                                 Finish(key_id, std::move(found));
                               });
      });
}

void Authenticator::Finish(const std::string& key_id, absl::StatusOr<subscriptions::ApiKey> found) {
  known_.erase(key_id);
  if (found.ok()) {
    if (known_.size() >= kCachedMax) known_.clear();
    known_.emplace(key_id, Known{*found, clock_.Now() + kBelievedFor});
  }
  std::vector<Waiter> waiters = std::move(waiting_[key_id]);
  waiting_.erase(key_id);
  for (Waiter& waiter : waiters) {
    if (found.ok()) {
      std::move(waiter.done)(Judge(waiter.text, *found));
    } else if (absl::IsNotFound(found.status())) {
      std::move(waiter.done)(NoSuchKey());
    } else {
      std::move(waiter.done)(
          absl::UnavailableError(absl::StrCat("api: look up a key: ", found.status().message())));
    }
  }
}

absl::StatusOr<Principal> Authenticator::Judge(const KeyText& text,
                                               const subscriptions::ApiKey& key) {
  if (!ConstantTimeEqual(DigestView(Sha256(text.secret)), key.secret_sha256)) return NoSuchKey();
  Principal principal;
  principal.key_id = key.key_id;
  principal.scope = key.scope;
  if (key.customer) principal.customer = *key.customer;
  principal.event_types = key.event_types;
  principal.tenants = key.tenants;
  return principal;
}

}  // namespace postrider::api
