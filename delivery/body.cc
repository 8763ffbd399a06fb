#include "delivery/body.h"

#include <chrono>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "core/base/id.h"
#include "core/crypto/digest.h"

namespace postrider::delivery {
namespace {

// The length of the UTF-8 character at the beginning of `text`, 0 when it is none (RFC 3629: no
// overlong forms, surrogates or values past U+10FFFF).
size_t Utf8Length(absl::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  size_t length = 0;
  unsigned char least = 0x80;
  unsigned char most = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) least = 0xa0;
    if (lead == 0xed) most = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) least = 0x90;
    if (lead == 0xf4) most = 0x8f;
  }
  if (length == 0 || text.size() < length || byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

void AppendDigits(uint32_t value, int digits, std::string* out) {
  char text[10];
  for (int i = digits - 1; i >= 0; --i) {
    text[i] = static_cast<char>('0' + value % 10);
    value /= 10;
  }
  out->append(text, static_cast<size_t>(digits));
}

void AppendRfc3339(WallTime time, std::string* out) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const auto millis = static_cast<uint32_t>((time - day).count());
  const int year = static_cast<int>(date.year());
  if (year < 0 || year > 9'999) {
    out->append(year < 0 ? "0000-01-01T00:00:00.000Z" : "9999-12-31T23:59:59.999Z");
    return;
  }
  AppendDigits(static_cast<uint32_t>(year), 4, out);
  out->push_back('-');
  AppendDigits(static_cast<unsigned>(date.month()), 2, out);
  out->push_back('-');
  AppendDigits(static_cast<unsigned>(date.day()), 2, out);
  out->push_back('T');
  AppendDigits(millis / 3'600'000, 2, out);
  out->push_back(':');
  AppendDigits(millis / 60'000 % 60, 2, out);
  out->push_back(':');
  AppendDigits(millis / 1'000 % 60, 2, out);
  out->push_back('.');
  AppendDigits(millis % 1'000, 3, out);
  out->push_back('Z');
}

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

void AppendJsonString(absl::string_view text, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  out->push_back('"');
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    size_t used = 1;
    if (byte == '"' || byte == '\\') {
      out->push_back('\\');
      out->push_back(text.front());
    } else if (byte < 0x20) {
      out->append("\\u00");
      out->push_back(kDigits[byte >> 4]);
      out->push_back(kDigits[byte & 15]);
    } else if (byte < 0x80) {
      out->push_back(text.front());
    } else if (const size_t length = Utf8Length(text); length > 0) {
      out->append(text.data(), length);
      used = length;
    } else {
      out->append("\xef\xbf\xbd");
    }
    text.remove_prefix(used);
  }
  out->push_back('"');
}

std::string FormatRfc3339(WallTime time) {
  std::string text;
  AppendRfc3339(time, &text);
  return text;
}

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
