#include "core/embedded_log/internal/torn_manifest.h"

#include <rocksdb/env.h>
#include <rocksdb/slice.h>
#include <rocksdb/status.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/embedded_log/internal/wal_check.h"

namespace postrider::embedded_log_internal {
namespace {

// Names that RocksDB knows nothing of, and so lets lie.
constexpr char kAside[] = "whole-";
constexpr char kPart[] = "list.part";

std::string ReadWhole(rocksdb::Env& env, const std::string& path) {
  std::string bytes;
  if (!rocksdb::ReadFileToString(&env, path, &bytes).ok()) bytes.clear();
  return bytes;
}

// The name of the list that is in use; empty: none can be told.
std::string ListInUse(rocksdb::Env& env, const std::string& database) {
  std::string name = ReadWhole(env, database + "/CURRENT");
  if (name.empty() || name.back() != '\n' || name.find('/') != std::string::npos) return "";
  name.pop_back();
  return name;
}

bool Replace(rocksdb::Env& env, const std::string& database, const std::string& path,
             absl::string_view bytes) {
  const std::string part = absl::StrCat(database, "/", kPart);
  return rocksdb::WriteStringToFile(&env, rocksdb::Slice(bytes.data(), bytes.size()), part, true)
             .ok() &&
         env.RenameFile(part, path).ok();
}

}  // namespace

// The list is written as a write-ahead log is, by the same code of RocksDB.
std::unique_ptr<TornManifest> TornManifest::Cut(rocksdb::Env& env, const std::string& database) {
  const std::string name = ListInUse(env, database);
  if (name.empty()) return nullptr;
  const std::string path = absl::StrCat(database, "/", name);
  const std::string bytes = ReadWhole(env, path);
  WalScanner scanner;
  for (size_t at = 0; at < bytes.size(); at += kWalBlockBytes) {
    scanner.TakeBlock(absl::string_view(bytes).substr(at, kWalBlockBytes));
  }
  const WalScan scan = std::move(scanner).Finish();
  if (!scan.torn.has_value() || !scan.damaged.empty() || *scan.torn >= bytes.size()) return nullptr;
  auto torn = std::unique_ptr<TornManifest>(
      new TornManifest(env, path, absl::StrCat(database, "/", kAside, name)));
  if (!Replace(env, database, torn->aside_, bytes)) return nullptr;
  if (Replace(env, database, path, absl::string_view(bytes).substr(0, *scan.torn))) return torn;
  torn->Restore();
  return nullptr;
}

void TornManifest::Keep() { env_.DeleteFile(aside_).PermitUncheckedError(); }

void TornManifest::Restore() { env_.RenameFile(aside_, path_).PermitUncheckedError(); }

void TornManifest::PutBackAside(rocksdb::Env& env, const std::string& database) {
  std::vector<std::string> names;
  if (!env.GetChildren(database, &names).ok()) return;
  const std::string in_use = ListInUse(env, database);
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(database, "/", name);
    if (name == kPart) {
      env.DeleteFile(path).PermitUncheckedError();
    } else if (absl::StartsWith(name, kAside)) {
      if (name == absl::StrCat(kAside, in_use)) {
        env.RenameFile(path, absl::StrCat(database, "/", in_use)).PermitUncheckedError();
      } else {
        env.DeleteFile(path).PermitUncheckedError();  // the database was opened since
      }
    }
  }
}

}  // namespace postrider::embedded_log_internal
