#pragma once

#include <librdkafka/rdkafka.h>

#include <vector>

#include "core/stream/record.h"

namespace postrider::kafka_internal {

// What a message without an error says. It views `message` and `headers`, which is overwritten.
LogRecord ToLogRecord(const rd_kafka_message_t& message, std::vector<RecordHeader>* headers);

// Whether it has neither key, value nor header: FreezeTopic() writes such.
bool SaysNothing(const LogRecord& record);

}  // namespace postrider::kafka_internal
