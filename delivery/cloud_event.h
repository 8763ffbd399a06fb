#pragma once

#include <cstddef>
#include <string>

#include "core/http/header_rules.h"
#include "delivery/message.h"

namespace postrider::delivery {

// A message as a CloudEvent 1.0 (https://github.com/cloudevents/spec): `id` is the message id,
// which is the same over all attempts; `source` is /tenants/<tenant>, percent-encoded; `type` and
// `time` are the event's; `datacontenttype` is application/json. Extensions: `eventid`, `tenant`
// and, if it has one, `department`. An extension without text is left out.

// In the JSON format (structured mode, and what a batch is made of).
void AppendCloudEvent(const MessageView& message, std::string* out);
size_t CloudEventBytesMax(const MessageView& message);

// In the binary mode of the HTTP protocol binding: a `ce-` line for each attribute but
// datacontenttype, which is the content-type. Percent-encoded as section 3.1.3.2 says: the space,
// '"', '%' and all that is not printable ASCII.
HttpHeaders CloudEventHeaders(const MessageView& message);

}  // namespace postrider::delivery
