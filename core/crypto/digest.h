#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace postrider {

using Sha256Digest = std::array<uint8_t, 32>;

// Of the parts one after the other, as if they were one text: where the parts must stay apart, the
// caller gives lengths or separators. Threads: any.
Sha256Digest Sha256(absl::string_view bytes);
Sha256Digest Sha256(std::initializer_list<absl::string_view> parts);

// SHA-256 of a text that comes in pieces. Threads: owned by one.
class Sha256Hasher {
 public:
  Sha256Hasher();
  ~Sha256Hasher();
  Sha256Hasher(Sha256Hasher&&) noexcept;
  Sha256Hasher& operator=(Sha256Hasher&&) noexcept;

  void Add(absl::string_view bytes);
  // The digest of all that was added; the hasher starts anew.
  Sha256Digest Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

inline absl::string_view DigestView(const Sha256Digest& digest) {
  return absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size());
}
// Lower case.
std::string HexDigest(const Sha256Digest& digest);

}  // namespace postrider
