#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider::internal {

// The text of `secrets.key_file`; errors as KeyRing::Load(). It holds keys: to be wiped.
absl::StatusOr<std::string> ReadKeyFile(const std::string& path);
void WipeText(std::string& text);
// The key id of one of its lines; empty: a comment or no key.
absl::string_view KeyIdOfLine(absl::string_view line);

}  // namespace postrider::internal
