#include "core/crypto/constant_time.h"

#include <openssl/crypto.h>

namespace postrider {

bool ConstantTimeEqual(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace postrider
