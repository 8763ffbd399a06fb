#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/http/ip_address.h"

namespace postrider::tests {

// What a name server says to one question.
struct DnsAnswer {
  enum class Code : uint8_t { kOk = 0, kServerFailure = 2, kNoSuchName = 3, kRefused = 5 };
  bool silent = false;
  Code code = Code::kOk;
  std::vector<std::string> addresses;  // of the family that was asked for; none: no such record
  std::chrono::milliseconds delay{0};
};

// A name server on an ephemeral UDP port of 127.0.0.1, on a thread of its own. Threads: any.
class DnsStub {
 public:
  struct Question {
    std::string name;  // lower case, without a dot at its end
    IpAddress::Family family = IpAddress::Family::kV4;
    int number = 0;  // of those for this name and family, from 1
  };
  // Called on the stub's thread.
  using Script = std::function<DnsAnswer(const Question&)>;

  explicit DnsStub(Script script);
  ~DnsStub();

  uint16_t port() const { return port_; }
  int questions(const std::string& name) const;
  // When the last answer for this name went out, whatever its family.
  MonotonicTime answered_at(const std::string& name) const;

 private:
  struct Reply;

  void Serve();
  void Send(const Reply& reply);

  const SystemClock clock_;
  const Script script_;
  int fd_ = -1;
  uint16_t port_ = 0;
  mutable absl::Mutex mutex_;
  std::map<std::string, int> questions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, MonotonicTime> answered_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace postrider::tests
