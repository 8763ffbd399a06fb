#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/stream/log.h"

namespace postrider {

// How far an export of an embedded log to Kafka is, which of the topics there are its own, and who
// works on it: in a compacted topic there, so that a later run knows, on whatever machine.
//
// Threads: owned by one; all calls block.
class LogExportMarks {
 public:
  // kBegun: topics and records are being copied. kPositions: all records are, and positions of
  // groups may be. kDone: it is over.
  enum class State { kNone, kBegun, kPositions, kDone };
  struct Topic {
    int64_t created_ms = 0;  // of the embedded one
    std::string spoiled;     // why what is in Kafka is not what it should be; empty: it is
  };

  // All outlive it. `name` is the topic's, which Take() makes.
  LogExportMarks(Log& to, const Clock& clock, std::string name);

  // kFailedPrecondition: what is there cannot be read.
  absl::Status Load();
  // From now on this run is the one that works on it. A state of kNone becomes kBegun.
  absl::Status Take();
  // kAborted: another run has taken it over.
  absl::Status CheckTaken();

  // `outline` tells what the embedded log held (kPositions, kDone).
  absl::Status Set(State state, absl::string_view outline);
  absl::Status SetTopics(const std::map<std::string, Topic>& topics);

  State state() const { return state_; }
  const std::string& outline() const { return outline_; }
  const std::map<std::string, Topic>& topics() const { return topics_; }
  const std::string& name() const { return name_; }

 private:
  absl::Status Take(const LogRecord& record);
  absl::Status Write(const std::vector<std::pair<std::string, std::string>>& marks);
  absl::Status Unreadable() const;

  Log& to_;
  const Clock& clock_;
  const std::string name_;
  const std::string run_;
  State state_ = State::kNone;
  std::string outline_;
  std::string last_run_;
  std::map<std::string, Topic> topics_;
};

}  // namespace postrider
