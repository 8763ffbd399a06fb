#include "core/embedded_log/internal/opener.h"

#include <rocksdb/env.h>
#include <rocksdb/metadata.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/status.h>
#include <rocksdb/write_batch.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/embedded_log/internal/entry_copy.h"
#include "core/embedded_log/internal/torn_manifest.h"

namespace postrider::embedded_log_internal {
namespace {

// Room for what a start writes at least.
constexpr char kProbeName[] = "probe.tmp";
constexpr size_t kProbeBlockBytes = 1 << 20;
constexpr size_t kProbeBlocks = 8;

std::vector<rocksdb::ColumnFamilyDescriptor> FamiliesOf(const rocksdb::Options& options) {
  return {{rocksdb::kDefaultColumnFamilyName, options}, {kRunsName, options}};
}

class NoLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

bool IsTable(const std::string& name) { return absl::EndsWith(name, ".sst"); }
bool IsWal(const std::string& name) { return absl::EndsWith(name, ".log"); }

}  // namespace

void OpenedDb::Close() {
  if (db == nullptr) return;
  for (rocksdb::ColumnFamilyHandle* family : families) {
    db->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  }
  families.clear();
  db.reset();
}

Opener::Opener(std::string directory, std::string entry_copy, const RocksSettings& settings,
               AcknowledgedMark& mark, DamageTeller& teller)
    : directory_(std::move(directory)),
      entry_copy_(std::move(entry_copy)),
      settings_(settings),
      mark_(mark),
      teller_(teller) {}

rocksdb::Env& Opener::env() const {
  return settings_.env != nullptr ? *settings_.env : *rocksdb::Env::Default();
}

std::string Opener::RepairMark() const { return directory_ + "/repairing"; }
std::string Opener::RestoreMark() const { return directory_ + "/restoring"; }

bool Opener::IsAmidRepair() const {
  return env().FileExists(RepairMark()).ok() || env().FileExists(RestoreMark()).ok();
}

absl::Status Opener::Open(OpenedDb& opened) {
  RETURN_IF_ERROR(OpenFiles(opened));
  return RestoreEntries(opened);
}

absl::Status Opener::OpenFiles(OpenedDb& opened) {
  if (env().FileExists(RepairMark()).ok()) {
    RETURN_IF_ERROR(UndoRepair());
    return Repair(opened, absl::DataLossError("embedded log: its repair was cut short"));
  }
  TornManifest::PutBackAside(env(), directory_);
  if (LacksCurrent()) {
    return Repair(opened,
                  absl::DataLossError("embedded log: the database's file CURRENT is missing"));
  }
  absl::Status status = OpenPastTornEnd(opened);
  if (status.ok()) {
    TellOfMissingEnd(*opened.db);
  } else if (absl::IsDataLoss(status)) {
    status = Repair(opened, status);
  }
  return status.ok() ? PutDamagedTablesAside(opened) : status;
}

absl::Status Opener::OpenAgain(OpenedDb& opened) {
  RETURN_IF_ERROR(OpenPastTornEnd(opened));
  TellOfMissingEnd(*opened.db);
  return absl::OkStatus();
}

bool Opener::LacksCurrent() const {
  std::error_code error;
  bool files = false;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    if (entry.path().filename() == "CURRENT") return false;
    files = files || entry.path().extension() == ".sst";
  }
  return files;
}

absl::Status Opener::OpenPastTornEnd(OpenedDb& opened) {
  absl::Status status = OpenOnce(opened);
  if (!absl::IsDataLoss(status)) return status;
  const std::unique_ptr<TornManifest> torn = TornManifest::Cut(env(), directory_);
  if (torn == nullptr) return status;
  if (IsWhole()) {
    POSTRIDER_LOG(kInfo, "the embedded log's list of tables ends where a crash has torn it");
    torn->Keep();
    return OpenOnce(opened);
  }
  torn->Restore();
  return status;
}

// Whether the tables that it lists are there, and all that was acknowledged. Changes nothing.
bool Opener::IsWhole() const {
  OpenedDb opened;
  const rocksdb::Options options = MakeOptions(settings_);
  rocksdb::DB* raw = nullptr;
  if (!rocksdb::DB::OpenForReadOnly(options, directory_, FamiliesOf(options), &opened.families,
                                    &raw)
           .ok()) {
    return false;
  }
  opened.db.reset(raw);
  std::vector<rocksdb::LiveFileMetaData> files;
  raw->GetLiveFilesMetaData(&files);
  bool whole = raw->GetLatestSequenceNumber() >= mark_.sequence();
  for (const rocksdb::LiveFileMetaData& file : files) {
    std::error_code error;
    whole = whole && std::filesystem::exists(file.db_path + file.name, error);
  }
  return whole;
}

absl::Status Opener::OpenOnce(OpenedDb& opened) {
  const rocksdb::Options options = MakeOptions(settings_);
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status =
      rocksdb::DB::Open(options, directory_, FamiliesOf(options), &opened.families, &db);
  if (!status.ok()) return ToStatus(absl::StrCat("open ", directory_), status);
  opened.db.reset(db);
  return CheckFamilies(opened);
}

absl::Status Opener::OpenToLook(OpenedDb& opened) {
  const auto cannot = [this](absl::string_view why) {
    return absl::DataLossError(absl::StrCat("embedded log: what tells of the tables in ",
                                            directory_, " cannot be read: ", why,
                                            "; a start of the service puts it together anew"));
  };
  if (IsAmidRepair()) return cannot("a start before was cut short at that");
  rocksdb::Options options = MakeOptions(settings_);
  options.create_if_missing = false;
  options.create_missing_column_families = false;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status =
      rocksdb::DB::OpenForReadOnly(options, directory_, FamiliesOf(options), &opened.families, &db);
  if (!status.ok()) return cannot(status.ToString());
  opened.db.reset(db);
  RETURN_IF_ERROR(CheckFamilies(opened));
  TellOfMissingEnd(*db);
  return absl::OkStatus();
}

absl::Status Opener::OpenBeside(OpenedDb& opened) {
  const auto cannot = [this](absl::string_view why) {
    return absl::UnavailableError(
        absl::StrCat("embedded log: look at ", directory_, " beside the service: ", why));
  };
  rocksdb::Options options = MakeOptions(settings_);
  options.create_if_missing = false;
  options.create_missing_column_families = false;
  // All are held open, so that they can be read when the service has deleted them.
  options.max_open_files = -1;
  options.paranoid_checks = true;
  // With a logger nothing is made in the directory of its own that it asks for.
  options.info_log = std::make_shared<NoLogger>();
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::OpenAsSecondary(
      options, directory_, directory_, FamiliesOf(options), &opened.families, &db);
  if (!status.ok()) return cannot(status.ToString());
  opened.db.reset(db);
  // Amid it the list of tables is empty. Looked at last, as it may have begun meanwhile.
  if (IsAmidRepair()) return cannot("it is being put together anew");
  return CheckFamilies(opened);
}

absl::Status Opener::CheckFamilies(OpenedDb& opened) {
  if (opened.families.size() == 2 && opened.families[kRuns]->GetID() == kRuns) {
    return absl::OkStatus();
  }
  opened.Close();
  return absl::DataLossError("embedded log: the database is no log of ours");
}

// A table whose index cannot be read would make all that lies in its range unreadable, in other
// tables too.
absl::Status Opener::PutDamagedTablesAside(OpenedDb& opened) {
  // A start may compact at once: what is compacted away meanwhile must not be missed.
  RETURN_IF_ERROR(ToStatus("keep the tables", opened.db->DisableFileDeletions()));
  std::vector<rocksdb::LiveFileMetaData> files;
  opened.db->GetLiveFilesMetaData(&files);
  std::vector<std::string> damaged;
  for (const rocksdb::LiveFileMetaData& file : files) {
    rocksdb::SstFileReader reader(MakeOptions(settings_));
    rocksdb::Status status = reader.Open(file.db_path + file.name);
    const bool entries = file.column_family_name != kRunsName;
    // Those are small, and one block that cannot be read hides all that follow it.
    if (status.ok() && entries) status = reader.VerifyChecksum();
    if (status.ok()) continue;
    if (entries && !ReadEntryCopy(env(), entry_copy_).ok()) {
      return absl::DataLossError(absl::StrCat(
          "embedded log: the table ", file.name, ", which tells of topics and groups, is damaged: ",
          status.ToString(), ", and ", entry_copy_, " is missing or damaged too"));
    }
    damaged.push_back(file.name);
  }
  if (damaged.empty()) return ToStatus("let tables go", opened.db->EnableFileDeletions());
  opened.Close();
  // The list names them still: from here on only a repair makes sense of it.
  RETURN_IF_ERROR(MarkRepair());
  const std::string aside = directory_ + "/damaged";
  RETURN_IF_ERROR(ToStatus("make " + aside, env().CreateDirIfMissing(aside)));
  for (const std::string& name : damaged) {
    const rocksdb::Status moved = env().RenameFile(directory_ + name, aside + name);
    if (!moved.ok() && env().FileExists(directory_ + name).ok()) {
      return ToStatus("put a damaged table aside", moved);
    }
  }
  return Repair(
      opened, absl::DataLossError(absl::StrCat("embedded log: tables are damaged and put aside in ",
                                               aside, ": ", absl::StrJoin(damaged, " "))));
}

// RocksDB begins a repair with an empty list of tables: whoever opened that, after a kill, would
// delete them all as if they were left over. The mark has the names of what was there before.
absl::Status Opener::MarkRepair() {
  if (env().FileExists(RepairMark()).ok()) return absl::OkStatus();
  std::vector<std::string> names;
  RETURN_IF_ERROR(ToStatus("mark a repair", env().GetChildren(directory_, &names)));
  std::erase_if(names, [](const std::string& name) { return !IsTable(name) && !IsWal(name); });
  const std::string part = RepairMark() + ".part";
  RETURN_IF_ERROR(ToStatus(
      "mark a repair", rocksdb::WriteStringToFile(&env(), absl::StrJoin(names, "\n"), part, true)));
  RETURN_IF_ERROR(ToStatus("mark a repair", env().RenameFile(part, RepairMark())));
  std::unique_ptr<rocksdb::Directory> directory;
  RETURN_IF_ERROR(ToStatus("mark a repair", env().NewDirectory(directory_, &directory)));
  return ToStatus("mark a repair", directory->Fsync());
}

// A repair makes a table of each write-ahead log and then moves the log away. Begun again, it would
// make a second one of a log that it had not moved yet, which RocksDB takes for damage.
absl::Status Opener::UndoRepair() {
  std::string text;
  RETURN_IF_ERROR(
      ToStatus("read a repair's mark", rocksdb::ReadFileToString(&env(), RepairMark(), &text)));
  const std::set<std::string> before = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (const std::string& name : before) {
    const std::string path = absl::StrCat(directory_, "/", name);
    const std::string moved = absl::StrCat(directory_, "/lost/", name);
    if (!IsWal(name) || env().FileExists(path).ok() || !env().FileExists(moved).ok()) continue;
    RETURN_IF_ERROR(ToStatus("undo a repair", env().RenameFile(moved, path)));
  }
  std::vector<std::string> names;
  RETURN_IF_ERROR(ToStatus("undo a repair", env().GetChildren(directory_, &names)));
  for (const std::string& name : names) {
    if (!IsTable(name) || before.contains(name)) continue;
    RETURN_IF_ERROR(
        ToStatus("undo a repair", env().DeleteFile(absl::StrCat(directory_, "/", name))));
  }
  return absl::OkStatus();
}

// What the database knows of its tables is damaged: it is put together anew from the tables and the
// write-ahead logs, which each carry what they need.
absl::Status Opener::Repair(OpenedDb& opened, const absl::Status& why) {
  teller_.Tell(
      absl::StrCat(std::string(why.message()), "; it is put together anew from its tables"));
  RETURN_IF_ERROR(ToStatus("mark a repair",
                           rocksdb::WriteStringToFile(&env(), "entries\n", RestoreMark(), true)));
  RETURN_IF_ERROR(MarkRepair());
  const rocksdb::Options options = MakeOptions(settings_);
  RETURN_IF_ERROR(ToStatus("repair", rocksdb::RepairDB(directory_, options, FamiliesOf(options))));
  // It counts anew what was written.
  mark_.Set(0);
  RETURN_IF_ERROR(ToStatus("end a repair", env().DeleteFile(RepairMark())));
  RETURN_IF_ERROR(OpenOnce(opened));
  mark_.Set(opened.db->GetLatestSequenceNumber());
  return absl::OkStatus();
}

absl::Status Opener::RestoreEntries(OpenedDb& opened) {
  if (!env().FileExists(RestoreMark()).ok()) return absl::OkStatus();
  const absl::StatusOr<Entries> copy = ReadEntryCopy(env(), entry_copy_);
  if (absl::IsDataLoss(copy.status())) {
    teller_.Tell(std::string(copy.status().message()));
  } else if (!copy.ok() && !absl::IsNotFound(copy.status())) {
    return copy.status();
  }
  if (copy.ok()) {
    rocksdb::WriteBatch missing;
    rocksdb::ColumnFamilyHandle* const entries = opened.families[kEntries];
    for (const auto& [key, value] : *copy) {
      std::string there;
      if (!opened.db->Get(rocksdb::ReadOptions(), entries, key, &there).IsNotFound()) continue;
      RETURN_IF_ERROR(ToStatus("restore entries", missing.Put(entries, key, value)));
    }
    // An older value in another table is left: a position that is too low repeats, and one that is
    // too high loses.
    if (missing.Count() > 0) {
      teller_.Tell(absl::StrCat(missing.Count(), " entries were lost and come from the copy ",
                                entry_copy_, "; positions of groups may be older than they were"));
    }
    rocksdb::WriteOptions options;
    options.sync = true;
    RETURN_IF_ERROR(ToStatus("restore entries", opened.db->Write(options, &missing)));
    mark_.Set(opened.db->GetLatestSequenceNumber());
  }
  return ToStatus("end a repair", env().DeleteFile(RestoreMark()));
}

void Opener::TellOfMissingEnd(rocksdb::DB& db) {
  const uint64_t there = db.GetLatestSequenceNumber();
  if (mark_.sequence() > there) {
    teller_.Tell(absl::StrCat("the last ", mark_.sequence() - there,
                              " changes that were acknowledged are not on the disk any more"));
  }
  mark_.Set(there);
}

absl::Status Opener::TryDisk() const {
  const std::string name = directory_ + "/" + kProbeName;
  std::unique_ptr<rocksdb::WritableFile> file;
  rocksdb::Status status = env().NewWritableFile(name, &file, rocksdb::EnvOptions());
  const std::string block(kProbeBlockBytes, 'p');
  for (size_t i = 0; i < kProbeBlocks && status.ok(); ++i) status = file->Append(block);
  if (status.ok()) status = file->Sync();
  if (file != nullptr) file->Close().PermitUncheckedError();
  env().DeleteFile(name).PermitUncheckedError();
  return ToStatus("try the disk", status);
}

}  // namespace postrider::embedded_log_internal
