#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider::loadtest {

// The bytes of a secret written as "whsec_<base64>".
absl::StatusOr<std::string> DecodeSecret(absl::string_view secret);

// "v1,<base64>" over "id.timestamp.body": Standard Webhooks, worked out on our own.
std::string Sign(absl::string_view secret_bytes, absl::string_view id, absl::string_view timestamp,
                 absl::string_view body);

// Whether one of the signatures in `header` (separated by spaces) is that of the secret.
// Foreign versions are passed over.
bool VerifySignature(absl::string_view secret_bytes, absl::string_view id,
                     absl::string_view timestamp, absl::string_view body, absl::string_view header);

}  // namespace postrider::loadtest
