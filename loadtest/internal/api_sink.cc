#include "loadtest/internal/api_sink.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace postrider::loadtest::internal {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRest{100};
constexpr size_t kShownOfAnswer = 300;

}  // namespace

ApiSink::ApiSink(const Plan& plan, std::string url, std::string key, int connections)
    : plan_(plan), url_(std::move(url)), key_(std::move(key)), multi_(curl_multi_init()) {
  for (int i = 0; i < connections; ++i) calls_.push_back(std::make_unique<Call>());
}

ApiSink::~ApiSink() {
  for (const std::unique_ptr<Call>& call : calls_) {
    if (call->running) curl_multi_remove_handle(multi_.get(), call->easy.get());
  }
}

absl::Status ApiSink::Put(const std::string& id, const std::string& payload,
                          ProducedRecord* record) {
  if (out_ >= kEventsOut) return absl::ResourceExhaustedError("full");
  const EventFields& fields = record->event;
  Gathered& event = gathered_.emplace_back();
  event.record = record;
  event.event = absl::StrCat(R"({"type":")", plan_.TypeName(fields.type), R"(","tenant":")",
                             plan_.TenantName(fields.tenant), R"(","id":")", id, "\"");
  if (fields.department != kNoDepartment) {
    absl::StrAppend(&event.event, R"(,"department":")", Plan::DepartmentName(fields.department),
                    "\"");
  }
  absl::StrAppend(&event.event, R"(,"data":)", payload, "}");
  ++out_;
  return absl::OkStatus();
}

// Gives what waits to the calls that are free.
void ApiSink::Start() {
  const SteadyClock::time_point now = SteadyClock::now();
  for (const std::unique_ptr<Call>& call : calls_) {
    if (call->running || now < call->due) continue;
    if (call->records.empty()) {
      if (gathered_.empty()) continue;
      call->request = {"POST", "/v1/events", key_, "["};
      std::string& body = call->request.body;
      while (!gathered_.empty() && call->records.size() < kEventsPerRequest &&
             body.size() < kBytesPerRequest) {
        absl::StrAppend(&body, call->records.empty() ? "" : ",", gathered_.front().event);
        call->records.push_back(gathered_.front().record);
        gathered_.pop_front();
      }
      body.push_back(']');
    }
    call->Prepare(url_);
    call->running = true;
    curl_multi_add_handle(multi_.get(), call->easy.get());
  }
}

absl::Status ApiSink::Take(Call* call, CURLcode code) {
  const int status = call->Status();
  curl_multi_remove_handle(multi_.get(), call->easy.get());
  call->running = false;
  // libcurl sends anew by itself when a connection that was kept turns out to be closed.
  long connects = 0;
  curl_easy_getinfo(call->easy.get(), CURLINFO_NUM_CONNECTS, &connects);
  if (connects > 0 && call->connected) sent_again_ += call->records.size();
  call->connected = code == CURLE_OK;
  if (code == CURLE_OK && status == 202) {
    for (ProducedRecord* record : call->records) record->acknowledged = true;
    out_ -= call->records.size();
    call->records.clear();
    return absl::OkStatus();
  }
  if (code == CURLE_OK && status != 429 && status != 503) {
    return absl::FailedPreconditionError(absl::StrCat("loadtest: POST /v1/events answered ", status,
                                                      ": ",
                                                      call->answer.substr(0, kShownOfAnswer)));
  }
  // Who was not reached, or says that there is no room, has stored nothing.
  if (code != CURLE_COULDNT_CONNECT && status != 429) sent_again_ += call->records.size();
  call->due = SteadyClock::now() + kRest;
  return absl::OkStatus();
}

absl::Status ApiSink::Poll(int timeout_ms) {
  Start();
  int running = 0;
  curl_multi_perform(multi_.get(), &running);
  bool taken = false;
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    taken = true;
    // The message goes when its handle leaves the multi.
    auto* call = static_cast<Call*>(RestCallOf(message->easy_handle));
    RETURN_IF_ERROR(Take(call, message->data.result));
  }
  if (!taken && timeout_ms > 0) {
    curl_multi_poll(multi_.get(), nullptr, 0, timeout_ms, nullptr);
  }
  return absl::OkStatus();
}

}  // namespace postrider::loadtest::internal
