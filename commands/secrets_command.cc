#include "commands/secrets_command.h"

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "api/reseal_answers.h"
#include "core/base/options.h"
#include "core/base/status_macros.h"
#include "core/crypto/key_file.h"
#include "core/crypto/key_ring.h"
#include "core/postgres/blocking.h"
#include "subscriptions/registry/reseal.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;

// Processes look at their file every second.
constexpr milliseconds kWait{5'000};

absl::Status ReadWait(const std::string& text, milliseconds* wait) {
  if (text.empty()) return absl::OkStatus();
  Options options;
  options.AddDuration("wait", wait, milliseconds(2'000), std::chrono::hours(1), "");
  return options.LoadFlags({absl::StrCat("--wait=", text)});
}

absl::Status RunReseal(const std::string& key_file, const std::string& api_url) {
  ASSIGN_OR_RETURN(const KeyRing keys, KeyRing::Load(key_file));
  ASSIGN_OR_RETURN(const std::unique_ptr<BlockingSession> session, BlockingSession::Open(api_url));
  ASSIGN_OR_RETURN(const subscriptions::ResealReport report,
                   subscriptions::ResealEndpoints(*session, keys));
  std::printf("sealed anew with %s: the secrets of %" PRId64 " of %" PRId64 " endpoints\n",
              keys.active_key_id().c_str(), report.resealed, report.endpoints);
  ASSIGN_OR_RETURN(const api::ResealAnswersReport answers, api::ResealAnswers(*session, keys));
  std::printf("and %" PRId64 " of %" PRId64 " kept answers\n", answers.resealed, answers.answers);
  if (answers.unreadable > 0) {
    // They are for a day, and a repeat of such a request is not done again without them.
    std::fprintf(stderr, "%" PRId64 " kept answers cannot be opened\n", answers.unreadable);
  }
  if (report.unreadable == 0) return absl::OkStatus();
  for (const std::string& endpoint : report.unreadable_first) {
    std::fprintf(stderr, "cannot be opened: %s\n", endpoint.c_str());
  }
  return absl::FailedPreconditionError(
      absl::StrCat("secrets: ", report.unreadable, " endpoints are sealed as they were"));
}

absl::Status RunUse(const std::string& key_file, const std::string& id) {
  RETURN_IF_ERROR(UseMasterKey(key_file, id));
  std::printf("%s seals\n", id.c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::string> RunAdd(const std::string& key_file) {
  ASSIGN_OR_RETURN(const std::string id, AddMasterKey(key_file));
  std::printf("%s opens\n", id.c_str());
  return id;
}

absl::Status RunRotate(const SecretsCommand& command, const std::string& key_file,
                       const std::string& api_url) {
  milliseconds wait = kWait;
  RETURN_IF_ERROR(ReadWait(command.wait, &wait));
  // That the database answers is known before anything is changed.
  RETURN_IF_ERROR(BlockingSession::Open(api_url).status());
  ASSIGN_OR_RETURN(const std::string id, RunAdd(key_file));
  // Nobody seals with it before everybody has it.
  std::this_thread::sleep_for(wait);
  RETURN_IF_ERROR(RunUse(key_file, id));
  // Nobody seals with another one any more.
  std::this_thread::sleep_for(wait);
  return RunReseal(key_file, api_url);
}

}  // namespace

absl::Status RunSecretsCommand(const SecretsCommand& command, const std::string& key_file,
                               const std::string& api_url) {
  using Verb = SecretsCommand::Verb;
  switch (command.verb) {
    case Verb::kAddKey:
      return RunAdd(key_file).status();
    case Verb::kUseKey:
      return RunUse(key_file, command.key_id);
    case Verb::kReseal:
      return RunReseal(key_file, api_url);
    case Verb::kRotate:
      return RunRotate(command, key_file, api_url);
  }
  return absl::OkStatus();
}

}  // namespace postrider
