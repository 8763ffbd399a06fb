#include "api/router.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/check.h"
#include "core/base/hex.h"

namespace postrider::api {
namespace {

enum class Plus { kLiteral, kSpace };

bool PercentDecode(absl::string_view text, Plus plus, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus == Plus::kSpace) {
      out->push_back(' ');
    } else if (text[i] != '%') {
      out->push_back(text[i]);
    } else {
      if (i + 2 >= text.size()) return false;
      const int high = HexDigit(text[i + 1]);
      const int low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
      out->push_back(static_cast<char>(high * 16 + low));
      i += 2;
    }
  }
  return true;
}

bool IsPlaceholder(absl::string_view segment) {
  return segment.size() > 2 && segment.front() == '{' && segment.back() == '}';
}

// Whether two templates may answer one path: the same fixed segments, placeholders anywhere.
bool SameShape(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (IsPlaceholder(a[i]) != IsPlaceholder(b[i])) return false;
    if (!IsPlaceholder(a[i]) && a[i] != b[i]) return false;
  }
  return true;
}

std::vector<std::string> SplitPath(absl::string_view path) {
  std::vector<std::string> segments;
  for (const absl::string_view segment : absl::StrSplit(path.substr(1), '/')) {
    segments.emplace_back(segment);
  }
  return segments;
}

}  // namespace

absl::string_view HttpMethodName(HttpMethod method) {
  switch (method) {
    case HttpMethod::kGet:
      return "GET";
    case HttpMethod::kHead:
      return "HEAD";
    case HttpMethod::kPost:
      return "POST";
    case HttpMethod::kPut:
      return "PUT";
    case HttpMethod::kPatch:
      return "PATCH";
    case HttpMethod::kDelete:
      return "DELETE";
  }
  POSTRIDER_CHECK(false);
}

absl::optional<HttpMethod> ParseHttpMethod(absl::string_view name) {
  for (const HttpMethod method : {HttpMethod::kGet, HttpMethod::kHead, HttpMethod::kPost,
                                  HttpMethod::kPut, HttpMethod::kPatch, HttpMethod::kDelete}) {
    if (HttpMethodName(method) == name) return method;
  }
  return absl::nullopt;
}

const std::string* Request::Header(absl::string_view name) const {
  for (const auto& [header, value] : headers) {
    if (header == name) return &value;
  }
  return nullptr;
}

const std::string* Request::Query(absl::string_view name) const {
  for (const auto& [parameter, value] : query) {
    if (parameter == name) return &value;
  }
  return nullptr;
}

absl::optional<Target> ParseTarget(absl::string_view target) {
  if (target.empty() || target.front() != '/') return absl::nullopt;
  Target parsed;
  const size_t mark = target.find('?');
  const absl::string_view path = target.substr(0, mark);
  parsed.path = std::string(path);
  for (const absl::string_view segment : absl::StrSplit(path.substr(1), '/')) {
    std::string decoded;
    if (!PercentDecode(segment, Plus::kLiteral, &decoded)) return absl::nullopt;
    parsed.segments.push_back(std::move(decoded));
  }
  if (mark == absl::string_view::npos) return parsed;
  for (const absl::string_view pair : absl::StrSplit(target.substr(mark + 1), '&')) {
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    std::string name;
    std::string value;
    if (!PercentDecode(pair.substr(0, equals), Plus::kSpace, &name)) return absl::nullopt;
    if (equals != absl::string_view::npos &&
        !PercentDecode(pair.substr(equals + 1), Plus::kSpace, &value)) {
      return absl::nullopt;
    }
    parsed.query.emplace_back(std::move(name), std::move(value));
  }
  return parsed;
}

void Router::Add(Route route) {
  POSTRIDER_CHECK(!route.path.empty() && route.path.front() == '/');
  POSTRIDER_CHECK(route.method != HttpMethod::kHead);
  std::vector<std::string> segments = SplitPath(route.path);
  for (size_t i = 0; i < routes_.size(); ++i) {
    POSTRIDER_CHECK(routes_[i].method != route.method || !SameShape(segments_[i], segments));
  }
  routes_.push_back(std::move(route));
  segments_.push_back(std::move(segments));
}

Router::Match Router::Find(absl::optional<HttpMethod> method,
                           const std::vector<std::string>& segments) const {
  if (method == HttpMethod::kHead) method = HttpMethod::kGet;
  Match match;
  std::vector<absl::string_view> methods;
  size_t fixed_most = 0;
  for (size_t i = 0; i < routes_.size(); ++i) {
    const std::vector<std::string>& shape = segments_[i];
    if (shape.size() != segments.size()) continue;
    size_t fixed = 1;
    bool fits = true;
    std::vector<std::string> params;
    for (size_t k = 0; fits && k < shape.size(); ++k) {
      if (IsPlaceholder(shape[k])) {
        fits = !segments[k].empty();
        params.push_back(segments[k]);
      } else {
        fits = shape[k] == segments[k];
        ++fixed;
      }
    }
    if (!fits) continue;
    methods.push_back(HttpMethodName(routes_[i].method));
    if (routes_[i].method == HttpMethod::kGet) methods.push_back("HEAD");
    if (method == routes_[i].method && fixed > fixed_most) {
      fixed_most = fixed;
      match.route = &routes_[i];
      match.params = std::move(params);
    }
  }
  match.allow = absl::StrJoin(methods, ", ");
  return match;
}

}  // namespace postrider::api
