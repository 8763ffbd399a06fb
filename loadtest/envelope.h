#pragma once

#include <functional>
#include <memory>

#include "absl/strings/string_view.h"

namespace postrider::loadtest {

// One message as a body carries it. Views are good inside the visitor only; `data` is the raw JSON.
struct EnvelopeMessage {
  absl::string_view id;
  absl::string_view event_id;
  absl::string_view type;
  absl::string_view timestamp;
  absl::string_view tenant;
  absl::string_view department;  // empty: null
  absl::string_view data;
};

// Reads bodies of one envelope or of a JSON array of them; members in any order, each exactly once.
// Threads: owned by one.
class EnvelopeReader {
 public:
  EnvelopeReader();
  ~EnvelopeReader();

  enum class Shape { kMalformed, kSingle, kBatch };
  // kMalformed may come after the visitor has seen some messages.
  Shape Read(absl::string_view body, const std::function<void(const EnvelopeMessage&)>& visit);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace postrider::loadtest
