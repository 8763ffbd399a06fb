#include "core/json/reader.h"

#include <bitset>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/json/internal/simd.h"
#include "core/json/internal/text.h"

namespace postrider {
namespace {

using json_internal::ScanLiteral;
using json_internal::ScanNumber;
using json_internal::ScanString;
using json_internal::SkipSpace;
using json_internal::SkipValue;

// The grammar, by a loop and a stack of bits. `*fault` is set when the answer is not kProven.
JsonProof CheckGrammar(const char* at, const char* end, const char** fault) {
  std::bitset<kJsonDepthMax> in_object;
  size_t depth = 0;
  const auto refuse = [&](const char* where) {
    *fault = where;
    return JsonProof::kNotJson;
  };
  while (true) {
    // A value begins here.
    at = SkipSpace(at, end);
    if (at == end) return refuse(at);
    if (*at == '{' || *at == '[') {
      if (depth == kJsonDepthMax) {
        *fault = at;
        return JsonProof::kTooDeep;
      }
      const bool object = *at == '{';
      in_object[depth++] = object;
      at = SkipSpace(at + 1, end);
      if (at == end) return refuse(at);
      if (*at == (object ? '}' : ']')) {
        ++at;
        --depth;
      } else if (!object) {
        continue;
      } else {
        if (*at != '"') return refuse(at);
        at = ScanString(at, end, fault);
        if (at == nullptr) return JsonProof::kNotJson;
        at = SkipSpace(at, end);
        if (at == end || *at != ':') return refuse(at);
        ++at;
        continue;
      }
    } else {
      if (*at == '"') {
        at = ScanString(at, end, fault);
      } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
        at = ScanNumber(at, end, fault);
      } else {
        at = ScanLiteral(at, end, fault);
      }
      if (at == nullptr) return JsonProof::kNotJson;
    }
    // A value has ended: close what closes, up to the next comma.
    while (true) {
      at = SkipSpace(at, end);
      if (depth == 0) return at == end ? JsonProof::kProven : refuse(at);
      if (at == end) return refuse(at);
      const bool object = in_object[depth - 1];
      if (*at == (object ? '}' : ']')) {
        ++at;
        --depth;
        continue;
      }
      if (*at != ',') return refuse(at);
      ++at;
      if (object) {
        at = SkipSpace(at, end);
        if (at == end || *at != '"') return refuse(at);
        at = ScanString(at, end, fault);
        if (at == nullptr) return JsonProof::kNotJson;
        at = SkipSpace(at, end);
        if (at == end || *at != ':') return refuse(at);
        ++at;
      }
      break;
    }
  }
}

size_t FirstBadUtf8(absl::string_view text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    const int length = json_internal::Utf8SequenceLength(at, end);
    if (length == 0) break;
    at += length;
  }
  return static_cast<size_t>(at - text.data());
}

absl::optional<size_t> ArrayIndex(const std::string& step) {
  if (step.empty() || step.size() > 9 || (step.size() > 1 && step[0] == '0')) return absl::nullopt;
  size_t index = 0;
  for (const char c : step) {
    if (c < '0' || c > '9') return absl::nullopt;
    index = index * 10 + static_cast<size_t>(c - '0');
  }
  return index;
}

// The value of the first member of that name in the object that begins at `at`; null when there is
// none.
const char* FindMember(const char* at, const char* end, const std::string& wanted,
                       std::string* scratch) {
  const char* fault = nullptr;
  at = SkipSpace(at + 1, end);
  while (at != end && *at == '"') {
    const char* after = ScanString(at, end, &fault);
    if (after == nullptr) return nullptr;
    absl::string_view name(at + 1, static_cast<size_t>(after - at - 2));
    if (std::memchr(name.data(), '\\', name.size()) != nullptr) {
      scratch->clear();
      // A name with a lone surrogate is no name that a pointer can say.
      name = json_internal::AppendUnescaped(name, scratch) ? absl::string_view(*scratch)
                                                           : absl::string_view("\xff");
    }
    at = SkipSpace(after, end);
    if (at == end || *at != ':') return nullptr;
    at = SkipSpace(at + 1, end);
    if (name == wanted) return at;
    at = SkipSpace(SkipValue(at, end), end);
    if (at == end || *at != ',') return nullptr;
    at = SkipSpace(at + 1, end);
  }
  return nullptr;
}

const char* FindElement(const char* at, const char* end, size_t index) {
  at = SkipSpace(at + 1, end);
  if (at == end || *at == ']') return nullptr;
  while (index-- > 0) {
    at = SkipSpace(SkipValue(at, end), end);
    if (at == end || *at != ',') return nullptr;
    at = SkipSpace(at + 1, end);
  }
  return at;
}

}  // namespace

bool IsUtf8(absl::string_view text) { return json_internal::ValidUtf8(text); }

JsonProof ProveJson(absl::string_view text, size_t* fault_offset) {
  if (!IsUtf8(text)) {
    if (fault_offset != nullptr) *fault_offset = FirstBadUtf8(text);
    return JsonProof::kNotUtf8;
  }
  const char* fault = text.data();
  const JsonProof proof = CheckGrammar(text.data(), text.data() + text.size(), &fault);
  if (proof != JsonProof::kProven && fault_offset != nullptr) {
    *fault_offset = static_cast<size_t>(fault - text.data());
  }
  return proof;
}

absl::Status ProveOneJsonValue(absl::string_view text) {
  size_t offset = 0;
  switch (ProveJson(text, &offset)) {
    case JsonProof::kProven:
      return absl::OkStatus();
    case JsonProof::kNotUtf8:
      return absl::InvalidArgumentError(absl::StrCat("byte ", offset, ": not UTF-8"));
    case JsonProof::kTooDeep:
      return absl::InvalidArgumentError(
          absl::StrCat("byte ", offset, ": nested more than ", kJsonDepthMax, " deep"));
    case JsonProof::kNotJson:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "byte ", offset,
      offset >= text.size() ? ": the JSON value ends too early" : ": not part of one JSON value"));
}

struct JsonProver::Impl {
  json_internal::SimdParser fast;
};

JsonProver::JsonProver() : impl_(std::make_unique<Impl>()) {}
JsonProver::~JsonProver() = default;

JsonProof JsonProver::Prove(absl::string_view text) {
  return impl_->fast.Parses(text) ? JsonProof::kProven : ProveJson(text);
}

absl::StatusOr<JsonPointer> JsonPointer::Parse(absl::string_view text) {
  JsonPointer pointer;
  if (text.empty()) return pointer;
  if (text[0] != '/') return absl::InvalidArgumentError("a JSON pointer begins with '/'");
  std::string step;
  for (size_t i = 1; i <= text.size(); ++i) {
    if (i == text.size() || text[i] == '/') {
      pointer.steps_.push_back(std::move(step));
      step.clear();
    } else if (text[i] != '~') {
      step.push_back(text[i]);
    } else if (i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1')) {
      step.push_back(text[++i] == '0' ? '~' : '/');
    } else {
      return absl::InvalidArgumentError("in a JSON pointer '~' stands before 0 or 1 only");
    }
  }
  return pointer;
}

void PointerReader::Reset(absl::string_view proven) {
  text_ = proven;
  unescaped_used_ = 0;
}

JsonScalar PointerReader::Find(const JsonPointer& pointer) {
  const char* const end = text_.data() + text_.size();
  const char* at = SkipSpace(text_.data(), end);
  for (const std::string& step : pointer.steps()) {
    if (at == end) return {};
    if (*at == '{') {
      at = FindMember(at, end, step, &name_);
    } else if (*at == '[') {
      const absl::optional<size_t> index = ArrayIndex(step);
      at = index ? FindElement(at, end, *index) : nullptr;
    } else {
      return {};
    }
    if (at == nullptr) return {};
  }
  if (at == end) return {};
  JsonScalar found;
  if (*at == '{' || *at == '[') {
    found.kind = *at == '{' ? JsonKind::kObject : JsonKind::kArray;
    return found;
  }
  const char* const after = SkipValue(at, end);
  found.text = absl::string_view(at, static_cast<size_t>(after - at));
  switch (*at) {
    case 'n':
      return {JsonKind::kNull, {}, false};
    case 't':
    case 'f':
      found.kind = JsonKind::kBool;
      return found;
    case '"':
      break;
    default:
      found.kind = JsonKind::kNumber;
      return found;
  }
  found.kind = JsonKind::kString;
  if (found.text.size() < 2) return {};
  found.text = found.text.substr(1, found.text.size() - 2);
  if (found.text.find('\\') == absl::string_view::npos) return found;
  if (unescaped_used_ == unescaped_.size()) unescaped_.push_back(std::make_unique<std::string>());
  std::string* out = unescaped_[unescaped_used_++].get();
  out->clear();
  found.has_lone_surrogate = !json_internal::AppendUnescaped(found.text, out);
  found.text = *out;
  return found;
}

}  // namespace postrider
