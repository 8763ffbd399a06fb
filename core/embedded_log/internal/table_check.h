#pragma once

#include <rocksdb/db.h>
#include <rocksdb/options.h>

#include <cstddef>
#include <vector>

#include "core/embedded_log/internal/database.h"

namespace postrider::embedded_log_internal {

// Reads each table of an open database whole. `tables` is how many there are.
std::vector<TableDamage> CheckTables(rocksdb::DB& db, const rocksdb::Options& options,
                                     size_t* tables);

}  // namespace postrider::embedded_log_internal
