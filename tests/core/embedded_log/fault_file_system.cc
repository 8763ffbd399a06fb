#include "tests/core/embedded_log/fault_file_system.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "rocksdb/file_system.h"
#include "rocksdb/io_status.h"

namespace postrider::tests {
namespace {

using rocksdb::FileOptions;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

IOStatus StatusOf(FaultDisk& disk, FaultDisk::Action action) {
  bool full = false;
  const std::string fault = disk.Fault(action, &full);
  if (fault.empty()) return IOStatus::OK();
  return full ? IOStatus::NoSpace(fault) : IOStatus::IOError(fault);
}

class File final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  File(std::unique_ptr<FSWritableFile>&& file, FaultDisk& disk, std::string name)
      : FSWritableFileOwnerWrapper(std::move(file)), disk_(disk), name_(std::move(name)) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status = StatusOf(disk_, FaultDisk::Action::kWrite);
    if (status.ok()) status = FSWritableFileOwnerWrapper::Append(data, options, dbg);
    if (status.ok()) disk_.Wrote(name_, data.size());
    return status;
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo&,
                  IODebugContext* dbg) override {
    return Append(data, options, dbg);
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status = StatusOf(disk_, FaultDisk::Action::kSync);
    if (status.ok()) status = FSWritableFileOwnerWrapper::Flush(options, dbg);
    if (status.ok()) disk_.Synced(name_);
    return status;
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    return Sync(options, dbg);
  }
  IOStatus Allocate(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override {
    return StatusOf(disk_, FaultDisk::Action::kWrite);
  }
  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }

 private:
  FaultDisk& disk_;
  const std::string name_;
};

class FaultFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit FaultFileSystem(FaultDisk& disk)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), disk_(disk) {}

  const char* Name() const override { return "PostriderFaultFileSystem"; }

  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* result, IODebugContext* dbg) override {
    IOStatus status = StatusOf(disk_, FaultDisk::Action::kWrite);
    if (!status.ok()) return status;
    status = FileSystemWrapper::NewWritableFile(name, options, result, dbg);
    if (status.ok()) {
      disk_.Opened(name);
      *result = std::make_unique<File>(std::move(*result), disk_, name);
    }
    return status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    IOStatus status = StatusOf(disk_, FaultDisk::Action::kWrite);
    if (status.ok()) status = FileSystemWrapper::RenameFile(from, to, options, dbg);
    if (status.ok()) disk_.Renamed(from, to);
    return status;
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions& options,
                      IODebugContext* dbg) override {
    // Room is made on a full disk too.
    bool full = false;
    const std::string fault = disk_.Fault(FaultDisk::Action::kWrite, &full);
    if (!fault.empty() && !full) return IOStatus::IOError(fault);
    const IOStatus status = FileSystemWrapper::DeleteFile(name, options, dbg);
    if (status.ok()) disk_.Deleted(name);
    return status;
  }

 private:
  FaultDisk& disk_;
};

}  // namespace

FaultDisk::FaultDisk() : env_(rocksdb::NewCompositeEnv(std::make_shared<FaultFileSystem>(*this))) {}
FaultDisk::~FaultDisk() = default;

void FaultDisk::SetFull(bool full) {
  absl::MutexLock lock(&mutex_);
  full_ = full;
}
void FaultDisk::SetSyncFails(bool fails) {
  absl::MutexLock lock(&mutex_);
  sync_fails_ = fails;
}
void FaultDisk::SetSyncHangs(bool hangs) {
  absl::MutexLock lock(&mutex_);
  sync_hangs_ = hangs;
}
void FaultDisk::CutPowerAfter(uint64_t actions) {
  absl::MutexLock lock(&mutex_);
  until_cut_ = actions;
}
bool FaultDisk::cut() {
  absl::MutexLock lock(&mutex_);
  return until_cut_ == 0;
}

void FaultDisk::LoseUnsynced(Random& random) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [name, file] : files_) {
    std::error_code error;
    if (file.written <= file.synced || !std::filesystem::exists(name, error)) continue;
    const uint64_t kept = file.synced + random.Below(file.written - file.synced + 1);
    std::filesystem::resize_file(name, kept, error);
    if (kept == file.synced || random.Below(2) == 0) continue;
    // A page that was begun.
    std::fstream torn(name, std::ios::in | std::ios::out | std::ios::binary);
    torn.seekp(static_cast<std::streamoff>(file.synced + random.Below(kept - file.synced)));
    torn.put(static_cast<char>(random.Next()));
  }
  files_.clear();
  until_cut_ = kNever;
}

std::string FaultDisk::Fault(Action action, bool* full) {
  absl::MutexLock lock(&mutex_);
  const auto goes_on = [](FaultDisk* disk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(disk->mutex_) {
    return !disk->sync_hangs_;
  };
  if (action == Action::kSync) mutex_.Await(absl::Condition(+goes_on, this));
  if (until_cut_ == 0) return "the power is cut";
  if (until_cut_ != kNever) --until_cut_;
  if (action == Action::kWrite && full_) {
    *full = true;
    return "the disk is full";
  }
  if (action == Action::kSync && sync_fails_) return "the sync failed";
  return "";
}

void FaultDisk::Opened(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  files_[name] = File();
}
void FaultDisk::Wrote(const std::string& name, uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  files_[name].written += bytes;
}
void FaultDisk::Synced(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  files_[name].synced = files_[name].written;
}
void FaultDisk::Renamed(const std::string& from, const std::string& to) {
  absl::MutexLock lock(&mutex_);
  const auto found = files_.find(from);
  if (found == files_.end()) return;
  const File file = found->second;
  files_.erase(found);
  files_[to] = file;
}
void FaultDisk::Deleted(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  files_.erase(name);
}

}  // namespace postrider::tests
