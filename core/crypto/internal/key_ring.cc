#include "core/crypto/key_ring.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/crypto/internal/key_file_text.h"
#include "core/crypto/random.h"

namespace postrider {
namespace {

constexpr uint8_t kVersion = 1;
constexpr size_t kKeysMax = 64;
constexpr size_t kKeyIdBytesMax = 32;

bool IsKeyId(absl::string_view id) {
  return !id.empty() && id.size() <= kKeyIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                  absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '_' || c == '-';
         });
}

std::string Header(absl::string_view key_id) {
  ByteWriter writer;
  writer.U8(kVersion);
  writer.String(key_id);
  return writer.Take();
}

}  // namespace

KeyRing::KeyRing(Keys keys) : now_(nullptr) {
  all_.push_back(std::make_unique<Keys>(std::move(keys)));
  now_.store(all_.back().get(), std::memory_order_release);
}

KeyRing::KeyRing(KeyRing&& other) noexcept
    : all_(std::move(other.all_)), now_(other.now_.exchange(nullptr)) {}

KeyRing::~KeyRing() {
  for (const auto& keys : all_) {
    for (auto& [id, key] : *keys) OPENSSL_cleanse(key.data(), key.size());
  }
}

bool KeyRing::Replace(KeyRing fresh) {
  if (fresh.keys() == keys()) return false;
  all_.push_back(std::move(fresh.all_.back()));
  fresh.all_.pop_back();
  now_.store(all_.back().get(), std::memory_order_release);
  return true;
}

absl::StatusOr<KeyRing> KeyRing::Load(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, internal::ReadKeyFile(path));
  absl::StatusOr<KeyRing> ring = Parse(text);
  internal::WipeText(text);
  if (ring.ok()) return ring;
  return absl::Status(ring.status().code(),
                      absl::StrCat("secrets.key_file ", path, ": ", ring.status().message()));
}

absl::StatusOr<KeyRing> KeyRing::Parse(absl::string_view text) {
  std::vector<std::pair<std::string, SealKey>> keys;
  keys.reserve(kKeysMax);
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    const auto fault = [number](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", what));
    };
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) return fault("want keyid:base64 of 32 bytes");
    const absl::string_view id = line.substr(0, colon);
    if (!IsKeyId(id)) return fault("a key id is 1 to 32 of a-z, 0-9, _ and -");
    for (const auto& [other, key] : keys) {
      if (other == id) return fault("this key id stands there twice");
    }
    if (keys.size() == kKeysMax) return fault("more than 64 keys");
    std::string bytes;
    const bool decoded = absl::Base64Unescape(line.substr(colon + 1), &bytes);
    SealKey key{};
    if (!decoded || bytes.size() != key.size()) {
      internal::WipeText(bytes);
      return fault("the key is not base64 of 32 bytes");
    }
    std::memcpy(key.data(), bytes.data(), key.size());
    internal::WipeText(bytes);
    keys.emplace_back(std::string(id), key);
    OPENSSL_cleanse(key.data(), key.size());
  }
  if (keys.empty()) return absl::InvalidArgumentError("there is no key in it");
  return KeyRing(std::move(keys));
}

std::string KeyRing::NewKeyLine(absl::string_view key_id) {
  POSTRIDER_CHECK(IsKeyId(key_id));
  std::string bytes(sizeof(SealKey), '\0');
  FillRandom(bytes.data(), bytes.size());
  std::string line = absl::StrCat(key_id, ":", absl::Base64Escape(bytes), "\n");
  internal::WipeText(bytes);
  return line;
}

std::string KeyRing::Seal(absl::string_view plain, const SealContext& context) const {
  const auto& [id, key] = keys().front();
  std::string sealed = Header(id);
  sealed += SealBox(key, sealed, plain, context);
  return sealed;
}

bool KeyRing::IsCurrent(absl::string_view sealed) const {
  return absl::StartsWith(sealed, Header(active_key_id()));
}

absl::StatusOr<std::string> KeyRing::Open(absl::string_view sealed,
                                          const SealContext& context) const {
  ByteReader reader(sealed);
  const uint8_t version = reader.U8();
  const absl::string_view id = reader.String();
  if (!reader.ok() || version != kVersion || !IsKeyId(id)) {
    return absl::DataLossError("seal: the sealed value cannot be opened");
  }
  for (const auto& [key_id, key] : keys()) {
    if (key_id == id) {
      return OpenBox(key, sealed.substr(0, sealed.size() - reader.rest().size()), reader.rest(),
                     context);
    }
  }
  return absl::NotFoundError(
      absl::StrCat("seal: the master key ", id, " is not in secrets.key_file"));
}

}  // namespace postrider
