#include "loadtest/envelope.h"

#include <simdjson.h>

#include <string>
#include <string_view>

namespace postrider::loadtest {
namespace {

namespace ondemand = simdjson::ondemand;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

bool ReadString(ondemand::value value, absl::string_view* out) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS) return false;
  *out = View(text);
  return true;
}

bool ReadData(ondemand::value value, absl::string_view* out) {
  ondemand::json_type type{};
  if (value.type().get(type) != simdjson::SUCCESS) return false;
  std::string_view raw;
  if (type == ondemand::json_type::object) {
    ondemand::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS) return false;
    if (object.raw_json().get(raw) != simdjson::SUCCESS) return false;
  } else if (type == ondemand::json_type::array) {
    ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) return false;
    if (array.raw_json().get(raw) != simdjson::SUCCESS) return false;
  } else {
    raw = value.raw_json_token();
  }
  *out = View(raw);
  return true;
}

// Bits of the members seen, in the order of the envelope.
enum Member : unsigned {
  kId = 1,
  kEventId = 2,
  kType = 4,
  kTimestamp = 8,
  kTenant = 16,
  kDepartment = 32,
  kData = 64,
  kAll = 127
};

bool ReadMessage(ondemand::object object, EnvelopeMessage* message) {
  unsigned seen = 0;
  for (auto member : object) {
    std::string_view name;
    if (member.unescaped_key().get(name) != simdjson::SUCCESS) return false;
    ondemand::value value;
    if (member.value().get(value) != simdjson::SUCCESS) return false;
    unsigned bit = 0;
    bool good = false;
    if (name == "id") {
      bit = kId;
      good = ReadString(value, &message->id);
    } else if (name == "event_id") {
      bit = kEventId;
      good = ReadString(value, &message->event_id);
    } else if (name == "type") {
      bit = kType;
      good = ReadString(value, &message->type);
    } else if (name == "timestamp") {
      bit = kTimestamp;
      good = ReadString(value, &message->timestamp);
    } else if (name == "tenant") {
      bit = kTenant;
      good = ReadString(value, &message->tenant);
    } else if (name == "department") {
      bit = kDepartment;
      bool null = false;
      good = value.is_null().get(null) == simdjson::SUCCESS &&
             (null || ReadString(value, &message->department));
    } else if (name == "data") {
      bit = kData;
      good = ReadData(value, &message->data);
    }
    if (!good || (seen & bit) != 0) return false;
    seen |= bit;
  }
  return seen == kAll;
}

// Nothing but the value was in the body.
bool AtEnd(ondemand::document* document) {
  return document->current_location().error() == simdjson::OUT_OF_BOUNDS;
}

}  // namespace

struct EnvelopeReader::Parser {
  ondemand::parser parser;
  std::string padded;
};

EnvelopeReader::EnvelopeReader() : parser_(std::make_unique<Parser>()) {}
EnvelopeReader::~EnvelopeReader() = default;

EnvelopeReader::Shape EnvelopeReader::Read(
    absl::string_view body, const std::function<void(const EnvelopeMessage&)>& visit) {
  parser_->padded.assign(body.data(), body.size());
  parser_->padded.append(simdjson::SIMDJSON_PADDING, '\0');
  ondemand::document document;
  if (parser_->parser
          .iterate(simdjson::padded_string_view(parser_->padded.data(), body.size(),
                                                parser_->padded.size()))
          .get(document) != simdjson::SUCCESS) {
    return Shape::kMalformed;
  }
  ondemand::json_type type{};
  if (document.type().get(type) != simdjson::SUCCESS) return Shape::kMalformed;
  EnvelopeMessage message;
  if (type == ondemand::json_type::object) {
    ondemand::object object;
    if (document.get_object().get(object) != simdjson::SUCCESS || !ReadMessage(object, &message) ||
        !AtEnd(&document)) {
      return Shape::kMalformed;
    }
    visit(message);
    return Shape::kSingle;
  }
  ondemand::array array;
  if (type != ondemand::json_type::array || document.get_array().get(array) != simdjson::SUCCESS) {
    return Shape::kMalformed;
  }
  for (auto element : array) {
    ondemand::object object;
    message = EnvelopeMessage();
    if (element.get_object().get(object) != simdjson::SUCCESS || !ReadMessage(object, &message)) {
      return Shape::kMalformed;
    }
    visit(message);
  }
  return AtEnd(&document) ? Shape::kBatch : Shape::kMalformed;
}

}  // namespace postrider::loadtest
