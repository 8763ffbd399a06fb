#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/http/http_sink.h"
#include "core/http/url.h"

namespace postrider::api {

struct PublishLinesOptions {
  HttpUrl url;  // of the service; its target is not looked at
  std::string key;
  std::string type;          // of lines that name none; empty: each must name its own
  size_t in_flight_max = 1;  // requests at once; more than one gives up the order of the lines
  size_t request_lines_max = 200;
  size_t request_bytes_max = 512 << 10;
  Duration retry_first = std::chrono::milliseconds(250);
  Duration retry_last = std::chrono::seconds(10);
  // From the last line that was settled; then it gives up.
  Duration give_up_after = std::chrono::minutes(5);
  enum class AtRefusal { kGoOn, kStop };
  AtRefusal at_refusal = AtRefusal::kGoOn;
};

struct PublishLinesReport {
  int64_t accepted = 0;
  int64_t refused = 0;
  // Every line up to this one is stored or refused.
  int64_t lines_settled = 0;
  // Why it stopped before the end of its input.
  absl::Status failure;
};

struct RefusedLine {
  int64_t line = 0;  // from 1 on
  std::string reason;
};

// Publishes events, one as JSON on each line of `fd`, by POST /v1/events of a running service. A
// line without an id is given one before it is sent, so that sending it again repeats nothing. 429,
// 503, and a service that is not reached are tried again, by its Retry-After or with growing
// delays; lines that are settled are not sent again. Empty lines count and are passed over.
//
// Blocks and turns the loop. `refused` is called for each line that is not taken, with the
// service's reasons, in the order in which they are known.
// Bounds:  in_flight_max requests of request_lines_max lines and about request_bytes_max, and as
//          much again that was read ahead; lines of 1 MB.
PublishLinesReport PublishLines(EventLoop& loop, HttpSink& sink, int fd,
                                const PublishLinesOptions& options,
                                absl::FunctionRef<void(const RefusedLine&)> refused);

}  // namespace postrider::api
