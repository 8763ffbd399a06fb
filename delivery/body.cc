#include "delivery/body.h"

#include <chrono>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "core/base/id.h"
#include "core/crypto/digest.h"
#include "core/json/time_text.h"
#include "core/json/writer.h"

namespace postrider::delivery {
namespace {

// So much of an envelope is neither text of the event nor its data.
constexpr size_t kEnvelopeFrameBytes =
    sizeof(R"({"id":"","event_id":"","type":"","timestamp":"2030-01-02T03:04:05.678Z",)"
           R"("tenant":"","department":null,"data":})");

size_t TextBytes(const MessageView& message) {
  return message.message_id.size() + message.event_id.size() + message.type.size() +
         message.tenant.size() + (message.department ? message.department->size() : 0);
}
// What a text takes in JSON: itself where it is plain ASCII, else no more than six bytes for one.
size_t JsonTextBytesMax(absl::string_view text) {
  size_t bytes = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
    bytes += plain ? 1 : 6;
  }
  return bytes;
}
size_t LikelyBytes(const MessageView& message) {
  return kEnvelopeFrameBytes + TextBytes(message) + message.data.size();
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

std::string EnvelopeBody(const MessageView& message) {
  std::string body;
  body.reserve(LikelyBytes(message));
  AppendEnvelope(message, &body);
  return body;
}

std::string BatchBody(absl::Span<const MessageView> messages) {
  std::string body;
  size_t bytes = 2;
  for (const MessageView& message : messages) bytes += LikelyBytes(message);
  body.reserve(bytes);
  body.push_back('[');
  for (const MessageView& message : messages) {
    if (body.size() > 1) body.push_back(',');
    AppendEnvelope(message, &body);
  }
  body.push_back(']');
  return body;
}

std::string BatchId(absl::Span<const MessageView> messages) {
  Sha256Hasher hasher;
  for (const MessageView& message : messages) {
    hasher.Add(message.message_id);
    hasher.Add("\n");
  }
  const Sha256Digest digest = hasher.Finish();
  return absl::StrCat("bat_", EncodeBase32(DigestView(digest).substr(0, 16)));
}

}  // namespace postrider::delivery
