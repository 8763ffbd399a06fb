#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "delivery/message.h"

namespace postrider::delivery {

// {"id","event_id","type","timestamp","tenant","department","data"}; data is the event's own bytes,
// untouched. Texts that are not UTF-8 get U+FFFD for each bad byte.
void AppendEnvelope(const MessageView& message, std::string* out);
std::string EnvelopeBody(const MessageView& message);
// A JSON array of envelopes, in order.
std::string BatchBody(absl::Span<const MessageView> messages);
// So many bytes AppendEnvelope may write at most: for bounds that must hold before it is written.
size_t EnvelopeBytesMax(const MessageView& message);

// "bat_" and 26 characters: 128 bits of SHA-256 of the message ids in order. The same messages in
// the same order have the same id.
std::string BatchId(absl::Span<const MessageView> messages);

}  // namespace postrider::delivery
