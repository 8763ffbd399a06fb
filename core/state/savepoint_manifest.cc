#include "core/state/savepoint_manifest.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "core/base/bytes.h"
#include "core/crypto/digest.h"

namespace postrider {
namespace {

constexpr absl::string_view kMagic = "postrider savepoint\n";
constexpr uint8_t kVersion = 1;

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the manifest is damaged: ", what));
}

template <typename Bytes>
void ReadBytes(ByteReader& in, Bytes& out) {
  const absl::string_view raw = in.Raw(out.size());
  if (raw.size() == out.size()) std::copy(raw.begin(), raw.end(), out.begin());
}

}  // namespace

uint64_t SavepointManifest::bytes() const {
  uint64_t sum = 0;
  for (const KeyGroup& key_group : key_groups) {
    for (const SavepointFileFigures& file : key_group.files) sum += file.bytes;
  }
  return sum;
}

uint64_t SavepointManifest::entries() const {
  uint64_t sum = 0;
  for (const KeyGroup& key_group : key_groups) {
    for (const SavepointFileFigures& file : key_group.files) sum += file.entries;
  }
  return sum;
}

std::string SavepointFileName(size_t changelog, size_t key_group) {
  return absl::StrFormat("%d-%05d", changelog, key_group);
}

std::string EncodeSavepointManifest(const SavepointManifest& manifest) {
  ByteWriter out;
  out.Raw(kMagic);
  out.U8(kVersion);
  out.String(manifest.id);
  out.Zigzag(MillisSinceEpoch(manifest.created));
  out.Raw(absl::string_view(reinterpret_cast<const char*>(manifest.log_identity.data()),
                            manifest.log_identity.size()));
  out.String(manifest.pool);
  out.String(manifest.group);
  out.String(manifest.topic);
  out.Varint(manifest.changelogs.size());
  for (const std::string& changelog : manifest.changelogs) out.String(changelog);
  out.Varint(manifest.key_groups.size());
  for (const SavepointManifest::KeyGroup& group : manifest.key_groups) {
    out.U8(group.committed ? 1 : 0);
    out.Zigzag(group.offset);
    out.String(group.metadata);
    for (const SavepointFileFigures& file : group.files) {
      out.Varint(file.bytes);
      out.Varint(file.entries);
      out.Raw(DigestView(file.sha256));
    }
  }
  out.Raw(DigestView(Sha256(out.bytes())));
  return out.Take();
}

absl::StatusOr<SavepointManifest> DecodeSavepointManifest(absl::string_view encoded) {
  constexpr size_t kDigestBytes = Sha256Digest().size();
  if (encoded.size() < kMagic.size() + 1 || encoded.substr(0, kMagic.size()) != kMagic) {
    return Damaged("it is none, or cut off");
  }
  const auto version = static_cast<uint8_t>(encoded[kMagic.size()]);
  if (version > kVersion) {
    return absl::UnimplementedError(absl::StrCat("a newer version of postrider made it (format ",
                                                 version, "; this one reads up to ", kVersion,
                                                 "): use that one"));
  }
  if (version != kVersion || encoded.size() < kMagic.size() + 1 + kDigestBytes) {
    return Damaged("it is cut off");
  }
  const absl::string_view covered = encoded.substr(0, encoded.size() - kDigestBytes);
  if (DigestView(Sha256(covered)) != encoded.substr(covered.size())) {
    return Damaged("its checksum does not fit");
  }
  ByteReader in(covered.substr(kMagic.size() + 1));
  SavepointManifest manifest;
  manifest.id = std::string(in.String());
  manifest.created = WallTimeFromMillis(in.Zigzag());
  ReadBytes(in, manifest.log_identity);
  manifest.pool = std::string(in.String());
  manifest.group = std::string(in.String());
  manifest.topic = std::string(in.String());
  // Each of what is counted takes a byte at least.
  const uint64_t changelogs = in.Varint();
  if (changelogs > in.rest().size()) return Damaged("it names too many changelogs");
  for (uint64_t i = 0; i < changelogs && in.ok(); ++i) {
    manifest.changelogs.emplace_back(in.String());
  }
  const uint64_t key_groups = in.Varint();
  if (key_groups > in.rest().size()) return Damaged("it names too many key groups");
  for (uint64_t i = 0; i < key_groups && in.ok(); ++i) {
    SavepointManifest::KeyGroup group;
    group.committed = in.U8() != 0;
    group.offset = in.Zigzag();
    group.metadata = std::string(in.String());
    for (uint64_t j = 0; j < changelogs && in.ok(); ++j) {
      SavepointFileFigures file;
      file.bytes = in.Varint();
      file.entries = in.Varint();
      ReadBytes(in, file.sha256);
      group.files.push_back(file);
    }
    manifest.key_groups.push_back(std::move(group));
  }
  if (!in.done() || EncodeSavepointManifest(manifest) != encoded) {
    return Damaged("it is in a form that is not ours");
  }
  return manifest;
}

}  // namespace postrider
