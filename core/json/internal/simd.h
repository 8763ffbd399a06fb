#pragma once

#include <memory>

#include "absl/strings/string_view.h"

namespace postrider::json_internal {

bool ValidUtf8(absl::string_view text);

// simdjson behind a wall. Threads: owned by one.
class SimdParser {
 public:
  SimdParser();
  ~SimdParser();

  // Whether simdjson parses the whole of it. Yes proves one JSON value; no proves nothing, for it
  // also refuses numbers past 64 bits and escapes of lone surrogates.
  bool Parses(absl::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider::json_internal
