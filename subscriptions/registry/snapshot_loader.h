#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/postgres/connection.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::subscriptions {

struct SnapshotLoaderOptions {
  // Past this age of Snapshot::confirmed_at() nothing may be sent with it: see Usable().
  std::chrono::milliseconds age_max{std::chrono::hours(24)};
  std::chrono::milliseconds poll_interval{1000};
  std::chrono::milliseconds reconcile_interval{std::chrono::minutes(10)};
  // How long the first load is waited for before the file is used.
  std::chrono::milliseconds file_after{5000};
  // An unchanged snapshot is published and written again this often, with a newer confirmed_at.
  std::chrono::milliseconds confirm_interval{std::chrono::minutes(1)};
  // A changed one is written to the file at most this often.
  std::chrono::milliseconds write_interval{5000};
  std::string file;  // empty: none is kept

  // snapshot.age_max
  void Register(Options& options);
  bool Usable(const Snapshot& snapshot, WallTime now) const {
    return now - snapshot.confirmed_at() <= age_max;
  }
};

// Keeps a snapshot of the desired state: loads all, then asks once a second, and when woken by
// NOTIFY, for the rows whose changed_xid its last database snapshot did not see, so that a
// transaction that committed late is not missed; loads all again every ten minutes and whenever
// the database is another one or went back in time. With Postgres away it keeps what it has and
// tries on; when the first load has not come in time it starts from its file.
//
// Threads: the loop's; give it a loop that may wait, not a shard's: it builds for some
// milliseconds, writes the file and lets libpq resolve names.
// Bounds:  one load or poll at a time; rows come in portions.
class SnapshotLoader {
 public:
  // Called on the loop with each new snapshot; post it on to the shards.
  using Publish = absl::AnyInvocable<void(std::shared_ptr<const Snapshot>)>;

  // `connection`: how to log in as the reader; check_sql included.
  SnapshotLoader(EventLoop& loop, ConnectionOptions connection, SnapshotLoaderOptions options,
                 Metrics& metrics, uint64_t seed, Publish publish);
  ~SnapshotLoader();
  SnapshotLoader(const SnapshotLoader&) = delete;
  SnapshotLoader& operator=(const SnapshotLoader&) = delete;

  // The last one published; null before the first.
  std::shared_ptr<const Snapshot> current() const;
  // OK, or why the last load or poll failed.
  absl::Status health() const;
  // Looks now, as a notification would.
  void Wake();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider::subscriptions
