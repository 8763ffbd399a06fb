#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "core/base/id.h"
#include "core/http/http_sink.h"
#include "delivery/outcome.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {

// What an endpoint with `partial_ack` answers to a batch, with any 2xx:
//
//   {"failed": ["msg_...", 3]}
//
// message ids, or places in the batch as it was sent, from 0; both may be mixed, other members are
// ignored. An empty list: none has failed. Anything else, and more than kPartialAckBytesMax, cannot
// be read: then the status counts alone, but a 207 is a failure of the whole (outcome.h).
inline constexpr size_t kPartialAckBytesMax = 256 * 1024;

struct PartialAck {
  AckReading reading = AckReading::kUnreadable;
  std::vector<size_t> failed;  // their places, ascending, each once
  size_t foreign = 0;          // of the list, what names no message of this batch: ignored
};

// `cut`: not all of the body came. `message_ids`: those of the batch in its order.
PartialAck ReadPartialAck(absl::string_view body, bool cut,
                          const std::vector<IdBytes>& message_ids);

// What a result comes to, for the batch and for its messages.
struct Answer {
  Outcome outcome;
  std::vector<size_t> failed;  // with Verdict::kDone only, as above; then the rest is done
  size_t foreign = 0;
};
// `message_ids`: none without partial_ack. `context.ack` is set here.
Answer ReadAnswer(const HttpResult& result, OutcomeContext context,
                  const std::vector<IdBytes>& message_ids);

// Which of a batch's messages are not acknowledged, ascending. Without order, those that `failed`;
// with an order only the part before the first failed one (of its key) counts as acknowledged:
// what came after it may not be done before it. `key_of` tells keys apart, and is asked with
// OrderKind::kKey only.
std::vector<size_t> Unacknowledged(const std::vector<size_t>& failed, size_t batch_size,
                                   subscriptions::OrderKind order,
                                   absl::FunctionRef<uint64_t(size_t)> key_of);

}  // namespace postrider::delivery
