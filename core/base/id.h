#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider {

// 128 bits that name something. In Postgres a `uuid`; outside, a prefix and 26 characters of
// Crockford's base32 (lower case), so that a person sees what kind of thing it names.
using IdBytes = std::array<uint8_t, 16>;

std::string EncodeBase32(absl::string_view bytes);
// Accepts either letter case; no value for another length or a foreign character.
absl::optional<IdBytes> DecodeBase32Id(absl::string_view text);
// The canonical form of a uuid: 8-4-4-4-12 hex digits.
std::string FormatUuid(const IdBytes& bytes);
absl::optional<IdBytes> ParseUuid(absl::string_view text);

// An id of one kind of thing; Tag has `static constexpr absl::string_view kPrefix`, as "ep_".
// Ordered by bytes. New ids begin with 48 bits of time in ms: see NewId() in core/crypto/random.h.
template <typename Tag>
class Id {
 public:
  constexpr Id() : bytes_{} {}
  explicit constexpr Id(const IdBytes& bytes) : bytes_(bytes) {}

  static absl::optional<Id> Parse(absl::string_view text) {
    if (text.substr(0, Tag::kPrefix.size()) != Tag::kPrefix) return absl::nullopt;
    absl::optional<IdBytes> bytes = DecodeBase32Id(text.substr(Tag::kPrefix.size()));
    if (!bytes) return absl::nullopt;
    return Id(*bytes);
  }
  static absl::optional<Id> FromUuid(absl::string_view text) {
    absl::optional<IdBytes> bytes = ParseUuid(text);
    if (!bytes) return absl::nullopt;
    return Id(*bytes);
  }
  std::string ToString() const {
    return std::string(Tag::kPrefix) +
           EncodeBase32(absl::string_view(reinterpret_cast<const char*>(bytes_.data()), 16));
  }
  std::string ToUuid() const { return FormatUuid(bytes_); }

  const IdBytes& bytes() const { return bytes_; }
  absl::string_view view() const {
    return absl::string_view(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  }
  bool is_nil() const { return bytes_ == IdBytes{}; }

  friend bool operator==(const Id&, const Id&) = default;
  friend auto operator<=>(const Id&, const Id&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine_contiguous(std::move(h), id.bytes_.data(), id.bytes_.size());
  }

 private:
  IdBytes bytes_;
};

}  // namespace postrider
