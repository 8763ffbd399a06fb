#include <zlib.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/crypto/digest.h"
#include "core/state/savepoint_file.h"
#include "core/state/savepoint_manifest.h"
#include "core/stream/control_record.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

// What decodes is what we would have written.
void DecodeManifest(absl::string_view bytes) {
  const auto manifest = DecodeSavepointManifest(bytes);
  if (manifest.ok()) POSTRIDER_CHECK(EncodeSavepointManifest(*manifest) == bytes);
}

// The same behind the checksum, which random bytes hardly ever pass.
void DecodeManifestBody(absl::string_view body) {
  ByteWriter out;
  out.Raw("postrider savepoint\n");
  out.U8(1);
  out.Raw(body);
  const Sha256Digest digest = Sha256(out.bytes());
  out.Raw(DigestView(digest));
  DecodeManifest(out.bytes());
}

struct Read {
  bool ok = false;
  std::vector<std::string> entries;
  friend bool operator==(const Read&, const Read&) = default;
};

Read DecodeFile(absl::string_view bytes, size_t piece_bytes) {
  Read read;
  SavepointFileDecoder decoder;
  absl::Status status;
  while (!bytes.empty() && status.ok()) {
    const absl::string_view piece = bytes.substr(0, piece_bytes);
    bytes.remove_prefix(piece.size());
    status = decoder.Feed(piece, [&](const DurableEntry& entry) {
      POSTRIDER_CHECK(!entry.identity.empty());
      ByteWriter text;
      text.String(entry.identity);
      text.Varint(entry.epoch);
      text.String(entry.payload);
      read.entries.push_back(text.Take());
      return absl::OkStatus();
    });
  }
  if (status.ok()) status = decoder.Finish();
  POSTRIDER_CHECK(decoder.entries() == read.entries.size());
  read.ok = status.ok();
  return read;
}

uint32_t Checksum(absl::string_view bytes) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

// In pieces of any size it says the same.
Read DecodeInPieces(absl::string_view bytes, size_t piece_bytes) {
  Read whole = DecodeFile(bytes, std::max<size_t>(bytes.size(), 1));
  const Read pieces = DecodeFile(bytes, piece_bytes);
  POSTRIDER_CHECK(whole.ok == pieces.ok);
  if (whole.ok) POSTRIDER_CHECK(whole == pieces);
  return whole;
}

// Any bytes as blocks with right checksums.
void DecodeBlocks(Input in) {
  const size_t piece_bytes = static_cast<size_t>(in.Between(1, 40));
  ByteWriter out;
  out.Raw("postrider state\n");
  out.U8(1);
  while (!in.empty()) {
    const absl::string_view block = in.Text();
    out.U32(static_cast<uint32_t>(block.size()));
    out.U32(Checksum(block));
    out.Raw(block);
  }
  DecodeInPieces(out.bytes(), piece_bytes);
}

// Entries as a writer lays them out.
void EncodeAndDecodeFile(Input in) {
  const size_t piece_bytes = static_cast<size_t>(in.Between(1, 40));
  ByteWriter out;
  out.Raw("postrider state\n");
  out.U8(1);
  std::vector<std::string> entries;
  while (!in.empty()) {
    std::string block;
    for (int left = 1 + in.Byte() % 3; left > 0; --left) {
      ByteWriter entry;
      const absl::string_view identity = in.Text();
      entry.String(identity.empty() ? absl::string_view("x") : identity);
      entry.Varint(in.Number());
      entry.String(in.Text());
      block += entry.bytes();
      entries.push_back(entry.Take());
    }
    out.U32(static_cast<uint32_t>(block.size()));
    out.U32(Checksum(block));
    out.Raw(block);
  }
  ByteWriter count;
  count.U64(entries.size());
  out.U32(0);
  out.U32(Checksum(count.bytes()));
  out.Raw(count.bytes());
  const Read read = DecodeInPieces(out.bytes(), piece_bytes);
  POSTRIDER_CHECK(read.ok && read.entries == entries);
  POSTRIDER_CHECK(
      !DecodeFile(absl::string_view(out.bytes()).substr(0, out.bytes().size() - 1), 64).ok);
}

void EncodeAndDecodeManifest(Input in) {
  SavepointManifest manifest;
  manifest.id = std::string(in.Text());
  manifest.created = WallTimeFromMillis(in.Signed());
  manifest.log_identity = in.Id();
  manifest.pool = std::string(in.Text());
  manifest.group = std::string(in.Text());
  manifest.topic = std::string(in.Text());
  for (int left = in.Byte() % 4; left > 0; --left) manifest.changelogs.emplace_back(in.Text());
  while (!in.empty()) {
    SavepointManifest::KeyGroup key_group;
    key_group.committed = in.Flag();
    key_group.offset = in.Signed();
    key_group.metadata = std::string(in.Text());
    for (size_t i = 0; i < manifest.changelogs.size(); ++i) {
      SavepointFileFigures file;
      file.bytes = in.Number();
      file.entries = in.Number();
      file.sha256[0] = in.Byte();
      key_group.files.push_back(file);
    }
    manifest.key_groups.push_back(std::move(key_group));
  }
  const std::string bytes = EncodeSavepointManifest(manifest);
  const auto decoded = DecodeSavepointManifest(bytes);
  POSTRIDER_CHECK(decoded.ok() && *decoded == manifest);
  POSTRIDER_CHECK(
      !DecodeSavepointManifest(absl::string_view(bytes).substr(0, bytes.size() - 1)).ok());
}

// The records of the control topic.
void DecodeControl(absl::string_view bytes) {
  const auto hold = DecodeSavepointHold(bytes);
  if (hold.ok()) POSTRIDER_CHECK(EncodeSavepointHold(*hold) == bytes);
  const auto mark = DecodeRestoreMark(bytes);
  if (mark.ok()) POSTRIDER_CHECK(EncodeRestoreMark(*mark) == bytes);
  const auto pool = DecodePoolRecord(bytes);
  if (pool.ok()) POSTRIDER_CHECK(EncodePoolRecord(*pool) == bytes);
  const auto identity = DecodeLogIdentity(bytes);
  if (identity.ok()) POSTRIDER_CHECK(EncodeLogIdentity(*identity) == bytes);
  const ControlKey key = ParseControlKey(bytes);
  if (key.kind == ControlKey::Kind::kSavepointHold) {
    POSTRIDER_CHECK(SavepointHoldKey(key.pool, key.id) == bytes);
  }
  if (key.kind == ControlKey::Kind::kPool) POSTRIDER_CHECK(PoolKey(key.pool) == bytes);
  if (key.kind == ControlKey::Kind::kRestoreMark) {
    POSTRIDER_CHECK(RestoreMarkKey(key.pool) == bytes);
  }
}
void DecodeControlBody(absl::string_view body) {
  ByteWriter out;
  out.U8(1);
  out.Raw(body);
  out.U32(Checksum(out.bytes()));
  DecodeControl(out.bytes());
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  const absl::string_view bytes = View(data, size);
  DecodeManifest(bytes);
  DecodeManifestBody(bytes);
  EncodeAndDecodeManifest(Input(data, size));
  DecodeInPieces(bytes, 7);
  DecodeBlocks(Input(data, size));
  EncodeAndDecodeFile(Input(data, size));
  DecodeControl(bytes);
  DecodeControlBody(bytes);
  return 0;
}
