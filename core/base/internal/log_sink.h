#pragma once

#include "absl/strings/string_view.h"
#include "core/base/log.h"

namespace postrider::internal {

absl::string_view LogLevelName(LogLevel level);

// Writes one line to standard error behind `time=`; `line` has no line break. Threads: any.
void WriteLogLine(absl::string_view line);

}  // namespace postrider::internal
