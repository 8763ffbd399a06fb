#include "core/stream/state_upgrade.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/stream/blocking_writer.h"
#include "core/stream/changelog.h"
#include "core/stream/record.h"

namespace postrider {

absl::Status FinishStateUpgrades(Log& log, const Clock& clock, const std::string& changelog,
                                 const std::vector<StateUpgrade>& upgrades,
                                 std::chrono::milliseconds timeout) {
  for (const StateUpgrade& upgrade : upgrades) {
    if (upgrade.state.empty() || upgrade.version == 0) {
      return absl::InvalidArgumentError(absl::StrCat("state upgrade: '", upgrade.state,
                                                     "' in version ", upgrade.version,
                                                     " is no state in a version"));
    }
  }
  ASSIGN_OR_RETURN(const int32_t partitions, log.Partitions(changelog, timeout));
  BlockingWriterOptions options;
  options.silence_max = timeout;
  ASSIGN_OR_RETURN(const std::unique_ptr<BlockingWriter> writer,
                   BlockingWriter::Open(log, clock, options));
  for (int32_t partition = 0; partition < partitions; ++partition) {
    for (const StateUpgrade& upgrade : upgrades) {
      EncodedChangelogRecord record = FinishRecord(upgrade.state, upgrade.version);
      AppendRecord append;
      append.topic = changelog;
      append.partition = partition;
      append.key = std::move(record.key);
      append.value = std::move(record.value);
      RETURN_IF_ERROR(writer->Append(std::move(append)));
    }
  }
  return writer->Flush();
}

}  // namespace postrider
