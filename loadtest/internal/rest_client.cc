#include "loadtest/internal/rest_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace postrider::loadtest::internal {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kTryFor{60};

struct Call : RestCall {
  size_t index = 0;
  SteadyClock::time_point give_up;
};

}  // namespace

absl::Status RestClient::RunAll(
    size_t count, const std::function<RestRequest(size_t)>& make,
    const std::function<absl::Status(size_t, int, absl::string_view)>& take) {
  std::unique_ptr<CURLM, MultiFree> multi(curl_multi_init());
  std::vector<std::unique_ptr<Call>> calls;
  struct Waiting {
    Call* call;
    SteadyClock::time_point due;
  };
  std::deque<Waiting> waiting;
  std::vector<Call*> idle;
  for (int i = 0; i < parallel_; ++i) {
    calls.push_back(std::make_unique<Call>());
    idle.push_back(calls.back().get());
  }
  absl::Status failed;
  size_t next = 0;
  size_t done = 0;
  const auto start = [&](Call* call) {
    call->Prepare(url_);
    curl_multi_add_handle(multi.get(), call->easy.get());
  };
  while (done < count && failed.ok()) {
    while (!idle.empty() && next < count) {
      Call* call = idle.back();
      idle.pop_back();
      call->index = next++;
      call->request = make(call->index);
      call->give_up = SteadyClock::now() + kTryFor;
      start(call);
    }
    while (!waiting.empty() && waiting.front().due <= SteadyClock::now()) {
      start(waiting.front().call);
      waiting.pop_front();
    }
    int running = 0;
    curl_multi_perform(multi.get(), &running);
    int left = 0;
    bool progress = false;
    while (CURLMsg* message = curl_multi_info_read(multi.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      progress = true;
      auto* call = static_cast<Call*>(RestCallOf(message->easy_handle));
      const CURLcode code = message->data.result;
      const int status = call->Status();
      curl_multi_remove_handle(multi.get(), call->easy.get());
      const bool again =
          code == CURLE_COULDNT_CONNECT || (code == CURLE_OK && (status == 429 || status == 503));
      if (again && SteadyClock::now() < call->give_up) {
        waiting.push_back({call, SteadyClock::now() + std::chrono::milliseconds(250)});
        continue;
      }
      absl::Status taken = code != CURLE_OK ? absl::UnavailableError(curl_easy_strerror(code))
                                            : take(call->index, status, call->answer);
      if (!taken.ok() && failed.ok()) {
        failed =
            absl::Status(taken.code(), absl::StrCat("loadtest: ", call->request.method, " ",
                                                    call->request.path, ": ", taken.message()));
      }
      ++done;
      idle.push_back(call);
    }
    if (!progress) curl_multi_poll(multi.get(), nullptr, 0, 20, nullptr);
  }
  for (const std::unique_ptr<Call>& call : calls) {
    curl_multi_remove_handle(multi.get(), call->easy.get());
  }
  return failed;
}

}  // namespace postrider::loadtest::internal
