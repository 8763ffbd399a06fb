#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/options.h"
#include "core/json/reader.h"
#include "core/stream/record.h"

namespace postrider::subscriptions {

// Why a record is no event that can be delivered. Closed: a label of metrics, and a word in the
// `rejected` topic.
enum class RejectReason {
  kTooLarge,
  kNotJson,  // not exactly one JSON value
  kNotUtf8,
  kTooDeep,
  kTenantWrongType,
  kDepartmentWrongType,
  kIdWrongType,
  kBadTime,
  kBadText,  // a field that is no UTF-8, has control characters, or is longer than
             // kEventFieldBytesMax
  kLoop,     // was delivered and published again too often
};
inline constexpr int kRejectReasons = 10;
absl::string_view RejectReasonName(RejectReason reason);

inline constexpr size_t kEventFieldBytesMax = 256;

// Where an event's fields stand. Each list is tried in its order; a field that is absent, null or
// empty is looked for in the next place, one of a wrong type rejects the record.
struct JsonDecoderOptions {
  std::string topic_prefix = "events.";
  std::vector<std::string> tenant = {"header:tenant", "/tenant"};
  std::vector<std::string> department = {"header:department", "/department"};
  std::vector<std::string> id = {"header:id", "/id"};
  std::vector<std::string> time = {"header:time", "/time"};
  int64_t bytes_max = 512 << 10;

  // source.topic_prefix, source.tenant, source.department, source.id, source.time, event.bytes_max
  void Register(Options& options);
};

// An event as the decoder sees it: views into the record and the decoder, good until its next
// Begin().
struct DecodedEvent {
  absl::string_view tenant;
  absl::optional<absl::string_view> department;
  absl::string_view id;  // empty: none was given
  WallTime time;         // the record's own when none was given
};

// Reads source records whose value is a JSON document and is delivered as it is. In two steps, so
// that an event that nobody gets is not parsed when its headers say enough:
//
//   Begin()   size and tenant. The value is parsed only if a pointer has to be followed.
//   Finish()  proves that the value is exactly one JSON value, and finds the other fields.
//
// Of a name that stands twice in an object the first counts. A number is taken for an id, by its
// text; for a tenant or department it is a wrong type.
//
// Threads: owned by one shard.
class JsonDecoder {
 public:
  // InvalidArgument names the option whose value is no "header:<name>" and no JSON pointer.
  static absl::StatusOr<std::unique_ptr<JsonDecoder>> Create(const JsonDecoderOptions& options);

  // The topic's name without the prefix, or all of it when it has another.
  absl::string_view TypeOf(absl::string_view topic) const;

  // No value: go on, event().tenant is set, empty when there is none. `record` and its views stay
  // as they are until Finish() is through.
  absl::optional<RejectReason> Begin(const LogRecord& record);
  // After Begin() gave no reason. No value: event() is whole.
  absl::optional<RejectReason> Finish();

  const DecodedEvent& event() const { return event_; }

 private:
  struct Place {
    std::string header;  // empty: the pointer
    JsonPointer pointer;
  };
  using Places = std::vector<Place>;
  enum class Taken { kNone, kText, kNumber, kWrongType };

  JsonDecoder() = default;
  static absl::StatusOr<Places> ParsePlaces(const std::vector<std::string>& texts,
                                            absl::string_view option);
  absl::optional<RejectReason> Prove();
  // Looks a field up; `*taken` says what was found, `*text` its text.
  absl::optional<RejectReason> Take(const Places& places, Taken* taken, absl::string_view* text);

  std::string topic_prefix_;
  size_t bytes_max_ = 0;
  Places tenant_;
  Places department_;
  Places id_;
  Places time_;

  JsonProver prover_;
  PointerReader reader_;
  LogRecord record_;
  bool proven_ = false;
  DecodedEvent event_;
};

}  // namespace postrider::subscriptions
