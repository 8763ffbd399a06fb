#include "core/crypto/sealed_box.h"

#include <openssl/evp.h>

#include <climits>
#include <memory>

#include "absl/status/status.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/crypto/random.h"

namespace postrider {
namespace {

constexpr int kNonceBytes = 12;
constexpr int kTagBytes = 16;

struct CipherDeleter {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, CipherDeleter>;

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* Bytes(char* text) { return reinterpret_cast<unsigned char*>(text); }

// Counted parts: no two contexts have the same rendering.
std::string AuthenticatedBytes(absl::string_view header, const SealContext& context) {
  ByteWriter writer;
  writer.String("postrider seal");
  writer.String(header);
  writer.String(context.table);
  writer.String(context.column);
  writer.String(context.row);
  writer.String(context.customer);
  return writer.Take();
}

}  // namespace

std::string SealBox(const SealKey& key, absl::string_view header, absl::string_view plain,
                    const SealContext& context) {
  POSTRIDER_CHECK(plain.size() < INT_MAX / 2);
  std::string box(kNonceBytes + plain.size() + kTagBytes, '\0');
  FillRandom(box.data(), kNonceBytes);
  const std::string aad = AuthenticatedBytes(header, context);
  CipherContext cipher(EVP_CIPHER_CTX_new());
  int size = 0;
  POSTRIDER_CHECK(cipher != nullptr);
  POSTRIDER_CHECK(EVP_EncryptInit_ex2(cipher.get(), EVP_aes_256_gcm(), key.data(),
                                      Bytes(box.data()), nullptr));
  POSTRIDER_CHECK(EVP_EncryptUpdate(cipher.get(), nullptr, &size, Bytes(aad),
                                    static_cast<int>(aad.size())));
  POSTRIDER_CHECK(EVP_EncryptUpdate(cipher.get(), Bytes(box.data() + kNonceBytes), &size,
                                    Bytes(plain), static_cast<int>(plain.size())));
  POSTRIDER_CHECK(static_cast<size_t>(size) == plain.size());
  POSTRIDER_CHECK(
      EVP_EncryptFinal_ex(cipher.get(), Bytes(box.data() + kNonceBytes + size), &size));
  POSTRIDER_CHECK(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes,
                                      box.data() + kNonceBytes + plain.size()));
  return box;
}

absl::StatusOr<std::string> OpenBox(const SealKey& key, absl::string_view header,
                                    absl::string_view box, const SealContext& context) {
  const absl::Status refused = absl::DataLossError("seal: the sealed value cannot be opened");
  if (box.size() < kNonceBytes + kTagBytes || box.size() > INT_MAX / 2) return refused;
  const size_t plain_bytes = box.size() - kNonceBytes - kTagBytes;
  std::string tag(box.substr(kNonceBytes + plain_bytes));
  std::string plain(plain_bytes, '\0');
  const std::string aad = AuthenticatedBytes(header, context);
  CipherContext cipher(EVP_CIPHER_CTX_new());
  int size = 0;
  POSTRIDER_CHECK(cipher != nullptr);
  POSTRIDER_CHECK(
      EVP_DecryptInit_ex2(cipher.get(), EVP_aes_256_gcm(), key.data(), Bytes(box), nullptr));
  POSTRIDER_CHECK(EVP_DecryptUpdate(cipher.get(), nullptr, &size, Bytes(aad),
                                    static_cast<int>(aad.size())));
  POSTRIDER_CHECK(EVP_DecryptUpdate(cipher.get(), Bytes(plain.data()), &size,
                                    Bytes(box.substr(kNonceBytes)),
                                    static_cast<int>(plain_bytes)));
  POSTRIDER_CHECK(
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()));
  if (EVP_DecryptFinal_ex(cipher.get(), Bytes(plain.data()) + plain_bytes, &size) != 1) {
    return refused;
  }
  return plain;
}

}  // namespace postrider
