#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/id.h"

namespace postrider {

// Something that a function has begun in the outside world and that ends by itself: an HTTP
// request. It outlives the function's ownership of its partition, so it is named in the log: by the
// in-flight record that an owner leaves behind, and by the `result` record that tells what came of
// it.
struct Operation {
  std::string key;
  IdBytes id{};                  // of what was sent; the same in each repeat
  std::vector<int64_t> offsets;  // the records that it carries, ascending
  WallTime deadline;             // no result is appended later
  friend bool operator==(const Operation&, const Operation&) = default;
};

// `outcome` is the function's own, at most kOutcomeBytesMax.
struct OperationResult {
  std::string key;
  IdBytes id{};
  std::vector<int64_t> offsets;
  std::string outcome;
  friend bool operator==(const OperationResult&, const OperationResult&) = default;
};

inline constexpr size_t kOutcomeBytesMax = 4'096;
// Operations that an in-flight record names at most: what is beyond is repeated.
inline constexpr size_t kOperationsMax = 10'000;

// A version byte, the fields, a checksum. Errors of decoding: kUnimplemented (a newer version wrote
// it), kDataLoss (it was never written).
std::string EncodeOperations(const std::vector<Operation>& operations);
absl::StatusOr<std::vector<Operation>> DecodeOperations(absl::string_view encoded);
std::string EncodeOperationResult(const OperationResult& result);
absl::StatusOr<OperationResult> DecodeOperationResult(absl::string_view encoded);

// The header that marks a record of a task's own topic as a result; its value is the format's name.
inline constexpr absl::string_view kResultHeader = "postrider-result";

}  // namespace postrider
