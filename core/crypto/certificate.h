#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace postrider {

// What people hand in as PEM (RFC 7468), looked at before it is kept. Every fault is
// kInvalidArgument with a sentence for the person, and repeats nothing of the text. Threads: any.

inline constexpr size_t kPemBytesMax = 65'536;

// One or more certificates and nothing else: above all no private key, which would be kept in the
// clear. Whether they are still good is asked when a connection is made, not here.
absl::Status CheckCertificates(absl::string_view pem);

// Exactly one private key, not encrypted, that belongs to the first certificate of
// `certificate_pem`.
absl::Status CheckKeyOfCertificate(absl::string_view certificate_pem, absl::string_view key_pem);

}  // namespace postrider
