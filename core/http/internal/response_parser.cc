#include "core/http/internal/response_parser.h"

#include <algorithm>
#include <cstring>

#include "core/http/internal/field_text.h"

namespace postrider::internal {
namespace {

constexpr absl::string_view kBegin = "HTTP/";
// A longer line in parts gives its memory back.
constexpr size_t kHeldKept = 1024;

constexpr size_t kNowhere = absl::string_view::npos;

// absl's find() is a call into its library, which costs more than the search of a line.
size_t Find(absl::string_view text, char c) {
  if (text.empty()) return kNowhere;
  const void* const found = std::memchr(text.data(), c, text.size());
  return found == nullptr ? kNowhere
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace

void ResponseParser::Start(const ResponseLimits& limits, AnswerTo request) {
  reader_.Start(limits);
  framing_.Start();
  chunks_.Start();
  held_.clear();
  left_ = 0;
  request_ = request;
  state_ = State::kStatusLine;
  failure_ = HttpFailure::kNone;
  whole_ = false;
  surplus_ = false;
  received_any_ = false;
}

size_t ResponseParser::OnBytes(absl::string_view bytes) {
  size_t taken = 0;
  if (!bytes.empty()) received_any_ = true;
  // One look at all lines that lie whole in the bytes of a head.
  may_hold_nul_ = state_ > State::kField || Find(bytes, '\0') != kNowhere;
  while (taken < bytes.size() && state_ != State::kDone) {
    const absl::string_view rest = bytes.substr(taken);
    switch (state_) {
      case State::kStatusLine:
      case State::kField:
      case State::kTrailer:
        taken += TakeLine(rest);
        break;
      case State::kLength:
        taken += TakeLength(rest);
        break;
      case State::kConnection:
        if (!reader_.OnBody(rest)) Stop(HttpFailure::kNone);
        taken += rest.size();
        break;
      case State::kChunked:
        taken += TakeChunked(rest);
        break;
      case State::kDone:
        break;
    }
  }
  if (taken < bytes.size()) surplus_ = true;
  return taken;
}

void ResponseParser::OnEnd() {
  if (state_ == State::kConnection) Finish();
  OnBreak();
}

void ResponseParser::OnBreak() {
  if (state_ != State::kDone) Stop(HttpFailure::kReset);
  framing_.Doubt();
}

bool ResponseParser::reusable() const {
  return whole_ && !surplus_ && framing_.keeps_connection() && !chunks_.loose();
}

size_t ResponseParser::TakeLine(absl::string_view bytes) {
  if (state_ == State::kStatusLine && !MayBeStatusLine(bytes)) {
    Stop(HttpFailure::kProtocol);
    return 0;
  }
  const size_t end = Find(bytes, '\n');
  const bool complete = end != kNowhere;
  const size_t size = complete ? end + 1 : bytes.size();
  if (complete && held_.empty()) {
    OnLine(bytes.substr(0, size));
    return size;
  }
  if (held_.size() + size > reader_.header_bytes_left()) {
    Stop(HttpFailure::kHeadersTooLarge);
    return size;
  }
  held_.append(bytes.data(), size);
  if (!complete) return size;
  may_hold_nul_ = true;
  OnLine(held_);
  held_.clear();
  if (held_.capacity() > kHeldKept) held_.shrink_to_fit();
  return size;
}

// What is none is told at its first byte, for it may have no end of a line; not past the limit,
// where it is too large before it is wrong.
bool ResponseParser::MayBeStatusLine(absl::string_view bytes) const {
  if (held_.size() >= kBegin.size()) return true;
  const size_t held = held_.size();
  const absl::string_view wanted = kBegin.substr(held, reader_.header_bytes_left() - held);
  const size_t size = std::min(bytes.size(), wanted.size());
  return bytes.substr(0, size) == wanted.substr(0, size);
}

void ResponseParser::OnLine(absl::string_view line) {
  if (!reader_.CountLine(line.size())) {
    Stop(HttpFailure::kHeadersTooLarge);
    return;
  }
  line.remove_suffix(1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (Find(line, '\r') != kNowhere) framing_.Doubt();
  if (may_hold_nul_ && Find(line, '\0') != kNowhere) framing_.Doubt();
  if (state_ == State::kStatusLine) {
    const int status = framing_.OnStatusLine(line);
    if (status == 0) {
      Stop(HttpFailure::kProtocol);
      return;
    }
    reader_.OnStatus(status);
    state_ = State::kField;
  } else if (!line.empty()) {
    OnFieldLine(line);
  } else if (state_ == State::kField) {
    OnHeadEnd();
  } else {
    Finish();
  }
}

void ResponseParser::OnFieldLine(absl::string_view text) {
  if (IsBlank(text.front())) {
    framing_.OnFold();
    return;
  }
  const size_t colon = Find(text, ':');
  if (colon == kNowhere || colon == 0) {
    framing_.Doubt();
    return;
  }
  if (state_ == State::kTrailer) return;  // nothing of it is wanted
  absl::string_view name = text.substr(0, colon);
  if (IsBlank(name.back())) {
    framing_.Doubt();
    name = StripBlanks(name);
  }
  const absl::string_view value = StripBlanks(text.substr(colon + 1));
  framing_.OnField(name, value);
  reader_.OnField(name, value);
}

void ResponseParser::OnHeadEnd() {
  reader_.OnHeadEnd();
  if (!reader_.head_done()) {
    framing_.NextHead();
    state_ = State::kStatusLine;
    return;
  }
  switch (framing_.Decide(reader_.status(), request_)) {
    case BodyEnd::kNoBody:
      Finish();
      break;
    case BodyEnd::kLength:
      left_ = framing_.length();
      state_ = State::kLength;
      break;
    case BodyEnd::kChunked:
      state_ = State::kChunked;
      break;
    case BodyEnd::kConnection:
      state_ = State::kConnection;
      break;
    case BodyEnd::kUnclear:
      Stop(HttpFailure::kNone);
      break;
  }
}

size_t ResponseParser::TakeLength(absl::string_view bytes) {
  const auto size = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
  left_ -= size;
  if (!reader_.OnBody(bytes.substr(0, size))) {
    Stop(HttpFailure::kNone);
  } else if (left_ == 0) {
    Finish();
  }
  return size;
}

size_t ResponseParser::TakeChunked(absl::string_view bytes) {
  const size_t taken = chunks_.Take(bytes, reader_);
  switch (chunks_.phase()) {
    case ChunkedBody::Phase::kMore:
      break;
    case ChunkedBody::Phase::kLast:
      state_ = State::kTrailer;
      break;
    case ChunkedBody::Phase::kBroken:
    case ChunkedBody::Phase::kFull:
      Stop(HttpFailure::kNone);
      break;
  }
  return taken;
}

void ResponseParser::Finish() {
  state_ = State::kDone;
  whole_ = true;
}

void ResponseParser::Stop(HttpFailure failure) {
  state_ = State::kDone;
  if (!reader_.head_done()) failure_ = failure;
}

}  // namespace postrider::internal
