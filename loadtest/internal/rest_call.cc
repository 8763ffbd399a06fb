#include "loadtest/internal/rest_call.h"

#include "absl/strings/str_cat.h"

namespace postrider::loadtest::internal {
namespace {

constexpr long kTimeoutMs = 60'000;

size_t Collect(char* bytes, size_t size, size_t count, void* into) {
  static_cast<std::string*>(into)->append(bytes, size * count);
  return size * count;
}

}  // namespace

void RestCall::Prepare(absl::string_view url) {
  curl_easy_reset(easy.get());
  answer.clear();
  curl_slist* list = curl_slist_append(nullptr, "content-type: application/json");
  list = curl_slist_append(list, "expect:");
  list = curl_slist_append(list, absl::StrCat("authorization: Bearer ", request.key).c_str());
  headers.reset(list);
  curl_easy_setopt(easy.get(), CURLOPT_URL, absl::StrCat(url, request.path).c_str());
  curl_easy_setopt(easy.get(), CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (!request.body.empty()) {
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDS, request.body.c_str());
  }
  curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, list);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, &Collect);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &answer);
  curl_easy_setopt(easy.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy.get(), CURLOPT_PROXY, "");
  curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT_MS, kTimeoutMs);
  curl_easy_setopt(easy.get(), CURLOPT_PRIVATE, this);
}

int RestCall::Status() const {
  long status = 0;
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  return static_cast<int>(status);
}

RestCall* RestCallOf(CURL* easy) {
  RestCall* call = nullptr;
  curl_easy_getinfo(easy, CURLINFO_PRIVATE, &call);
  return call;
}

}  // namespace postrider::loadtest::internal
