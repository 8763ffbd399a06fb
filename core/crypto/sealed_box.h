#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider {

// Where a sealed value stands. A value opens only in the place that it was sealed for, so nobody
// can move a secret of one customer into a row of another one.
struct SealContext {
  absl::string_view table;
  absl::string_view column;
  absl::string_view row;       // the row's id, as text or bytes
  absl::string_view customer;  // the owner's id; empty when the value belongs to nobody
};

using SealKey = std::array<uint8_t, 32>;

// AES-256-GCM: a random nonce of 12 bytes, the ciphertext, a tag of 16 bytes. `header` stands
// before the box in the clear and is authenticated with the context. A key seals at most 2^32
// values. Threads: any.
std::string SealBox(const SealKey& key, absl::string_view header, absl::string_view plain,
                    const SealContext& context);
// DataLoss when the key, the header, the context or the bytes are not those of the sealing; the
// message says no more than that.
absl::StatusOr<std::string> OpenBox(const SealKey& key, absl::string_view header,
                                    absl::string_view box, const SealContext& context);

}  // namespace postrider
