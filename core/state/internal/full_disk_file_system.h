#pragma once

#include <rocksdb/env.h>

#include <memory>

namespace postrider::internal {

// RocksDB goes on by itself after one kind of failed write, "no space left", and stops for good
// after any other. With the file system of this environment a full quota (EDQUOT) and a limit of
// the file size (EFBIG) are of that kind too. All else is the default environment's.
std::unique_ptr<rocksdb::Env> MakeFullDiskEnv();

}  // namespace postrider::internal
