#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/http/address_guard.h"
#include "core/http/http_sink.h"

namespace postrider {

// A sink that sends nothing: a test looks at the requests and answers them when it likes.
class FakeHttpSink final : public HttpSink {
 public:
  struct Sent {
    HttpRequestId id = 0;
    HttpRequest request;
    Done done;
    bool open = true;
    bool aborted = false;

    // The value of a header line; empty when there is none.
    std::string Header(absl::string_view name) const {
      for (const auto& [key, value] : request.headers) {
        if (key == name) return value;
      }
      return "";
    }
  };

  ~FakeHttpSink() override { POSTRIDER_CHECK(in_flight() == 0); }

  bool CanSend() const override { return in_flight() < room_; }
  // Its room by SetHostRoom(), or what there is in all.
  size_t RoomFor(const std::string& authority) const override {
    const auto host = host_room_.find(authority);
    if (host != host_room_.end()) return host->second;
    const auto open = open_by_host_.find(authority);
    return open == open_by_host_.end() ? room_ : room_ - open->second;
  }
  HttpRequestId Send(HttpRequest request, Done done) override {
    POSTRIDER_CHECK(CanSend());
    auto sent = std::make_unique<Sent>();
    sent->id = sent_.size() + 1;
    sent->request = std::move(request);
    sent->done = std::move(done);
    ++open_by_host_[sent->request.url.authority()];
    ++open_;
    sent_.push_back(std::move(sent));
    return sent_.back()->id;
  }
  void Abort(HttpRequestId id) override {
    if (id == 0 || id > sent_.size()) return;
    Sent& sent = *sent_[id - 1];
    if (!sent.open) return;
    sent.aborted = true;
    Close(sent);
    aborted_.push_back(std::move(sent.done));
  }
  void AbortAll() override {
    for (const auto& sent : sent_) Abort(sent->id);
  }
  size_t in_flight() const override { return open_ + aborted_.size(); }
  // Neither answered nor aborted.
  size_t open() const { return open_; }
  void SetAddressRules(std::shared_ptr<const AddressRules>) override {}

  void SetRoom(size_t room) { room_ = room; }
  void SetHostRoom(const std::string& authority, size_t room) { host_room_[authority] = room; }
  size_t size() const { return sent_.size(); }
  // The requests in the order in which they were sent, from 0.
  Sent& at(size_t index) { return *sent_.at(index); }
  Sent& last() { return *sent_.back(); }
  // Whether it may start now that it has its slot; it has its latest headers then.
  bool MayStart(size_t index) {
    HttpRequest& request = at(index).request;
    return request.may_start(request);
  }

  void Answer(size_t index, HttpResult result) {
    Sent& sent = at(index);
    POSTRIDER_CHECK(sent.open);
    Close(sent);
    sent.request.may_start = nullptr;
    result.request_sent = !FailsUnsent(result.failure);
    Done done = std::move(sent.done);
    std::move(done)(std::move(result));
  }
  void AnswerStatus(size_t index, int status) {
    HttpResult result;
    result.status = status;
    Answer(index, std::move(result));
  }
  void Fail(size_t index, HttpFailure failure) {
    HttpResult result;
    result.failure = failure;
    Answer(index, std::move(result));
  }
  // Runs the callbacks of what was aborted, as the loop would.
  void DeliverAborts() {
    for (Done& done : std::exchange(aborted_, {})) {
      HttpResult result;
      result.failure = HttpFailure::kAborted;
      std::move(done)(std::move(result));
    }
  }

 private:
  static bool FailsUnsent(HttpFailure failure) {
    return failure == HttpFailure::kAddressRefused || failure == HttpFailure::kDns ||
           failure == HttpFailure::kConnect || failure == HttpFailure::kTls ||
           failure == HttpFailure::kBadRequest || failure == HttpFailure::kOwnLimit ||
           failure == HttpFailure::kAborted;
  }

  void Close(Sent& sent) {
    sent.open = false;
    --open_;
    --open_by_host_[sent.request.url.authority()];
  }

  size_t room_ = 1'000'000;
  size_t open_ = 0;
  std::map<std::string, size_t> open_by_host_;
  std::map<std::string, size_t> host_room_;
  std::vector<std::unique_ptr<Sent>> sent_;
  std::vector<Done> aborted_;
};

}  // namespace postrider
