#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace postrider {

// Appends the parts of a binary record: little-endian integers, LEB128 varints, counted strings.
class ByteWriter {
 public:
  ByteWriter() = default;
  // Of a record that will have about so many bytes: they are taken at once.
  explicit ByteWriter(size_t bytes) { out_.reserve(bytes); }

  void U8(uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void U32(uint32_t value) { Fixed(value); }
  void U64(uint64_t value) { Fixed(value); }
  void Varint(uint64_t value) {
    while (value >= 0x80) {
      U8(static_cast<uint8_t>(value | 0x80));
      value >>= 7;
    }
    U8(static_cast<uint8_t>(value));
  }
  void Zigzag(int64_t value) {
    Varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  void Raw(absl::string_view bytes) { out_.append(bytes.data(), bytes.size()); }
  void String(absl::string_view bytes) {
    Varint(bytes.size());
    Raw(bytes);
  }
  const std::string& bytes() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  template <typename T>
  void Fixed(T value) {
    char raw[sizeof(T)];
    for (size_t i = 0; i < sizeof(T); ++i) raw[i] = static_cast<char>(value >> (8 * i));
    out_.append(raw, sizeof(T));
  }
  std::string out_;
};

// Reads them back from untrusted bytes. After the first fault ok() is false and every read gives
// zero or an empty string; nothing is read past the end. Strings are views into the input.
class ByteReader {
 public:
  explicit ByteReader(absl::string_view bytes) : rest_(bytes) {}

  uint8_t U8() {
    if (!Need(1)) return 0;
    const auto value = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return value;
  }
  uint32_t U32() { return Fixed<uint32_t>(); }
  uint64_t U64() { return Fixed<uint64_t>(); }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = U8();
      if (!ok_) return 0;
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte >= 0x80) continue;
      if (byte == 0 && shift > 0) padded_ = true;
      return value;
    }
    ok_ = false;
    return 0;
  }
  int64_t Zigzag() {
    const uint64_t raw = Varint();
    return static_cast<int64_t>(raw >> 1) ^ -static_cast<int64_t>(raw & 1);
  }
  absl::string_view Raw(size_t size) {
    if (!Need(size)) return {};
    const absl::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  absl::string_view String() {
    const uint64_t size = Varint();
    if (size > rest_.size()) ok_ = false;
    return ok_ ? Raw(static_cast<size_t>(size)) : absl::string_view();
  }

  bool ok() const { return ok_; }
  // Everything was read, and without a fault.
  bool done() const { return ok_ && rest_.empty(); }
  // A varint was longer than ByteWriter would have made it.
  bool padded() const { return padded_; }
  absl::string_view rest() const { return rest_; }

 private:
  bool Need(size_t size) {
    if (!ok_ || rest_.size() < size) ok_ = false;
    return ok_;
  }
  template <typename T>
  T Fixed() {
    if (!Need(sizeof(T))) return 0;
    T value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      value |= static_cast<T>(static_cast<uint8_t>(rest_[i])) << (8 * i);
    }
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  absl::string_view rest_;
  bool ok_ = true;
  bool padded_ = false;
};

}  // namespace postrider
