#include "core/state/savepoint_file.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/bytes.h"
#include "core/base/status_macros.h"
#include "core/state/internal/durable_file.h"
#include "core/stream/checksum.h"

namespace postrider {
namespace {

constexpr absl::string_view kMagic = "postrider state\n";
constexpr uint8_t kVersion = 1;
constexpr size_t kBlockBytes = 256 << 10;      // a block is closed when it is so long
constexpr uint32_t kBlockBytesMax = 16 << 20;  // no entry is as long
constexpr size_t kBlockHeaderBytes = 8;
constexpr size_t kCountBytes = 8;

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("damaged: ", what));
}

}  // namespace

SavepointFileWriter::SavepointFileWriter(std::unique_ptr<DurableFile> file)
    : file_(std::move(file)) {}
SavepointFileWriter::~SavepointFileWriter() = default;

absl::StatusOr<std::unique_ptr<SavepointFileWriter>> SavepointFileWriter::Create(
    const std::string& directory, const std::string& name) {
  ASSIGN_OR_RETURN(std::unique_ptr<DurableFile> file, DurableFile::Create(directory, name));
  std::unique_ptr<SavepointFileWriter> writer(new SavepointFileWriter(std::move(file)));
  RETURN_IF_ERROR(writer->Write(absl::StrCat(kMagic, std::string(1, static_cast<char>(kVersion)))));
  return writer;
}

absl::Status SavepointFileWriter::Write(absl::string_view bytes) {
  hasher_.Add(bytes);
  figures_.bytes += bytes.size();
  return file_->Append(bytes);
}

absl::Status SavepointFileWriter::WriteBlock() {
  ByteWriter header;
  header.U32(static_cast<uint32_t>(block_.size()));
  header.U32(Checksum(block_));
  RETURN_IF_ERROR(Write(header.bytes()));
  RETURN_IF_ERROR(Write(block_));
  block_.clear();
  return absl::OkStatus();
}

absl::Status SavepointFileWriter::Add(const DurableEntry& entry) {
  ByteWriter out;
  out.String(entry.identity);
  out.Varint(entry.epoch);
  out.String(entry.payload);
  if (out.bytes().size() > kBlockBytesMax - kBlockBytes) {
    return absl::InternalError("savepoint: an entry is longer than any log takes");
  }
  block_ += out.bytes();
  ++figures_.entries;
  return block_.size() < kBlockBytes ? absl::OkStatus() : WriteBlock();
}

absl::StatusOr<SavepointFileFigures> SavepointFileWriter::Finish() {
  if (!block_.empty()) RETURN_IF_ERROR(WriteBlock());
  ByteWriter count;
  count.U64(figures_.entries);
  ByteWriter closing;
  closing.U32(0);
  closing.U32(Checksum(count.bytes()));
  closing.Raw(count.bytes());
  RETURN_IF_ERROR(Write(closing.bytes()));
  RETURN_IF_ERROR(file_->Commit());
  figures_.sha256 = hasher_.Finish();
  return figures_;
}

absl::Status SavepointFileDecoder::TakeBlock(absl::string_view block, Visitor visit) {
  ByteReader in(block);
  while (!in.rest().empty()) {
    const size_t before = in.rest().size();
    DurableEntry entry;
    entry.identity = in.String();
    entry.epoch = in.Varint();
    entry.payload = in.String();
    if (!in.ok() || entry.identity.empty()) return Damaged("an entry cannot be read");
    // A longer form of the same numbers is not what we wrote.
    ByteWriter again;
    again.Varint(entry.identity.size());
    again.Varint(entry.epoch);
    again.Varint(entry.payload.size());
    if (again.bytes().size() + entry.identity.size() + entry.payload.size() !=
        before - in.rest().size()) {
      return Damaged("an entry is in a form that is not ours");
    }
    ++entries_;
    RETURN_IF_ERROR(visit(entry));
  }
  return absl::OkStatus();
}

absl::Status SavepointFileDecoder::Feed(absl::string_view piece, Visitor visit) {
  rest_.append(piece.data(), piece.size());
  absl::string_view rest = rest_;
  if (!header_) {
    if (rest.size() < kMagic.size() + 1) return absl::OkStatus();
    if (rest.substr(0, kMagic.size()) != kMagic) return Damaged("it is no file of a savepoint");
    const auto version = static_cast<uint8_t>(rest[kMagic.size()]);
    if (version > kVersion) {
      return absl::UnimplementedError(absl::StrCat("a newer version of postrider wrote it (format ",
                                                   version, "; this one reads up to ", kVersion,
                                                   "): use that one"));
    }
    if (version != kVersion) return Damaged("its version was never written");
    header_ = true;
    rest.remove_prefix(kMagic.size() + 1);
  }
  while (!closed_ && rest.size() >= kBlockHeaderBytes) {
    ByteReader header(rest.substr(0, kBlockHeaderBytes));
    const uint32_t bytes = header.U32();
    const uint32_t checksum = header.U32();
    if (bytes > kBlockBytesMax) return Damaged("a block is too long");
    const size_t wanted = bytes == 0 ? kCountBytes : bytes;
    if (rest.size() - kBlockHeaderBytes < wanted) break;
    const absl::string_view block = rest.substr(kBlockHeaderBytes, wanted);
    if (Checksum(block) != checksum) return Damaged("the checksum of a block does not fit");
    if (bytes == 0) {
      if (ByteReader(block).U64() != entries_) return Damaged("entries are missing");
      closed_ = true;
    } else {
      RETURN_IF_ERROR(TakeBlock(block, visit));
    }
    rest.remove_prefix(kBlockHeaderBytes + wanted);
  }
  if (closed_ && !rest.empty()) return Damaged("there is more behind its end");
  rest_.erase(0, rest_.size() - rest.size());
  return absl::OkStatus();
}

absl::Status SavepointFileDecoder::Finish() const {
  return closed_ ? absl::OkStatus() : Damaged("it is cut off");
}

absl::Status ReadSavepointFile(const std::string& path, const SavepointFileFigures& expected,
                               SavepointFileDecoder::Visitor visit) {
  SavepointFileDecoder decoder;
  Sha256Hasher hasher;
  uint64_t bytes = 0;
  absl::Status status = ReadFile(path, [&](absl::string_view piece) {
    hasher.Add(piece);
    bytes += piece.size();
    return decoder.Feed(piece, visit);
  });
  if (status.ok()) status = decoder.Finish();
  if (status.ok() && (bytes != expected.bytes || decoder.entries() != expected.entries ||
                      hasher.Finish() != expected.sha256)) {
    status = Damaged("it is not the file that the manifest names");
  }
  if (status.ok()) return status;
  if (absl::IsNotFound(status)) status = absl::DataLossError("it is missing");
  return absl::Status(status.code(), absl::StrCat("savepoint: ", path, ": ", status.message()));
}

}  // namespace postrider
