#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace postrider::delivery {

// What a worker's open files are divided by.
struct FileDemand {
  int64_t limit = 0;   // of the process (RLIMIT_NOFILE)
  int64_t others = 0;  // what other roles of the process may have open
  int64_t shards = 1;
  int64_t key_groups = 64;   // each may have a database on disk; a worker left alone has them all
  int64_t requests_max = 0;  // per shard, each with a socket
  int64_t connections_max = 0;  // per shard, kept open when they are idle, as memory allows
};

// How many idle connections each shard may keep so that no request lacks a file: at most
// connections_max. kInvalidArgument: there are not even enough for the requests; it names the
// smallest limit that works.
absl::StatusOr<int64_t> IdleConnectionsWithin(const FileDemand& demand);

}  // namespace postrider::delivery
