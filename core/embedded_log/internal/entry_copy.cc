#include "core/embedded_log/internal/entry_copy.h"

#include <rocksdb/env.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/bytes.h"
#include "core/base/status_macros.h"
#include "core/embedded_log/internal/rocks.h"
#include "core/stream/checksum.h"

namespace postrider::embedded_log_internal {
namespace {

constexpr uint8_t kVersion = 1;

}  // namespace

absl::Status WriteEntryCopy(rocksdb::Env& env, const std::string& path, const Entries& entries) {
  ByteWriter out;
  out.U8(kVersion);
  out.Varint(entries.size());
  for (const auto& [key, value] : entries) {
    out.String(key);
    out.String(value);
  }
  out.U32(Checksum(out.bytes()));
  const std::string part = path + ".part";
  RETURN_IF_ERROR(
      ToStatus("copy the entries", rocksdb::WriteStringToFile(&env, out.bytes(), part, true)));
  RETURN_IF_ERROR(ToStatus("copy the entries", env.RenameFile(part, path)));
  std::unique_ptr<rocksdb::Directory> directory;
  RETURN_IF_ERROR(
      ToStatus("copy the entries", env.NewDirectory(path.substr(0, path.rfind('/')), &directory)));
  return ToStatus("copy the entries", directory->Fsync());
}

absl::StatusOr<Entries> ReadEntryCopy(rocksdb::Env& env, const std::string& path) {
  if (!env.FileExists(path).ok()) return absl::NotFoundError("embedded log: no copy of entries");
  std::string text;
  RETURN_IF_ERROR(
      ToStatus("read the copy of entries", rocksdb::ReadFileToString(&env, path, &text)));
  const auto damaged = [&path] {
    return absl::DataLossError(absl::StrCat("embedded log: ", path, " is damaged"));
  };
  if (text.size() < kChecksumBytes) return damaged();
  const absl::string_view body = absl::string_view(text).substr(0, text.size() - kChecksumBytes);
  ByteReader check(absl::string_view(text).substr(body.size()));
  if (check.U32() != Checksum(body)) return damaged();
  ByteReader in(body);
  if (in.U8() != kVersion) return damaged();
  Entries entries;
  for (uint64_t left = in.Varint(); left > 0 && in.ok(); --left) {
    std::string key(in.String());
    entries[std::move(key)] = std::string(in.String());
  }
  if (!in.done()) return damaged();
  return entries;
}

}  // namespace postrider::embedded_log_internal
