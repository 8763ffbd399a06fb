#include "core/json/internal/simd.h"

#include <simdjson.h>

#include <cstring>
#include <string>

namespace postrider::json_internal {

bool ValidUtf8(absl::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

struct SimdParser::Impl {
  simdjson::dom::parser parser;
  std::string padded;
};

SimdParser::SimdParser() : impl_(std::make_unique<Impl>()) {}
SimdParser::~SimdParser() = default;

bool SimdParser::Parses(absl::string_view text) {
  if (text.empty() || text[0] == '\xef') return false;
  // It reads past the end; copying a text costs less than finding out where it lies.
  std::string& padded = impl_->padded;
  if (padded.size() < text.size() + simdjson::SIMDJSON_PADDING) {
    padded.resize(text.size() + simdjson::SIMDJSON_PADDING);
  }
  std::memcpy(padded.data(), text.data(), text.size());
  std::memset(padded.data() + text.size(), ' ', simdjson::SIMDJSON_PADDING);
  return impl_->parser.parse(padded.data(), text.size(), false).error() == simdjson::SUCCESS;
}

}  // namespace postrider::json_internal
