#pragma once

#include <curl/curl.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace postrider::loadtest::internal {

struct RestRequest {
  std::string method = "POST";
  std::string path;  // with the query
  std::string key;   // bearer
  std::string body;  // JSON; empty: none
};

struct EasyFree {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct MultiFree {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

// One call to a REST server by a handle that is used again and again. It stays where it is while
// the handle is in a multi, which tells of it by CURLINFO_PRIVATE: see RestCallOf().
struct RestCall {
  std::unique_ptr<CURL, EasyFree> easy{curl_easy_init()};
  std::unique_ptr<curl_slist, ListFree> headers;
  RestRequest request;
  std::string answer;

  // Sets the handle up for `request`; `url`: scheme, host and port.
  void Prepare(absl::string_view url);
  // Of the answer; 0: there was none.
  int Status() const;
};

RestCall* RestCallOf(CURL* easy);

}  // namespace postrider::loadtest::internal
