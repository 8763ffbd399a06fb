#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rocksdb {
class Env;
}

namespace postrider::embedded_log_internal {

// The entries of the database (topics, where partitions begin and end, positions of groups) as they
// were at one time, by key: all that cannot be told from the records. A file of its own, so that
// damage of a table takes no topic away.
using Entries = std::map<std::string, std::string>;

// In place of what is there, whole or not at all; on the disk when it returns.
absl::Status WriteEntryCopy(rocksdb::Env& env, const std::string& path, const Entries& entries);
// kNotFound; kDataLoss: it is damaged, or of a newer version.
absl::StatusOr<Entries> ReadEntryCopy(rocksdb::Env& env, const std::string& path);

}  // namespace postrider::embedded_log_internal
