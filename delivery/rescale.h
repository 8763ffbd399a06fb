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
#include "core/stream/log.h"

namespace postrider::delivery {

// Gives a pool another number of key groups. All calls block: they are for the command line.
//
//   steady --> draining: matchers stop; workers park what pends and go on until all is complete
//          --> moving:   nobody works on the pool; its dispatch topic is closed for good; topics of
//                        a generation that never was are made; every entry of the backlog is
//                        appended to the new dispatch topic by the new hash, with its batch, its
//                        attempts and its time, and so is every record that nobody has completed;
//                        what is known of endpoints to their new state topic
//          --> steady:   the pointer names the new generation; the old topics are removed
//
// Nothing of the old topics is removed before the pointer has moved, and whatever was appended to
// topics that it never came to name is not used by anybody: after a fault or a crash the same call
// begins anew. That nothing is lost does not rest on the draining, which only keeps what is carried
// over small: what a commit does not call complete is appended, whoever was stopped and however.

struct RescalePool {
  std::string topic_prefix;
  std::string pool;
  std::string match_group;      // that of the matchers
  int16_t replication = 3;      // of the new topics
  IdBytes holder{};             // random: names this call
  std::string spool_directory;  // for what does not fit into memory; exists
  std::chrono::milliseconds drain_wait_max{std::chrono::minutes(5)};
  std::chrono::milliseconds leave_wait_max{std::chrono::minutes(2)};  // of one that was killed too
  std::chrono::milliseconds lease{30'000};
  std::chrono::milliseconds timeout{30'000};     // of one answer of the log
  std::function<void(Duration)> sleep;           // empty: really
  std::function<void(const std::string&)> tell;  // a line for the operator; empty: nobody
  // For tests: asked before each step that changes something; its fault ends the call there.
  std::function<absl::Status()> before_step;
};

struct RescaleOptions {
  int32_t key_groups = 0;  // 1..kKeyGroupsMax
  bool keep_old = false;   // the old topics stay
};
inline constexpr int32_t kKeyGroupsMax = 4'096;

struct RescaleReport {
  uint64_t generation = 1;
  int32_t key_groups_before = 0;
  int32_t key_groups = 0;
  bool moved = false;      // false: it had so many already
  uint64_t states = 0;     // of endpoints: their health, what was told and what was learned of them
  uint64_t entries = 0;    // of the backlog, in their batches or alone
  uint64_t batches = 0;    // that had been tried
  uint64_t left_over = 0;  // records that nobody had completed
  std::vector<std::string> removed;
  std::vector<std::string> kept;  // topics of before, and why they are there
};

// kInvalidArgument: the number is out of range. kFailedPrecondition: there is no such pool, another
// call holds it, or it does not come to rest (the message says what to do): it works on as before,
// or, once its topics are closed, stands still until the call is made again.
absl::StatusOr<RescaleReport> Rescale(Log& log, const Clock& clock, const RescalePool& pool,
                                      const RescaleOptions& options);

// Lets a pool whose rescale has ended in the middle go on as it was, whoever held it.
// kFailedPrecondition: its topics are closed already, so that it can only go forward: to the number
// that it had, if that is wanted. kNotFound: it is not being rescaled.
absl::Status AbortRescale(Log& log, const Clock& clock, const RescalePool& pool);

// Puts back what a savepoint of the pool holds whose key groups are not those of the pool: it was
// made before a rescale, or in another cluster. Its backlog, and what was not complete then as far
// as its dispatch topic is still there, is appended to the pool's dispatch topic by the hash of
// now, with batches and attempts. The pool's workers are stopped; nothing of it is removed, and a
// message that it has done or has already comes once more at most for each call.
//
// kFailedPrecondition: messages would be missing that the log does not have any more, and
// `accept_loss` is false; or the pool runs or is being rescaled. kDataLoss, kUnimplemented: as of
// VerifySavepoint().
struct AdoptReport {
  std::string savepoint;
  int32_t key_groups_before = 0;
  int32_t key_groups = 0;
  uint64_t entries = 0;
  uint64_t batches = 0;
  uint64_t left_over = 0;
};
absl::StatusOr<AdoptReport> AdoptSavepoint(Log& log, const Clock& clock, const RescalePool& pool,
                                           const std::string& directory, bool accept_loss);

}  // namespace postrider::delivery
