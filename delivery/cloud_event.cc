#include "delivery/cloud_event.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/json/time_text.h"
#include "core/json/writer.h"
#include "delivery/json_text_bytes.h"

namespace postrider::delivery {
namespace {

constexpr absl::string_view kSourcePrefix = "/tenants/";

// So much of it is neither text of the event nor its data.
constexpr size_t kFrameBytes =
    sizeof(R"({"specversion":"1.0","id":"","source":"/tenants/","type":"",)"
           R"("time":"2030-01-02T03:04:05.678Z","datacontenttype":"application/json",)"
           R"("eventid":"","tenant":"","department":"","data":})") -
    1;

std::string Source(const MessageView& message) {
  return absl::StrCat(kSourcePrefix, PercentEncode(message.tenant));
}

std::string HeaderText(absl::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7f && c != '"' && c != '%') {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
  }
  return out;
}

void AppendExtension(absl::string_view key, absl::string_view text, std::string* out) {
  if (text.empty()) return;
  out->append(key.data(), key.size());
  AppendJsonString(text, out);
}

}  // namespace

void AppendCloudEvent(const MessageView& message, std::string* out) {
  out->append("{\"specversion\":\"1.0\",\"id\":");
  AppendJsonString(message.message_id, out);
  out->append(",\"source\":");
  AppendJsonString(Source(message), out);
  out->append(",\"type\":");
  AppendJsonString(message.type, out);
  out->append(",\"time\":\"");
  AppendRfc3339(message.time, out);
  out->append("\",\"datacontenttype\":\"application/json\"");
  AppendExtension(",\"eventid\":", message.event_id, out);
  AppendExtension(",\"tenant\":", message.tenant, out);
  AppendExtension(",\"department\":", message.department.value_or(absl::string_view()), out);
  out->append(",\"data\":");
  out->append(message.data.data(), message.data.size());
  out->push_back('}');
}

size_t CloudEventBytesMax(const MessageView& message) {
  size_t bytes = kFrameBytes + message.data.size() + 3 * message.tenant.size();
  for (const absl::string_view text :
       {message.message_id, message.event_id, message.type, message.tenant,
        message.department.value_or(absl::string_view())}) {
    bytes += JsonTextBytesMax(text);
  }
  return bytes;
}

HttpHeaders CloudEventHeaders(const MessageView& message) {
  HttpHeaders headers;
  headers.reserve(8);
  const auto add = [&headers](const char* name, absl::string_view text) {
    if (!text.empty()) headers.emplace_back(name, HeaderText(text));
  };
  add("ce-specversion", "1.0");
  add("ce-id", message.message_id);
  add("ce-source", Source(message));
  add("ce-type", message.type);
  add("ce-time", FormatRfc3339(message.time));
  add("ce-eventid", message.event_id);
  add("ce-tenant", message.tenant);
  add("ce-department", message.department.value_or(absl::string_view()));
  return headers;
}

}  // namespace postrider::delivery
