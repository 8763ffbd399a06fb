#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/state/savepoint_manifest.h"
#include "core/stream/log.h"

namespace postrider {

// Savepoints of a job whose tasks have durable state: a directory with every key group's state and
// the position that it goes with. All calls block: they are for the command line.
//
// What holds: first an acknowledged commit c is taken, then the state up to an end of the
// changelogs after it. So every message that c calls complete is done or in the state; what is
// neither stands in the dispatch topic from c on, which a hold keeps from being trimmed.

struct SavepointTag {
  static constexpr absl::string_view kPrefix = "sp_";
};
using SavepointId = Id<SavepointTag>;

// The topics of a pool and who reads them.
struct SavepointPool {
  std::string pool;  // without '/'
  std::string group;
  std::string topic;
  std::vector<std::string> changelogs;  // in the order of JobOptions::changelogs
  std::string control_topic;
};

struct CreateSavepointOptions {
  std::string directory;  // empty, or to be made
  SavepointId id;
  IdBytes log_identity{};  // for a log that has none yet: random
  std::chrono::milliseconds keep{
      std::chrono::hours(24)};  // for so long its records are not trimmed
  std::chrono::milliseconds timeout{30'000};
};

// The workers go on undisturbed. A fault leaves a directory that is no savepoint, and no hold; a
// crash leaves a hold that expires. kFailedPrecondition: the directory is not empty, or the pool is
// not as it should be (the message says what).
absl::StatusOr<SavepointManifest> CreateSavepoint(Log& log, const Clock& clock,
                                                  const SavepointPool& pool,
                                                  const CreateSavepointOptions& options);

// Reads the manifest alone. kNotFound: there is none, so this is no savepoint.
absl::StatusOr<SavepointManifest> InspectSavepoint(const std::string& directory);
// Reads every file of it to the end and compares it with the manifest. kDataLoss, kUnimplemented:
// not usable, and why.
absl::StatusOr<SavepointManifest> VerifySavepoint(const std::string& directory);

struct RestoreSavepointOptions {
  std::string directory;
  IdBytes writer{};  // random: the positions that are stored have its name
  // The log does not reach back to the savepoint's position any more, or does not say that it is
  // the same one: go on from what there is.
  bool accept_loss = false;
  std::chrono::milliseconds timeout{30'000};
  // For tests: asked before each step that changes something; its fault ends the restore there.
  std::function<absl::Status()> before_step = {};
};

struct RestoreReport {
  SavepointManifest manifest;
  uint64_t entries_put = 0;
  uint64_t entries_deleted = 0;
  // Messages that were complete since, and will be done again; at most.
  uint64_t repeated_max = 0;
  // Messages that the log does not have any more; at most. 0 without accept_loss.
  uint64_t lost_max = 0;
};

// Puts a pool back to where it was: state, positions and completed messages. The pool is stopped
// meanwhile, and a mark in the control topic keeps its workers from starting until it is done.
//
// Nothing is changed before everything was verified. kFailedPrecondition: the savepoint is not of
// this pool as it is, the pool is running, or messages would be missing; kDataLoss and
// kUnimplemented as of VerifySavepoint(). A fault or a crash in the middle: the mark stays, and the
// same call again gives the same result. The positions go first: whatever follows is then at most
// repeated, however far it came.
absl::StatusOr<RestoreReport> RestoreSavepoint(Log& log, const Clock& clock,
                                               const SavepointPool& pool,
                                               const RestoreSavepointOptions& options);
// Takes the mark of a restore away that will not be finished: the state is then partly of before
// and partly of the savepoint; messages are repeated, none is lost. kNotFound: there is no mark.
absl::Status AbandonRestore(Log& log, const Clock& clock, const std::string& control_topic,
                            const std::string& pool);

struct SavepointListing {
  std::string pool;
  std::string id;
  WallTime created;
  WallTime expires;
  std::string unreadable;  // why nothing else is known of it; empty: it is
};
// Those whose records are held, expired ones too, by (pool, id).
absl::StatusOr<std::vector<SavepointListing>> ListSavepoints(Log& log, const Clock& clock,
                                                             const std::string& control_topic);
// Its records are held no longer; its directory stays. kNotFound: no hold has this id.
absl::Status DropSavepoint(Log& log, const Clock& clock, const std::string& control_topic,
                           const std::string& id);

}  // namespace postrider
