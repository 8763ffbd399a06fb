#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/stream/blocking_reader.h"
#include "core/stream/record.h"

namespace postrider {

// A value of a task's durable state as its changelog has it.
struct DurableEntry {
  absl::string_view identity;  // an encoded StateKey
  uint64_t epoch = 0;          // of the owner that put it
  absl::string_view payload;   // an encoded StatePayload
};

struct DurableStateFigures {
  uint64_t entries = 0;
  uint64_t epoch_max = 0;  // of all records, markers and fenced ones too
  uint64_t records = 0;    // read
};

// Reads the durable state that one changelog partition had at an end offset, as a restoring task
// would find it: what is removed, superseded or fenced is left out. Blocks: for the command line.
//
// Threads: owned by one. Bounds: in memory the identities, about 300 bytes each; their values pass
// through a temporary file in `spool_directory`.
class DurableStateReader {
 public:
  // `reader` outlives it.
  DurableStateReader(BlockingReader& reader, std::string spool_directory);

  // Passes each entry once, in the order of the records that put them. kDataLoss,
  // kFailedPrecondition: a record cannot be read, or a newer version wrote it. The views are valid
  // during the call only; `visit`'s fault ends it.
  absl::StatusOr<DurableStateFigures> Read(
      const TopicPartition& changelog, int64_t end,
      absl::FunctionRef<absl::Status(const DurableEntry&)> visit);

  // The identities alone; needs no temporary file.
  struct Identities {
    absl::flat_hash_set<std::string> identities;
    DurableStateFigures figures;
  };
  absl::StatusOr<Identities> ReadIdentities(const TopicPartition& changelog, int64_t end);

 private:
  BlockingReader& reader_;
  const std::string spool_directory_;
};

}  // namespace postrider
