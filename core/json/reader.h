#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider {

// Reading events: proving that bytes are one JSON value, and taking a few scalars out of it. The
// bytes themselves are never changed or written anew.

inline constexpr size_t kJsonDepthMax = 1'024;

enum class JsonProof {
  kProven,
  kNotUtf8,
  kNotJson,  // malformed, empty, a byte order mark, or anything after the value
  kTooDeep,  // arrays and objects more than kJsonDepthMax deep
};

bool IsUtf8(absl::string_view text);

// Whether `text` is exactly one valid UTF-8 JSON value by the grammar of RFC 8259, scalars too,
// with white space around it. The grammar alone rules: repeated names, \u0000, escapes of lone
// surrogates and numbers of any size (1e999, 40 digits) are proven, for nothing here interprets
// them. Neither recursion nor allocation. `fault_offset`, when given, is set to the byte at which a
// proof failed.
JsonProof ProveJson(absl::string_view text, size_t* fault_offset = nullptr);
// The same as a status: InvalidArgument with what is wrong and where.
absl::Status ProveOneJsonValue(absl::string_view text);

// The same answers faster for texts that simdjson takes too (nearly all). Keeps its buffers.
//
// Threads: owned by one. Bounds: memory for the longest text seen, about 14 times its bytes.
class JsonProver {
 public:
  JsonProver();
  ~JsonProver();
  JsonProver(const JsonProver&) = delete;
  JsonProver& operator=(const JsonProver&) = delete;

  JsonProof Prove(absl::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A JSON pointer (RFC 6901): "" is the whole, "/a/b~1c/0" goes down.
class JsonPointer {
 public:
  static absl::StatusOr<JsonPointer> Parse(absl::string_view text);
  const std::vector<std::string>& steps() const { return steps_; }

 private:
  std::vector<std::string> steps_;
};

enum class JsonKind { kAbsent, kNull, kBool, kNumber, kString, kArray, kObject };

struct JsonScalar {
  JsonKind kind = JsonKind::kAbsent;
  // A string without its quotes and escapes, a number or boolean as it is written; else empty. A
  // view into the text or into the reader.
  absl::string_view text;
  // The string holds the escape of a lone surrogate, which no UTF-8 can say; `text` has U+FFFD in
  // its place.
  bool has_lone_surrogate = false;
};

// Takes values out of a proven text by pointers. Of a name that stands twice in an object the first
// counts. Nothing is allocated once its buffers have grown.
//
// Threads: owned by one.
class PointerReader {
 public:
  // `proven` must have been proven and stay as it is. Views of earlier answers end here.
  void Reset(absl::string_view proven);
  JsonScalar Find(const JsonPointer& pointer);

 private:
  absl::string_view text_;
  std::vector<std::unique_ptr<std::string>> unescaped_;
  size_t unescaped_used_ = 0;
  std::string name_;
};

}  // namespace postrider
