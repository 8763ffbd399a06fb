#include "core/state/durable_state_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "core/base/status_macros.h"
#include "core/state/internal/durable_file.h"
#include "core/stream/changelog.h"
#include "core/stream/keyed_state.h"

namespace postrider {
namespace {

// Replays the partition; `step` gets each change of the state.
absl::StatusOr<DurableStateFigures> Replay(
    BlockingReader& reader, const TopicPartition& changelog, int64_t end,
    absl::FunctionRef<absl::Status(ChangelogReplay::Step&&)> step) {
  DurableStateFigures figures;
  // Of epoch 0: it owns nothing, so it lists nothing to be erased.
  ChangelogReplay replay(0, ReplayRuleOf);
  const auto take = [&](const LogRecord& record) -> absl::Status {
    ++figures.records;
    absl::StatusOr<ChangelogReplay::Step> read = replay.Read(record.key, record.value);
    if (!read.ok()) {
      return absl::Status(read.status().code(),
                          absl::StrCat(changelog.ToString(), " at offset ", record.offset, ": ",
                                       read.status().message()));
    }
    // A key alone names the epoch of any record.
    ASSIGN_OR_RETURN(const ChangelogRecord key, DecodeChangelogRecord(record.key, {}));
    figures.epoch_max = std::max(figures.epoch_max, key.epoch);
    return read->effect == ChangelogReplay::Effect::kNone ? absl::OkStatus()
                                                          : step(*std::move(read));
  };
  RETURN_IF_ERROR(reader.Read(changelog, end, take));
  return figures;
}

constexpr size_t kHeaderBytes = 16;  // identity's length, epoch, payload's length

}  // namespace

DurableStateReader::DurableStateReader(BlockingReader& reader, std::string spool_directory)
    : reader_(reader), spool_directory_(std::move(spool_directory)) {}

absl::StatusOr<DurableStateFigures> DurableStateReader::Read(
    const TopicPartition& changelog, int64_t end,
    absl::FunctionRef<absl::Status(const DurableEntry&)> visit) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SpoolFile> spool, SpoolFile::Create(spool_directory_));
  // Identity to where its value begins in the spool.
  absl::flat_hash_map<std::string, uint64_t> live;
  uint64_t written = 0;
  const auto keep = [&](ChangelogReplay::Step&& step) -> absl::Status {
    if (step.effect == ChangelogReplay::Effect::kRemove) {
      live.erase(step.identity);
      return absl::OkStatus();
    }
    ByteWriter out;
    out.U32(static_cast<uint32_t>(step.identity.size()));
    out.U64(step.epoch);
    out.U32(static_cast<uint32_t>(step.payload.size()));
    out.Raw(step.identity);
    out.Raw(step.payload);
    live[std::move(step.identity)] = written;
    written += out.bytes().size();
    return spool->Append(out.bytes());
  };
  ASSIGN_OR_RETURN(DurableStateFigures figures, Replay(reader_, changelog, end, keep));
  figures.entries = live.size();

  std::string rest;
  uint64_t at = 0;
  const auto pass = [&](absl::string_view piece) -> absl::Status {
    rest.append(piece.data(), piece.size());
    size_t taken = 0;
    while (rest.size() - taken >= kHeaderBytes) {
      ByteReader in(absl::string_view(rest).substr(taken));
      const uint32_t identity_bytes = in.U32();
      DurableEntry entry;
      entry.epoch = in.U64();
      const uint32_t payload_bytes = in.U32();
      if (in.rest().size() < size_t{identity_bytes} + payload_bytes) break;
      entry.identity = in.Raw(identity_bytes);
      entry.payload = in.Raw(payload_bytes);
      const auto found = live.find(entry.identity);
      if (found != live.end() && found->second == at) RETURN_IF_ERROR(visit(entry));
      const size_t bytes = kHeaderBytes + identity_bytes + payload_bytes;
      taken += bytes;
      at += bytes;
    }
    rest.erase(0, taken);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(spool->ReadAll(pass));
  if (at != written) return absl::DataLossError("savepoint: a temporary file was cut off");
  return figures;
}

absl::StatusOr<DurableStateReader::Identities> DurableStateReader::ReadIdentities(
    const TopicPartition& changelog, int64_t end) {
  Identities read;
  const auto take = [&](ChangelogReplay::Step&& step) {
    if (step.effect == ChangelogReplay::Effect::kPut) {
      read.identities.insert(std::move(step.identity));
    } else {
      read.identities.erase(step.identity);
    }
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(read.figures, Replay(reader_, changelog, end, take));
  read.figures.entries = read.identities.size();
  return read;
}

}  // namespace postrider
