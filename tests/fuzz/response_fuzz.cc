#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/http/internal/response_parser.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using internal::AnswerTo;
using internal::ResponseLimits;
using internal::ResponseParser;

enum class Ending { kOpen, kEnd, kBreak };

struct Reading {
  HttpFailure failure = HttpFailure::kNone;
  bool head_done = false;
  int status = 0;
  bool done = false;
  bool cut = false;
  bool reusable = false;
  size_t taken = 0;
  std::vector<std::string> retry_after;
  absl::optional<std::string> date;
  HttpHeaders kept;
  std::string body;
};

void CheckSame(const Reading& a, const Reading& b) {
  POSTRIDER_CHECK(a.failure == b.failure && a.head_done == b.head_done);
  POSTRIDER_CHECK(a.done == b.done && a.cut == b.cut && a.reusable == b.reusable);
  if (!a.head_done) return;
  POSTRIDER_CHECK(a.status == b.status && a.body == b.body);
  if (a.done && !a.cut) POSTRIDER_CHECK(a.taken == b.taken);
  POSTRIDER_CHECK(a.retry_after == b.retry_after && a.date == b.date && a.kept == b.kept);
}

Reading Read(absl::string_view bytes, const ResponseLimits& limits, AnswerTo request, size_t first,
             size_t piece, Ending ending) {
  ResponseParser parser;
  parser.Start(limits, request);
  Reading reading;
  for (size_t at = 0; at < bytes.size();) {
    const absl::string_view part = bytes.substr(at, at == 0 ? first : piece);
    const bool was_done = parser.done();
    const size_t taken = parser.OnBytes(part);
    POSTRIDER_CHECK(taken <= part.size());
    POSTRIDER_CHECK(taken == part.size() || parser.done());
    POSTRIDER_CHECK(!was_done || taken == 0);
    reading.taken += taken;
    at += part.size();
  }
  if (ending == Ending::kEnd) parser.OnEnd();
  if (ending == Ending::kBreak) parser.OnBreak();
  POSTRIDER_CHECK(parser.done() || ending == Ending::kOpen);
  reading.failure = parser.failure();
  reading.head_done = parser.reader().head_done();
  reading.status = parser.reader().status();
  reading.done = parser.done();
  reading.cut = parser.body_cut();
  reading.reusable = parser.reusable();
  reading.retry_after = parser.reader().TakeRetryAfter();
  reading.date = parser.reader().TakeDate();
  reading.kept = parser.reader().TakeKept();
  reading.body = parser.reader().TakeBody();
  return reading;
}

void CheckBounds(const Reading& reading, const ResponseLimits& limits) {
  POSTRIDER_CHECK(reading.body.size() <= limits.body_bytes_max);
  POSTRIDER_CHECK(reading.retry_after.size() <= 4 && reading.kept.size() <= 8);
  for (const std::string& value : reading.retry_after) POSTRIDER_CHECK(value.size() <= 128);
  for (const auto& [name, value] : reading.kept) {
    POSTRIDER_CHECK(name.size() <= 128 && value.size() <= 128);
  }
  if (reading.head_done) {
    POSTRIDER_CHECK(reading.failure == HttpFailure::kNone);
    POSTRIDER_CHECK(reading.status >= 100 && reading.status <= 999);
    POSTRIDER_CHECK(reading.status == 101 || reading.status >= 200);
  } else {
    POSTRIDER_CHECK(reading.done == (reading.failure != HttpFailure::kNone));
    POSTRIDER_CHECK(!reading.cut && reading.body.empty());
  }
  if (reading.reusable) {
    POSTRIDER_CHECK(reading.done && reading.head_done && !reading.cut);
  }
}

// Any bytes: however they are cut, they are read the same.
void ReadAnything(Input in) {
  const ResponseLimits limits = {16 + in.UpTo(4'000), 2 + in.Byte() % 100, in.UpTo(2'000), "x-"};
  const auto request = in.Byte() % 8 == 0 ? AnswerTo::kConnect : AnswerTo::kPost;
  const size_t first = 1 + in.Byte();
  const size_t piece = 1 + in.Byte();
  const absl::string_view bytes = in.rest();
  for (const Ending ending : {Ending::kOpen, Ending::kEnd, Ending::kBreak}) {
    const Reading whole = Read(bytes, limits, request, bytes.size(), 1, ending);
    CheckBounds(whole, limits);
    CheckSame(whole, Read(bytes, limits, request, first, piece, ending));
    CheckSame(whole, Read(bytes, limits, request, 1, 1, ending));
    // Nothing after the answer is part of it.
    if (!whole.reusable) continue;
    const std::string longer = absl::StrCat(bytes, "HTTP/1.1 200 OK\r\n\r\n");
    const Reading surplus = Read(longer, limits, request, longer.size(), 1, ending);
    POSTRIDER_CHECK(surplus.taken == whole.taken && surplus.body == whole.body);
    POSTRIDER_CHECK(!surplus.reusable);
  }
}

std::string Chunked(Input& in, absl::string_view body) {
  std::string text;
  while (!body.empty()) {
    const absl::string_view chunk = body.substr(0, 1 + in.UpTo(body.size() - 1));
    absl::StrAppend(&text, absl::Hex(chunk.size()), in.Flag() ? ";a=b" : "", "\r\n", chunk, "\r\n");
    body.remove_prefix(chunk.size());
  }
  absl::StrAppend(&text, "0\r\n", in.Flag() ? "T: x\r\n" : "", "\r\n");
  return text;
}

// What a well-meaning receiver writes is read as it was meant.
void ReadWellMade(Input in) {
  const int status = 200 + static_cast<int>(in.UpTo(799));
  const bool chunked = in.Flag();
  const bool close = in.Flag();
  std::string text;
  for (uint64_t interims = in.UpTo(3); interims > 0; --interims) {
    absl::StrAppend(&text, "HTTP/1.1 103 Hints\r\nRetry-After: 1\r\n\r\n");
  }
  absl::StrAppend(&text, "HTTP/1.1 ", status, in.Flag() ? " X" : "", "\r\n");
  if (close) absl::StrAppend(&text, "Connection: close\r\n");
  absl::StrAppend(&text, "Retry-After: 7\r\n");
  const size_t first = 1 + in.Byte();
  const size_t piece = 1 + in.Byte();
  std::string body(in.Text());
  if (status == 204 || status == 304) {
    body.clear();
    absl::StrAppend(&text, "\r\n");
  } else if (chunked) {
    absl::StrAppend(&text, "Transfer-Encoding: chunked\r\n\r\n", Chunked(in, body));
  } else {
    absl::StrAppend(&text, "Content-Length: ", body.size(), "\r\n\r\n", body);
  }
  const ResponseLimits limits = {16'384, 40, 255, {}};
  const Reading reading =
      Read(absl::StrCat(text, in.rest()), limits, AnswerTo::kPost, first, piece, Ending::kOpen);
  POSTRIDER_CHECK(reading.done && !reading.cut && reading.failure == HttpFailure::kNone);
  POSTRIDER_CHECK(reading.status == status && reading.body == body);
  POSTRIDER_CHECK(reading.taken == text.size());
  POSTRIDER_CHECK(reading.retry_after == std::vector<std::string>{"7"});
  POSTRIDER_CHECK(reading.reusable == (!close && in.rest().empty()));
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  ReadAnything(Input(data, size));
  ReadWellMade(Input(data, size));
  return 0;
}
