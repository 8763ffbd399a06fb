#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/clock.h"

namespace postrider {

struct TopicPartition {
  std::string topic;
  int32_t partition = 0;

  friend bool operator==(const TopicPartition&, const TopicPartition&) = default;
  friend auto operator<=>(const TopicPartition&, const TopicPartition&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const TopicPartition& tp) {
    return H::combine(std::move(h), tp.topic, tp.partition);
  }
  std::string ToString() const { return topic + "/" + std::to_string(partition); }
};

struct RecordHeader {
  absl::string_view name;
  absl::string_view value;
};

// One record as the log gives it. All views are valid during the call that passes it only.
struct LogRecord {
  absl::string_view topic;
  int32_t partition = 0;
  int64_t offset = 0;
  WallTime timestamp;
  absl::string_view key;
  absl::string_view value;  // a null view (data() == nullptr): the record has no value, a tombstone
  absl::Span<const RecordHeader> headers;

  // The value of the first header of that name (exact case); a null view when there is none.
  absl::string_view Header(absl::string_view name) const {
    for (const RecordHeader& header : headers) {
      if (header.name == name) return header.value;
    }
    return absl::string_view();
  }
  size_t bytes() const { return key.size() + value.size(); }
};

// One record to append. `partition` is explicit: the log never chooses one.
struct AppendRecord {
  std::string topic;
  int32_t partition = 0;
  std::string key;
  std::string value;
  std::vector<std::pair<std::string, std::string>> headers;
  // Has no value (`value` is empty): compaction drops what stood under its key, and later itself.
  bool tombstone = false;
  // Nobody waits for it to be in the log: where appends are gathered it waits for more company.
  bool patient = false;
};

}  // namespace postrider
