#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"

namespace postrider::delivery {

// One message as it is about to be sent. The texts belong to the caller.
struct MessageView {
  absl::string_view message_id;  // "msg_..."
  absl::string_view event_id;
  absl::string_view type;
  absl::string_view tenant;
  absl::optional<absl::string_view> department;
  WallTime time;           // of the event
  uint32_t hops = 0;       // subscriptions::kHopsHeader, as it came
  absl::string_view data;  // exactly one JSON value, proven by the matcher
};

}  // namespace postrider::delivery
