#include "core/stream/group_topics.h"

#include <regex.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace postrider {
namespace {

// POSIX extended, on the whole name.
bool Matches(const std::string& pattern, const std::string& name) {
  regex_t compiled;
  if (regcomp(&compiled, pattern.c_str(), REG_EXTENDED) != 0) return false;
  regmatch_t match;
  const bool found = regexec(&compiled, name.c_str(), 1, &match, 0) == 0;
  regfree(&compiled);
  return found && match.rm_so == 0 && static_cast<size_t>(match.rm_eo) == name.size();
}

}  // namespace

bool Subscribes(const GroupOptions& options, const std::string& topic) {
  const std::vector<std::string>& exempt = options.exempt_topics;
  const bool excludable = std::find(exempt.begin(), exempt.end(), topic) == exempt.end();
  for (const std::string& prefix : options.excluded_prefixes) {
    if (excludable && absl::StartsWith(topic, prefix)) return false;
  }
  for (const std::string& wanted : options.topics) {
    if (wanted == topic) return true;
    if (absl::StartsWith(wanted, "^") && Matches(wanted, topic)) return true;
  }
  return false;
}

}  // namespace postrider
