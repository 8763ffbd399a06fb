#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider {

// A publisher's key, if no file has it; no option, for it is not shown by anything.
inline constexpr absl::string_view kApiKeyVariable = "POSTRIDER_API_KEY";

// `postrider publish`: what main.cc has read of the command line, and the options that it needs.
struct PublishCommand {
  std::string file;  // empty or "-": standard input
  std::string topic;
  std::string url;
  std::string key_file;
  std::string give_up_after;
  int in_flight = 1;
  bool fail_fast = false;

  std::string topic_prefix;
  std::string listen;
  std::string ca_file;
};

// Publishes, tells of each line that is refused and at the end how many were accepted. False: not
// every line was. Blocks.
absl::StatusOr<bool> RunPublishCommand(const PublishCommand& command);

}  // namespace postrider
