#include "subscriptions/matching/match_program.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "subscriptions/matching/match_function.h"
#include "subscriptions/registry/own_events.h"

namespace postrider::subscriptions {
namespace {

std::unique_ptr<JsonDecoder> MakeOperationalDecoder() {
  JsonDecoderOptions options;
  options.tenant = {absl::StrCat("header:", kOperationalTenant)};
  options.department = {};
  options.id = {absl::StrCat("header:", kOperationalId)};
  options.time = {absl::StrCat("header:", kOperationalTime)};
  absl::StatusOr<std::unique_ptr<JsonDecoder>> decoder = JsonDecoder::Create(options);
  POSTRIDER_CHECK(decoder.ok());
  return *std::move(decoder);
}

}  // namespace

MatchProgram::MatchProgram(MatchProgramOptions options, std::unique_ptr<JsonDecoder> decoder,
                           MatchMetrics& metrics)
    : options_(std::move(options)),
      decoder_(std::move(decoder)),
      operational_decoder_(MakeOperationalDecoder()),
      metrics_(metrics) {}

MatchProgram::~MatchProgram() { POSTRIDER_CHECK(open_.empty()); }

std::unique_ptr<KeyedProcessFunction> MatchProgram::CreateFunction(const TopicPartition&) {
  return std::make_unique<MatchFunction>(*this);
}

void MatchProgram::SetSnapshot(std::shared_ptr<const Snapshot> snapshot,
                               std::shared_ptr<const MatchIndex> index) {
  POSTRIDER_CHECK(snapshot != nullptr && index != nullptr);
  snapshot_ = std::move(snapshot);
  index_ = std::move(index);
  ++snapshot_number_;
  // A copy: a function whose task fails is closed later, but nothing here relies on that.
  const std::vector<MatchFunction*> open(open_.begin(), open_.end());
  for (MatchFunction* function : open) {
    if (open_.contains(function)) function->OnSnapshot();
  }
}

}  // namespace postrider::subscriptions
