#include "commands/publish_command.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "api/publish_client.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/base/status_macros.h"
#include "core/http/address_guard.h"
#include "core/http/curl_sink.h"
#include "core/http/header_rules.h"
#include "core/http/resolver.h"
#include "core/http/url.h"

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr size_t kKeyFileBytesMax = 4'096;
constexpr int kInFlightMax = 16;

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status CannotRead(absl::string_view what, int fault) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " cannot be read: ", std::generic_category().message(fault)));
}

absl::StatusOr<std::string> ReadKey(const PublishCommand& command) {
  std::string key;
  if (!command.key_file.empty()) {
    const File file(command.key_file);
    key.resize(kKeyFileBytesMax);
    const ssize_t got = file.get() < 0 ? -1 : ::read(file.get(), key.data(), key.size());
    if (got < 0) return CannotRead("--key-file", errno);
    key.resize(static_cast<size_t>(got));
  } else if (const char* given = ::getenv(std::string(kApiKeyVariable).c_str()); given != nullptr) {
    key = given;
  }
  absl::StripAsciiWhitespace(&key);
  if (key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("name a file with a publisher's key by --key-file, or set ", kApiKeyVariable));
  }
  if (!IsHeaderValue(key)) return absl::InvalidArgumentError("the key is none");
  return key;
}

// Where a service with these options listens, as seen from its machine.
std::string UrlOf(const PublishCommand& command) {
  if (!command.url.empty()) return command.url;
  absl::string_view listen = command.listen;
  if (absl::ConsumePrefix(&listen, "0.0.0.0:")) return absl::StrCat("http://127.0.0.1:", listen);
  if (absl::ConsumePrefix(&listen, "[::]:")) return absl::StrCat("http://[::1]:", listen);
  return absl::StrCat("http://", listen);
}

absl::StatusOr<api::PublishLinesOptions> OptionsOf(const PublishCommand& command) {
  api::PublishLinesOptions options;
  absl::StatusOr<HttpUrl> url = ParseHttpUrl(UrlOf(command));
  if (!url.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--url: ", url.status().message()));
  }
  options.url = *std::move(url);
  ASSIGN_OR_RETURN(options.key, ReadKey(command));
  absl::string_view type = command.topic;
  absl::ConsumePrefix(&type, command.topic_prefix);
  options.type = std::string(type);
  if (command.in_flight < 1 || command.in_flight > kInFlightMax) {
    return absl::InvalidArgumentError(absl::StrCat("--in-flight: 1 to ", kInFlightMax));
  }
  options.in_flight_max = static_cast<size_t>(command.in_flight);
  if (!command.give_up_after.empty()) {
    milliseconds give_up{};
    Options duration;
    duration.AddDuration("give-up-after", &give_up, milliseconds(0), hours(24 * 7), "");
    RETURN_IF_ERROR(duration.LoadFlags({absl::StrCat("--give-up-after=", command.give_up_after)}));
    options.give_up_after = give_up;
  }
  if (command.fail_fast) options.at_refusal = api::PublishLinesOptions::AtRefusal::kStop;
  return options;
}

}  // namespace

absl::StatusOr<bool> RunPublishCommand(const PublishCommand& command) {
  ASSIGN_OR_RETURN(const api::PublishLinesOptions options, OptionsOf(command));
  const bool from_file = !command.file.empty() && command.file != "-";
  const File file(from_file ? command.file : "/dev/null");
  if (file.get() < 0) return CannotRead(command.file, errno);
  SystemClock clock;
  Metrics metrics;
  ASSIGN_OR_RETURN(const std::unique_ptr<EventLoop> loop, EventLoop::Create(clock));
  const std::unique_ptr<Resolver> resolver = CreateSystemResolver({}, clock, metrics);
  // The one who calls says where the service is, be it in whatever network.
  AddressRulesOptions everywhere;
  everywhere.allow = {"0.0.0.0/0", "::/0"};
  ASSIGN_OR_RETURN(std::shared_ptr<const AddressRules> rules, AddressRules::Create(everywhere));
  CurlSinkOptions sink_options;
  sink_options.pools = 1;
  sink_options.ca_bundle_file = command.ca_file;
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpSink> sink,
                   CreateCurlSink(*loop, sink_options, *resolver, rules, metrics));
  const api::PublishLinesReport report = api::PublishLines(
      *loop, *sink, from_file ? file.get() : STDIN_FILENO, options,
      [](const api::RefusedLine& refused) {
        std::fprintf(stderr, "line %" PRId64 ": %s\n", refused.line, refused.reason.c_str());
      });
  std::fprintf(stderr, "accepted %" PRId64 ", refused %" PRId64 "\n", report.accepted,
               report.refused);
  if (report.failure.ok()) return report.refused == 0;
  std::fprintf(stderr,
               "stopped: %s; every line up to %" PRId64
               " is accepted or refused, of those behind it it is not known\n",
               std::string(report.failure.message()).c_str(), report.lines_settled);
  return false;
}

}  // namespace postrider
