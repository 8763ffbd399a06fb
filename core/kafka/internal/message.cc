#include "core/kafka/internal/message.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/clock.h"

namespace postrider::kafka_internal {

LogRecord ToLogRecord(const rd_kafka_message_t& message, std::vector<RecordHeader>* headers) {
  LogRecord record;
  record.topic = rd_kafka_topic_name(message.rkt);
  record.partition = message.partition;
  record.offset = message.offset;
  rd_kafka_timestamp_type_t kind = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
  record.timestamp =
      WallTimeFromMillis(std::max<int64_t>(rd_kafka_message_timestamp(&message, &kind), 0));
  record.key = absl::string_view(static_cast<const char*>(message.key), message.key_len);
  record.value = absl::string_view(static_cast<const char*>(message.payload), message.len);
  headers->clear();
  rd_kafka_headers_t* found = nullptr;
  if (rd_kafka_message_headers(&message, &found) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    const char* name = nullptr;
    const void* value = nullptr;
    size_t size = 0;
    for (size_t i = 0;
         rd_kafka_header_get_all(found, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
         ++i) {
      headers->push_back({name, absl::string_view(static_cast<const char*>(value), size)});
    }
  }
  record.headers = *headers;
  return record;
}

bool SaysNothing(const LogRecord& record) {
  return record.key.empty() && record.value.data() == nullptr && record.headers.empty();
}

}  // namespace postrider::kafka_internal
