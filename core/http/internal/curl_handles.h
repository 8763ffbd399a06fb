#pragma once

#include <curl/curl.h>

#include <chrono>
#include <memory>
#include <string>

#include "core/base/check.h"
#include "core/base/clock.h"

namespace postrider::internal {

struct EasyDeleter {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
using EasyHandle = std::unique_ptr<CURL, EasyDeleter>;

struct MultiDeleter {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
using MultiHandle = std::unique_ptr<CURLM, MultiDeleter>;

inline Duration Microseconds(CURL* easy, CURLINFO info) {
  curl_off_t value = 0;
  curl_easy_getinfo(easy, info, &value);
  return std::chrono::microseconds(value);
}

// A list of lines as libcurl takes them. Empty: null, which means "none" to it.
class CurlList {
 public:
  CurlList() = default;
  ~CurlList() { curl_slist_free_all(head_); }
  CurlList(const CurlList&) = delete;
  CurlList& operator=(const CurlList&) = delete;

  void Add(const std::string& line) {
    curl_slist* const head = curl_slist_append(head_, line.c_str());
    POSTRIDER_CHECK(head != nullptr);  // out of memory
    head_ = head;
  }
  void Clear() {
    curl_slist_free_all(head_);
    head_ = nullptr;
  }
  curl_slist* get() const { return head_; }

 private:
  curl_slist* head_ = nullptr;
};

}  // namespace postrider::internal
