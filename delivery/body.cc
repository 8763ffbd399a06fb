#include "delivery/body.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/id.h"
#include "core/crypto/digest.h"
#include "core/json/time_text.h"
#include "core/json/writer.h"
#include "delivery/cloud_event.h"
#include "delivery/json_text_bytes.h"

namespace postrider::delivery {
namespace {

using subscriptions::BodyFormat;

// So much of an envelope is neither text of the event nor its data.
constexpr size_t kEnvelopeFrameBytes =
    sizeof(R"({"id":"","event_id":"","type":"","timestamp":"2030-01-02T03:04:05.678Z",)"
           R"("tenant":"","department":null,"data":})") -
    1;

constexpr absl::string_view kJson = "application/json";
constexpr absl::string_view kNdjson = "application/x-ndjson";
constexpr absl::string_view kCloudEvent = "application/cloudevents+json";
constexpr absl::string_view kCloudEventBatch = "application/cloudevents-batch+json";

// An envelope in one line. In JSON a newline can only stand between tokens: none is raw in a
// string. So each is as good as a space.
void AppendLine(const MessageView& message, std::string* out) {
  const size_t begin = out->size();
  AppendEnvelope(message, out);
  for (const char newline : {'\n', '\r'}) {
    for (size_t at = out->find(newline, begin); at != std::string::npos;
         at = out->find(newline, at + 1)) {
      (*out)[at] = ' ';
    }
  }
  out->push_back('\n');
}

// Of its part of a body in any format, if its texts need no escapes: in one pass less than a bound.
size_t BodyBytesLikely(const MessageView& message) {
  constexpr size_t kFrameBytes = 192;
  return kFrameBytes + message.data.size() + message.message_id.size() + message.event_id.size() +
         message.type.size() + message.tenant.size();
}

template <typename AppendOne>
void AppendArray(absl::Span<const MessageView> messages, AppendOne append_one, std::string* out) {
  out->push_back('[');
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i > 0) out->push_back(',');
    append_one(messages[i], out);
  }
  out->push_back(']');
}

}  // namespace

void AppendEnvelope(const MessageView& message, std::string* out) {
  out->append("{\"id\":");
  AppendJsonString(message.message_id, out);
  out->append(",\"event_id\":");
  AppendJsonString(message.event_id, out);
  out->append(",\"type\":");
  AppendJsonString(message.type, out);
  out->append(",\"timestamp\":\"");
  AppendRfc3339(message.time, out);
  out->append("\",\"tenant\":");
  AppendJsonString(message.tenant, out);
  out->append(",\"department\":");
  if (message.department) {
    AppendJsonString(*message.department, out);
  } else {
    out->append("null");
  }
  out->append(",\"data\":");
  out->append(message.data.data(), message.data.size());
  out->push_back('}');
}

size_t EnvelopeBytesMax(const MessageView& message) {
  size_t bytes = kEnvelopeFrameBytes + message.data.size();
  for (const absl::string_view text :
       {message.message_id, message.event_id, message.type, message.tenant,
        message.department.value_or(absl::string_view())}) {
    bytes += JsonTextBytesMax(text);
  }
  return bytes;
}

size_t BodyBytesMax(BodyFormat format, const MessageView& message) {
  // A comma for each message, and the brackets, which make the comma of the first one two.
  constexpr size_t kArrayBytes = 2;
  switch (format) {
    case BodyFormat::kRaw:
    case BodyFormat::kCloudEventsBinary:
      return message.data.size();
    case BodyFormat::kCloudEvents:
      return CloudEventBytesMax(message) + kArrayBytes;
    case BodyFormat::kNdjson:
      return EnvelopeBytesMax(message) + 1;
    case BodyFormat::kEnvelope:
      break;
  }
  return EnvelopeBytesMax(message) + kArrayBytes;
}

Body MakeBody(BodyFormat format, Composition composition, absl::Span<const MessageView> messages) {
  const bool alone = composition == Composition::kAlone;
  POSTRIDER_CHECK(alone ? messages.size() == 1 : !messages.empty());
  if (!alone && IsForStreamingOnly(format)) format = BodyFormat::kEnvelope;
  Body body;
  size_t bytes = 0;
  for (const MessageView& message : messages) bytes += BodyBytesLikely(message);
  body.bytes.reserve(bytes);
  switch (format) {
    case BodyFormat::kRaw:
    case BodyFormat::kCloudEventsBinary:
      body.content_type = kJson;
      body.bytes.append(messages.front().data.data(), messages.front().data.size());
      if (format == BodyFormat::kCloudEventsBinary) {
        body.headers = CloudEventHeaders(messages.front());
      }
      return body;
    case BodyFormat::kCloudEvents:
      body.content_type = alone ? kCloudEvent : kCloudEventBatch;
      if (alone) {
        AppendCloudEvent(messages.front(), &body.bytes);
      } else {
        AppendArray(messages, AppendCloudEvent, &body.bytes);
      }
      return body;
    case BodyFormat::kNdjson:
      body.content_type = kNdjson;
      for (const MessageView& message : messages) AppendLine(message, &body.bytes);
      return body;
    case BodyFormat::kEnvelope:
      break;
  }
  body.content_type = kJson;
  if (alone) {
    AppendEnvelope(messages.front(), &body.bytes);
  } else {
    AppendArray(messages, AppendEnvelope, &body.bytes);
  }
  return body;
}

std::string BatchId(absl::Span<const MessageView> messages) {
  std::string ids;
  for (const MessageView& message : messages) absl::StrAppend(&ids, message.message_id, "\n");
  const Sha256Digest digest = Sha256(ids);
  return absl::StrCat("bat_", EncodeBase32(DigestView(digest).substr(0, 16)));
}

}  // namespace postrider::delivery
