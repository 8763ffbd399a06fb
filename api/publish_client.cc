#include "api/publish_client.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "api/router.h"
#include "core/base/id.h"
#include "core/crypto/random.h"
#include "core/json/json.h"
#include "core/json/members.h"
#include "core/json/reader.h"

namespace postrider::api {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kReadBytes = 64 << 10;
// How soon a pipe that was empty is looked at again while requests are on their way.
constexpr milliseconds kLook{20};
// How long the input is waited for until the loop is turned, when there is nothing else to do.
constexpr milliseconds kIdleLook{100};
// The service answers each part of a request within ten seconds.
constexpr seconds kAnswerWithin{120};
constexpr size_t kAnswerBytesMax = 1 << 20;
constexpr int64_t kRetryAfterMaxSeconds = 60;

struct Line {
  int64_t number = 0;
  std::string text;
};

// Lines that are sent together, less those that are settled.
struct Batch {
  std::deque<Line> lines;
  MonotonicTime progress;  // when the last of it was settled, or it was sent first
  Duration delay{};        // before it is sent again, if nobody says
};

std::string QuotedString(absl::string_view text) { return JsonValue(text).Serialize(); }

std::string NewEventId(const Clock& clock) {
  const IdBytes bytes = NewIdBytes(clock);
  return absl::StrCat("evt_",
                      EncodeBase32({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

class LinePublisher {
 public:
  LinePublisher(EventLoop& loop, HttpSink& sink, int fd, const PublishLinesOptions& options,
                absl::FunctionRef<void(const RefusedLine&)> refused)
      : loop_(loop), sink_(sink), fd_(fd), options_(options), refused_(refused) {}

  PublishLinesReport Run() {
    while (true) {
      const bool readable = !ended_ && !stopped_ && HasRoom() && Readable(Duration::zero());
      if (readable) Read();
      while (MaySend(readable)) Send(TakeBatch());
      if (unsettled_.empty() && (stopped_ || (ended_ && ready_.empty()))) break;
      if (unsettled_.empty() && ready_.empty() && !readable) {
        Readable(kIdleLook);
        loop_.RunOnce(Duration::zero());
      } else {
        loop_.RunOnce(readable ? Duration::zero() : Duration(kLook));
      }
    }
    // Of the lines that were never sent the first one is not settled.
    report_.lines_settled = (ready_.empty() ? next_line_ : ready_.front().number) - 1;
    if (first_lost_ > 0) report_.lines_settled = std::min(report_.lines_settled, first_lost_ - 1);
    return std::move(report_);
  }

 private:
  bool HasRoom() const {
    return ready_.size() < options_.request_lines_max && ready_bytes_ < options_.request_bytes_max;
  }
  bool MaySend(bool more_is_there) const {
    if (stopped_ || ready_.empty() || unsettled_.size() >= options_.in_flight_max) return false;
    return !more_is_there || !HasRoom();
  }
  bool Readable(Duration wait) const {
    pollfd waiting{fd_, POLLIN, 0};
    const auto ms = std::chrono::duration_cast<milliseconds>(wait).count();
    return ::poll(&waiting, 1, static_cast<int>(ms)) > 0;
  }

  void Read() {
    char bytes[kReadBytes];
    const ssize_t got = ::read(fd_, bytes, sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got < 0) {
      Stop(absl::UnavailableError(
          absl::StrCat("the input: ", std::generic_category().message(errno))));
      return;
    }
    ended_ = got == 0;
    absl::string_view rest(bytes, static_cast<size_t>(got));
    while (true) {
      const size_t newline = rest.find('\n');
      const absl::string_view piece = rest.substr(0, newline);
      // So much of a line that is too long is kept that it is seen to be so.
      begun_.append(
          piece.data(),
          std::min(piece.size(), kLineBytesMax + 1 - std::min(kLineBytesMax + 1, begun_.size())));
      if (newline == absl::string_view::npos) break;
      TakeLine();
      rest.remove_prefix(newline + 1);
    }
    if (ended_ && !begun_.empty()) TakeLine();
  }

  void TakeLine() {
    Line line;
    line.number = next_line_++;
    // What was cut off may have been no white space.
    const bool cut = begun_.size() > kLineBytesMax;
    line.text = std::string(absl::StripAsciiWhitespace(begun_));
    begun_.clear();
    if (line.text.empty() && !cut) return;
    if (const std::string reason = cut ? TooLong() : Complete(&line.text); !reason.empty()) {
      Refuse(line.number, reason);
      return;
    }
    ready_bytes_ += line.text.size();
    ready_.push_back(std::move(line));
  }

  // Gives the event its id and type where it has none; what is no event is left to the service to
  // judge. Returns why it cannot be sent.
  std::string Complete(std::string* text) const {
    if (ProveOneJsonValue(*text).ok()) {
      const absl::optional<std::vector<RawMember>> members = RawMembers(*text);
      if (members && !members->empty()) {
        const RawMember* id = nullptr;
        const RawMember* type = nullptr;
        for (const RawMember& member : *members) {
          if (member.name == "id") id = &member;
          if (member.name == "type") type = &member;
        }
        if (type != nullptr && !options_.type.empty() && !IsType(type->value)) {
          return absl::StrCat("/type: is not ", options_.type, ", the type of --topic");
        }
        const std::string fresh = QuotedString(NewEventId(loop_.clock()));
        const bool null_id = id != nullptr && id->value == "null";
        if (null_id) {
          text->replace(static_cast<size_t>(id->value.data() - text->data()), id->value.size(),
                        fresh);
        }
        std::string added;
        if (id == nullptr) absl::StrAppend(&added, "\"id\":", fresh, ",");
        if (type == nullptr && !options_.type.empty()) {
          absl::StrAppend(&added, "\"type\":", QuotedString(options_.type), ",");
        }
        text->insert(1, added);
      }
    }
    if (text->size() <= kLineBytesMax) return "";
    return TooLong();
  }
  static std::string TooLong() { return absl::StrCat("is longer than ", kLineBytesMax, " bytes"); }
  bool IsType(absl::string_view raw) const {
    const absl::StatusOr<JsonValue> value = JsonValue::Parse(raw);
    return value.ok() && value->is_string() && *value->string() == options_.type;
  }

  void Refuse(int64_t line, const std::string& reason) {
    ++report_.refused;
    refused_({line, reason});
    if (options_.at_refusal == PublishLinesOptions::AtRefusal::kStop) {
      Stop(absl::InvalidArgumentError(absl::StrCat("line ", line, " was refused")));
    }
  }
  // What is on its way ends; nothing else is sent.
  void Stop(absl::Status why) {
    stopped_ = true;
    if (report_.failure.ok()) report_.failure = std::move(why);
  }

  std::shared_ptr<Batch> TakeBatch() {
    auto batch = std::make_shared<Batch>();
    batch->progress = loop_.clock().Now();
    size_t bytes = 0;
    while (!ready_.empty() && batch->lines.size() < options_.request_lines_max &&
           (bytes == 0 || bytes + ready_.front().text.size() <= options_.request_bytes_max)) {
      bytes += ready_.front().text.size();
      ready_bytes_ -= ready_.front().text.size();
      batch->lines.push_back(std::move(ready_.front()));
      ready_.pop_front();
    }
    unsettled_.insert(batch);
    return batch;
  }

  void Send(const std::shared_ptr<Batch>& batch) {
    HttpRequest request;
    request.url = options_.url;
    request.url.target = "/v1/events";
    request.headers = {{"authorization", absl::StrCat("Bearer ", options_.key)},
                       {"content-type", "application/x-ndjson"},
                       {"user-agent", "Postrider/" POSTRIDER_VERSION}};
    for (const Line& line : batch->lines) absl::StrAppend(&request.body, line.text, "\n");
    request.total_timeout = kAnswerWithin;
    request.response_body_bytes_max = kAnswerBytesMax;
    sink_.Send(std::move(request), [this, batch](HttpResult result) { Answered(batch, result); });
  }

  void Answered(const std::shared_ptr<Batch>& batch, const HttpResult& result) {
    const absl::StatusOr<JsonValue> answer =
        JsonValue::Parse(result.body_excerpt, JsonLimits{.bytes_max = kAnswerBytesMax});
    int64_t settled = -1;
    if (answer.ok()) settled = Settle(*batch, *answer);
    if (settled > 0) {
      batch->progress = loop_.clock().Now();
      batch->delay = Duration::zero();
    }
    if ((result.status == 202 || result.status == 422) && settled >= 0 && batch->lines.empty()) {
      unsettled_.erase(batch);
      return;
    }
    std::string reason = result.status == 0 ? absl::StrCat(HttpFailureName(result.failure))
                                            : absl::StrCat("status ", result.status);
    if (answer.ok() && answer->Find("detail") != nullptr && answer->Find("detail")->is_string()) {
      absl::StrAppend(&reason, ": ", *answer->Find("detail")->string());
    }
    if (!IsPassing(result)) return GiveUp(batch, absl::InvalidArgumentError(reason));
    if (stopped_ || loop_.clock().Now() - batch->progress >= options_.give_up_after) {
      return GiveUp(batch, absl::UnavailableError(reason));
    }
    loop_.CallAfter(DelayOf(*batch, result), [this, batch] {
      stopped_ ? GiveUp(batch, absl::UnavailableError("stopped")) : Send(batch);
    });
  }

  static bool IsPassing(const HttpResult& result) {
    switch (result.status) {
      case 0:
        return result.failure != HttpFailure::kAddressRefused &&
               result.failure != HttpFailure::kBadRequest && result.failure != HttpFailure::kTls;
      case 408:
      case 429:
      case 502:
      case 503:
      case 504:
        return true;
      default:
        return false;
    }
  }

  Duration DelayOf(Batch& batch, const HttpResult& result) const {
    int64_t asked = 0;
    if (!result.retry_after.empty() && absl::SimpleAtoi(result.retry_after.front(), &asked) &&
        asked > 0) {
      return seconds(std::min(asked, kRetryAfterMaxSeconds));
    }
    batch.delay = std::clamp(batch.delay * 2, options_.retry_first, options_.retry_last);
    return batch.delay;
  }

  // Takes what the service says it has settled off the batch, and counts it; -1: it says nothing.
  int64_t Settle(Batch& batch, const JsonValue& answer) {
    const auto number = [&answer](absl::string_view name) -> absl::optional<int64_t> {
      const JsonValue* value = answer.Find(name);
      return value == nullptr ? absl::nullopt : value->integer();
    };
    const absl::optional<int64_t> settled = number("lines_settled");
    const absl::optional<int64_t> accepted = number("accepted");
    if (!settled || !accepted || *settled < 0 ||
        *settled > static_cast<int64_t>(batch.lines.size())) {
      return -1;
    }
    report_.accepted += *accepted;
    std::map<int64_t, std::vector<std::string>> reasons;
    if (const JsonValue* errors = answer.Find("errors"); errors != nullptr && errors->is_array()) {
      for (const JsonValue& error : *errors->array()) {
        const JsonValue* line = error.Find("line");
        const JsonValue* pointer = error.Find("pointer");
        const JsonValue* detail = error.Find("detail");
        if (line == nullptr || detail == nullptr || !detail->is_string()) continue;
        const int64_t at = line->integer().value_or(0);
        if (at < 1 || at > *settled) continue;
        const bool whole =
            pointer == nullptr || !pointer->is_string() || pointer->string()->empty();
        reasons[at].push_back(
            absl::StrCat(whole ? "" : *pointer->string(), whole ? "" : ": ", *detail->string()));
      }
    }
    for (const auto& [line, why] : reasons) {
      Refuse(batch.lines[static_cast<size_t>(line - 1)].number, absl::StrJoin(why, "; "));
    }
    batch.lines.erase(batch.lines.begin(), batch.lines.begin() + *settled);
    return *settled;
  }

  void GiveUp(const std::shared_ptr<Batch>& batch, const absl::Status& why) {
    Stop(why);
    const int64_t first = batch->lines.empty() ? 0 : batch->lines.front().number;
    if (first > 0 && (first_lost_ == 0 || first < first_lost_)) first_lost_ = first;
    unsettled_.erase(batch);
  }

  EventLoop& loop_;
  HttpSink& sink_;
  const int fd_;
  const PublishLinesOptions& options_;
  const absl::FunctionRef<void(const RefusedLine&)> refused_;
  bool ended_ = false;    // the input
  bool stopped_ = false;  // nothing more is sent
  std::string begun_;     // of a line
  int64_t next_line_ = 1;
  std::deque<Line> ready_;
  size_t ready_bytes_ = 0;
  std::set<std::shared_ptr<Batch>> unsettled_;
  int64_t first_lost_ = 0;
  PublishLinesReport report_;
};

}  // namespace

PublishLinesReport PublishLines(EventLoop& loop, HttpSink& sink, int fd,
                                const PublishLinesOptions& options,
                                absl::FunctionRef<void(const RefusedLine&)> refused) {
  return LinePublisher(loop, sink, fd, options, refused).Run();
}

}  // namespace postrider::api
