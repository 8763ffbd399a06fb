#include "subscriptions/registry/endpoint_names.h"

#include <cstddef>

#include "core/base/check.h"

namespace postrider::subscriptions {
namespace {

// The words of an enum whose values count up from 0.
template <size_t N>
using Words = const absl::string_view (&)[N];

constexpr absl::string_view kBodyFormats[] = {"envelope", "raw", "cloudevents",
                                              "cloudevents_binary", "ndjson"};
constexpr absl::string_view kBodyCompressions[] = {"none", "gzip", "zstd"};
constexpr absl::string_view kSignatureSchemes[] = {"hmac", "ed25519", "both"};
constexpr absl::string_view kOrderKinds[] = {"none", "key", "endpoint"};
constexpr absl::string_view kBlockedHeads[] = {"hold", "dead_letter"};
constexpr absl::string_view kBacklogPolicies[] = {"dead_letter_oldest", "collapse_by_key"};
constexpr absl::string_view kResumeKinds[] = {"all", "from", "newest"};
constexpr absl::string_view kAuthKinds[] = {"none", "basic", "bearer", "header", "oauth2"};
constexpr absl::string_view kAuthNames[] = {"", "username", "", "name", "client_id"};
constexpr absl::string_view kAuthSecrets[] = {"", "password", "token", "value", "client_secret"};

template <typename E, size_t N>
absl::string_view NameIn(Words<N> words, E value) {
  const auto index = static_cast<size_t>(value);
  POSTRIDER_CHECK(index < N);
  return words[index];
}

template <typename E, size_t N>
absl::optional<E> FindIn(Words<N> words, absl::string_view name) {
  for (size_t i = 0; i < N; ++i) {
    if (words[i] == name) return static_cast<E>(i);
  }
  return absl::nullopt;
}

}  // namespace

absl::string_view BodyFormatName(BodyFormat format) { return NameIn(kBodyFormats, format); }
absl::optional<BodyFormat> ParseBodyFormat(absl::string_view name) {
  return FindIn<BodyFormat>(kBodyFormats, name);
}

absl::string_view BodyCompressionName(BodyCompression compression) {
  return NameIn(kBodyCompressions, compression);
}
absl::optional<BodyCompression> ParseBodyCompression(absl::string_view name) {
  return FindIn<BodyCompression>(kBodyCompressions, name);
}

absl::string_view SignatureSchemeName(SignatureScheme scheme) {
  return NameIn(kSignatureSchemes, scheme);
}
absl::optional<SignatureScheme> ParseSignatureScheme(absl::string_view name) {
  return FindIn<SignatureScheme>(kSignatureSchemes, name);
}

absl::string_view OrderKindName(OrderKind kind) { return NameIn(kOrderKinds, kind); }
absl::optional<OrderKind> ParseOrderKind(absl::string_view name) {
  return FindIn<OrderKind>(kOrderKinds, name);
}

absl::string_view BlockedHeadName(BlockedHead blocked) { return NameIn(kBlockedHeads, blocked); }
absl::optional<BlockedHead> ParseBlockedHead(absl::string_view name) {
  return FindIn<BlockedHead>(kBlockedHeads, name);
}

absl::string_view BacklogPolicyName(BacklogPolicy policy) {
  return NameIn(kBacklogPolicies, policy);
}
absl::optional<BacklogPolicy> ParseBacklogPolicy(absl::string_view name) {
  return FindIn<BacklogPolicy>(kBacklogPolicies, name);
}

absl::string_view ResumeKindName(ResumeKind kind) { return NameIn(kResumeKinds, kind); }
absl::optional<ResumeKind> ParseResumeKind(absl::string_view name) {
  return FindIn<ResumeKind>(kResumeKinds, name);
}

absl::string_view AuthKindName(AuthKind kind) { return NameIn(kAuthKinds, kind); }
absl::optional<AuthKind> ParseAuthKind(absl::string_view name) {
  return FindIn<AuthKind>(kAuthKinds, name);
}

absl::string_view AuthNameField(AuthKind kind) { return NameIn(kAuthNames, kind); }
absl::string_view AuthSecretField(AuthKind kind) { return NameIn(kAuthSecrets, kind); }

}  // namespace postrider::subscriptions
