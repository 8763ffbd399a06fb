#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/crypto/sealed_box.h"

namespace postrider {

// The master keys: the first one seals, all of them open. Sealed bytes are
//   version (1) | length of the key id | key id | nonce (12) | ciphertext | tag (16)
//
// Threads: any, once made; one at a time calls Replace(). Its errors never hold plaintext or key
// bytes.
// Bounds:  the keys of each Replace() stay in memory, at most 4 KB, until it goes.
class KeyRing {
 public:
  // Reads `secrets.key_file`: lines `keyid:base64 of 32 bytes`; empty lines and lines that begin
  // with # are skipped. A key id is 1..32 of [a-z0-9_-]. At most 64 keys. FailedPrecondition when
  // people other than its owner may read the file.
  static absl::StatusOr<KeyRing> Load(const std::string& path);
  // The same from the file's text.
  static absl::StatusOr<KeyRing> Parse(absl::string_view text);
  // One line for a new file, with a key made now.
  static std::string NewKeyLine(absl::string_view key_id);

  // While nobody uses it.
  KeyRing(KeyRing&& other) noexcept;
  KeyRing& operator=(KeyRing&&) = delete;
  KeyRing(const KeyRing&) = delete;
  KeyRing& operator=(const KeyRing&) = delete;
  ~KeyRing();

  std::string Seal(absl::string_view plain, const SealContext& context) const;
  // NotFound: sealed with a key that is not here (it names the key's id). DataLoss: damaged, or
  // sealed for another place.
  absl::StatusOr<std::string> Open(absl::string_view sealed, const SealContext& context) const;

  // Whether it was sealed with the key that seals now.
  bool IsCurrent(absl::string_view sealed) const;

  // From now on these are the keys. False: they are the same, in the same order.
  bool Replace(KeyRing fresh);

  // As long as the ring, also when another one has taken its place.
  const std::string& active_key_id() const { return keys().front().first; }

 private:
  using Keys = std::vector<std::pair<std::string, SealKey>>;

  explicit KeyRing(Keys keys);
  const Keys& keys() const { return *now_.load(std::memory_order_acquire); }

  std::vector<std::unique_ptr<Keys>> all_;  // whoever uses former ones may be about to yet
  std::atomic<const Keys*> now_;
};

}  // namespace postrider
