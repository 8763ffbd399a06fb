#pragma once

#include <string>

#include "core/stream/log.h"

namespace postrider {

// Whether a member with these options takes part in the topic: for logs that assign by themselves.
bool Subscribes(const GroupOptions& options, const std::string& topic);

}  // namespace postrider
