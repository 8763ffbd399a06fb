#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "subscriptions/registry/endpoint.h"

// The words for an endpoint's choices, the same in JSON and in SQL, and back: no value for any
// other word.
namespace postrider::subscriptions {

absl::string_view BodyFormatName(BodyFormat format);
absl::optional<BodyFormat> ParseBodyFormat(absl::string_view name);

absl::string_view BodyCompressionName(BodyCompression compression);
absl::optional<BodyCompression> ParseBodyCompression(absl::string_view name);

absl::string_view SignatureSchemeName(SignatureScheme scheme);
absl::optional<SignatureScheme> ParseSignatureScheme(absl::string_view name);

absl::string_view OrderKindName(OrderKind kind);
absl::optional<OrderKind> ParseOrderKind(absl::string_view name);

absl::string_view BlockedHeadName(BlockedHead blocked);
absl::optional<BlockedHead> ParseBlockedHead(absl::string_view name);

absl::string_view BacklogPolicyName(BacklogPolicy policy);
absl::optional<BacklogPolicy> ParseBacklogPolicy(absl::string_view name);

absl::string_view ResumeKindName(ResumeKind kind);
absl::optional<ResumeKind> ParseResumeKind(absl::string_view name);

absl::string_view AuthKindName(AuthKind kind);
absl::optional<AuthKind> ParseAuthKind(absl::string_view name);

// The member of `auth` in JSON that holds AuthSettings::name, and the one that holds what is
// secret; empty: this kind has none.
absl::string_view AuthNameField(AuthKind kind);
absl::string_view AuthSecretField(AuthKind kind);

}  // namespace postrider::subscriptions
