#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/http/header_rules.h"
#include "delivery/message.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {

// Bodies of requests, by the endpoint's format. In all of them the event's own bytes stand as they
// came, never written anew, for they are proven to be one JSON value (MakeMessageContent());
// nothing in them can end the value that they stand in.

// A message by itself, or a list, which may hold one.
enum class Composition { kAlone, kList };

struct Body {
  std::string bytes;
  absl::string_view content_type;
  HttpHeaders headers;  // of the event: `ce-` lines, fit for the wire
};

// Whether the format has no list.
constexpr bool IsForStreamingOnly(subscriptions::BodyFormat format) {
  return format == subscriptions::BodyFormat::kRaw ||
         format == subscriptions::BodyFormat::kCloudEventsBinary;
}

//   format              alone                          list
//   envelope            an envelope                    a JSON array of them
//   raw                 the event's bytes              -
//   cloudevents         a structured event             a JSON array of them (batched mode)
//   cloudevents_binary  the event's bytes, ce-headers  -
//   ndjson              an envelope and a newline      one a line
//
// Where there is no list, a list is one of envelopes: such are batches that were composed before
// their endpoint's format was changed, and which keep their members. `messages`: at least one; one
// if it goes alone.
Body MakeBody(subscriptions::BodyFormat format, Composition composition,
              absl::Span<const MessageView> messages);

// So many bytes a message may take in a body of that format at most, alone or in a list, with what
// stands around it: for bounds that must hold before it is written.
size_t BodyBytesMax(subscriptions::BodyFormat format, const MessageView& message);
// So much the bound of a message may be more in one format than in any other that has a list.
inline constexpr size_t kBodyBytesBetweenFormats = 1'024;

// {"id","event_id","type","timestamp","tenant","department","data"}; data is the event's own bytes,
// untouched. Texts that are not UTF-8 get U+FFFD for each bad byte.
void AppendEnvelope(const MessageView& message, std::string* out);
size_t EnvelopeBytesMax(const MessageView& message);

// "bat_" and 26 characters: 128 bits of SHA-256 of the message ids in order. The same messages in
// the same order have the same id.
std::string BatchId(absl::Span<const MessageView> messages);

}  // namespace postrider::delivery
