#include "api/internal/call.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace postrider::api {

Response JsonResponse(int status, const JsonValue& document) {
  Response response;
  response.status = status;
  response.body = document.Serialize();
  return response;
}

void SetETag(uint64_t generation, Response* response) {
  response->headers.emplace_back("etag", absl::StrCat("\"g", generation, "\""));
}

bool IfMatches(const Request& request, uint64_t generation) {
  const std::string* header = request.Header("if-match");
  if (header == nullptr) return true;
  const std::string present = absl::StrCat("\"g", generation, "\"");
  for (absl::string_view tag : absl::StrSplit(*header, ',')) {
    tag = absl::StripAsciiWhitespace(tag);
    if (tag == "*" || tag == present) return true;
  }
  return false;
}

Response PreconditionFailed() {
  return Problem(412, "It was changed since; get it again and look at its etag.");
}

}  // namespace postrider::api
