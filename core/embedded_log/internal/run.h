#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/stream/record.h"

namespace postrider::embedded_log_internal {

// A run: consecutive records of one partition, which were appended together and lie in the database
// under one key. Its offsets are [base, next); compaction may have left out some. Immutable.
struct Run {
  int64_t base = 0;  // of the first record, until compaction drops that
  int64_t next = 0;  // behind the last record
  // As it is stored; empty: no record of it is left.
  std::string bytes;
};
using RunPtr = std::shared_ptr<const Run>;

// What a stored run begins with.
struct RunHeader {
  uint32_t records = 0;
  int64_t next = 0;
  int64_t first_ms = 0;
  // The latest time of any record of the partition up to the end of this run, or by which it ages
  // if the clock was set back meanwhile. So it never falls from run to run, wherever the clock
  // goes, and a time can be looked up by halving.
  int64_t high_ms = 0;
  // The bytes of all runs that the partition ever had before this one.
  uint64_t bytes_before = 0;
};
inline constexpr size_t kRunHeaderBytes = 40;

// Where a stored run lies, without its records.
struct RunPlace {
  int64_t base = 0;
  size_t bytes = 0;
  RunHeader header;
};

// What is refused: no run of a version that we do not know is guessed at.
absl::optional<RunHeader> ReadRunHeader(absl::string_view bytes);

// Builds the stored form. Threads: owned by one.
class RunBuilder {
 public:
  bool empty() const { return header_.records == 0; }
  size_t bytes() const { return bytes_.size(); }

  // Begins a run whose first offset is `base`.
  void Begin(int64_t base, int64_t ms);
  void Add(int64_t offset, int64_t ms, absl::string_view key, absl::string_view value,
           bool tombstone, const std::vector<std::pair<std::string, std::string>>& headers);
  // A record as a RunReader gave it.
  void Add(int64_t offset, int64_t ms, const LogRecord& record);
  // Ends it; the builder is empty then.
  std::shared_ptr<Run> Finish(int64_t next, int64_t high_ms, uint64_t bytes_before);

 private:
  void AddHead(int64_t offset, int64_t ms, absl::string_view key, absl::string_view value,
               bool tombstone, size_t headers);

  int64_t base_ = 0;
  RunHeader header_;
  std::string bytes_;
};

// Reads the records of a run in their order. The run outlives it.
class RunReader {
 public:
  RunReader() = default;
  explicit RunReader(const Run& run);

  // The next record, without its topic and partition; its views are into the run, its headers are
  // valid until the next call. False: there is none, or the bytes are no run; see damaged().
  bool Next(LogRecord* record);
  bool damaged() const { return damaged_; }

 private:
  int64_t base_ = 0;
  int64_t next_ = 0;
  int64_t last_ = -1;
  int64_t first_ms_ = 0;
  uint32_t left_ = 0;
  bool damaged_ = false;
  absl::string_view rest_;
  std::vector<RecordHeader> headers_;
};

}  // namespace postrider::embedded_log_internal
