#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace postrider::internal {

// What an answer is an answer to, as far as that decides where it ends.
enum class AnswerTo : uint8_t { kPost, kConnect };

enum class BodyEnd : uint8_t {
  kNoBody,
  kLength,      // after length() bytes, which are not 0
  kChunked,     // by its own last chunk
  kConnection,  // when the connection ends
  kUnclear,     // the head contradicts itself: no byte after it can be trusted
};

// What the head of one answer says about where the answer ends (RFC 9112, 6.3) and whether the
// connection goes on (9.3). Whatever could be read in two ways is a doubt: the status counts all
// the same, but the connection takes no more requests.
class ResponseFraming {
 public:
  // Forgets everything.
  void Start() { *this = ResponseFraming(); }
  // The head was that of an interim answer: forgets its fields, not its doubts.
  void NextHead();

  // `text` without the line's end. The status, 100 to 999; 0: that is no HTTP/1.
  int OnStatusLine(absl::string_view text);
  // Without white space around either.
  void OnField(absl::string_view name, absl::string_view value);
  // A line that continues the field before (obs-fold).
  void OnFold();
  void Doubt() { clear_ = false; }

  // The head is complete.
  BodyEnd Decide(int status, AnswerTo request);
  uint64_t length() const { return length_; }
  bool keeps_connection() const { return clear_ && !close_ && (version_1_1_ || keep_alive_); }

 private:
  enum class Field : uint8_t { kOther, kLength, kCoding, kConnection };

  void OnLength(absl::string_view value);
  void OnCoding(absl::string_view value);
  void OnConnection(absl::string_view value);

  uint64_t length_ = 0;
  bool has_length_ = false;
  bool has_coding_ = false;    // any that changes where the body ends
  bool last_chunked_ = false;  // the last coding is "chunked"
  bool contradicts_ = false;
  bool version_1_1_ = false;
  bool close_ = false;
  bool keep_alive_ = false;
  bool clear_ = true;
  Field last_field_ = Field::kOther;
};

}  // namespace postrider::internal
