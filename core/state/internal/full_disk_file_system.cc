#include "core/state/internal/full_disk_file_system.h"

#include <rocksdb/file_system.h>
#include <rocksdb/io_status.h>

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace postrider::internal {
namespace {

using rocksdb::FileOptions;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// RocksDB keeps of an errno only its text.
IOStatus AsNoSpace(IOStatus status) {
  static const std::string quota = std::generic_category().message(EDQUOT);
  static const std::string file_size = std::generic_category().message(EFBIG);
  if (!status.IsIOError() || status.IsNoSpace()) return status;
  const std::string text = status.ToString();
  if (text.find(quota) == std::string::npos && text.find(file_size) == std::string::npos) {
    return status;
  }
  IOStatus full = IOStatus::NoSpace(text);
  full.SetRetryable(status.GetRetryable());
  return full;
}

class File final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  using FSWritableFileOwnerWrapper::FSWritableFileOwnerWrapper;

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    return AsNoSpace(FSWritableFileOwnerWrapper::Append(data, options, dbg));
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& info, IODebugContext* dbg) override {
    return AsNoSpace(FSWritableFileOwnerWrapper::Append(data, options, info, dbg));
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* dbg) override {
    return AsNoSpace(FSWritableFileOwnerWrapper::PositionedAppend(data, offset, options, dbg));
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const rocksdb::DataVerificationInfo& info,
                            IODebugContext* dbg) override {
    return AsNoSpace(
        FSWritableFileOwnerWrapper::PositionedAppend(data, offset, options, info, dbg));
  }
  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* dbg) override {
    return AsNoSpace(FSWritableFileOwnerWrapper::Truncate(size, options, dbg));
  }
  IOStatus Close(const IOOptions& options, IODebugContext* dbg) override {
    return AsNoSpace(FSWritableFileOwnerWrapper::Close(options, dbg));
  }
  IOStatus Flush(const IOOptions& options, IODebugContext* dbg) override {
    return AsNoSpace(FSWritableFileOwnerWrapper::Flush(options, dbg));
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    return AsNoSpace(FSWritableFileOwnerWrapper::Sync(options, dbg));
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    return AsNoSpace(FSWritableFileOwnerWrapper::Fsync(options, dbg));
  }
  IOStatus RangeSync(uint64_t offset, uint64_t bytes, const IOOptions& options,
                     IODebugContext* dbg) override {
    return AsNoSpace(FSWritableFileOwnerWrapper::RangeSync(offset, bytes, options, dbg));
  }
  IOStatus Allocate(uint64_t offset, uint64_t bytes, const IOOptions& options,
                    IODebugContext* dbg) override {
    return AsNoSpace(FSWritableFileOwnerWrapper::Allocate(offset, bytes, options, dbg));
  }
};

class FullDiskFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;

  const char* Name() const override { return "PostriderFullDiskFileSystem"; }

  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* result, IODebugContext* dbg) override {
    return Wrapped(FileSystemWrapper::NewWritableFile(name, options, result, dbg), result);
  }
  IOStatus ReopenWritableFile(const std::string& name, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result,
                              IODebugContext* dbg) override {
    return Wrapped(FileSystemWrapper::ReopenWritableFile(name, options, result, dbg), result);
  }
  IOStatus ReuseWritableFile(const std::string& name, const std::string& old_name,
                             const FileOptions& options, std::unique_ptr<FSWritableFile>* result,
                             IODebugContext* dbg) override {
    return Wrapped(FileSystemWrapper::ReuseWritableFile(name, old_name, options, result, dbg),
                   result);
  }
  IOStatus CreateDir(const std::string& name, const IOOptions& options,
                     IODebugContext* dbg) override {
    return AsNoSpace(FileSystemWrapper::CreateDir(name, options, dbg));
  }
  IOStatus CreateDirIfMissing(const std::string& name, const IOOptions& options,
                              IODebugContext* dbg) override {
    return AsNoSpace(FileSystemWrapper::CreateDirIfMissing(name, options, dbg));
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    return AsNoSpace(FileSystemWrapper::RenameFile(from, to, options, dbg));
  }

 private:
  static IOStatus Wrapped(const IOStatus& status, std::unique_ptr<FSWritableFile>* file) {
    if (status.ok()) *file = std::make_unique<File>(std::move(*file));
    return AsNoSpace(status);
  }
};

}  // namespace

std::unique_ptr<rocksdb::Env> MakeFullDiskEnv() {
  return rocksdb::NewCompositeEnv(
      std::make_shared<FullDiskFileSystem>(rocksdb::FileSystem::Default()));
}

}  // namespace postrider::internal
