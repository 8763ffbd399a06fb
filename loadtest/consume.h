#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace postrider::loadtest {

struct ConsumeOptions {
  std::string brokers;
  std::string properties;
  std::string topic;
  // So many records at most; 0: all that are there.
  uint64_t records_max = 0;
  int timeout_s = 60;
  bool headers = false;
};

// Prints the value of each record that a topic holds when it begins, a line each, partition by
// partition; with `headers` each header as `name=value` before it, and a tab behind each (values
// are C-escaped, the record's in base64). Fails when the topic is missing or the end is not reached
// in time. Joins no group.
absl::Status Consume(const ConsumeOptions& options);

}  // namespace postrider::loadtest
