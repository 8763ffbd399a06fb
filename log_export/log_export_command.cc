#include "log_export/log_export_command.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/status_macros.h"
#include "core/embedded_log/inspect.h"
#include "core/json/json.h"
#include "core/json/time_text.h"
#include "log_export/log_export.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kPing{10'000};
constexpr seconds kTellEvery{10};
constexpr absl::Duration kBetweenRounds = absl::Milliseconds(500);
// A round that is over so soon has as much to do again at most when the service is stopped.
constexpr seconds kCaughtUp{2};

long long Number(int64_t number) { return static_cast<long long>(number); }

// Says on standard error how far it is, not too often.
class Progress {
 public:
  explicit Progress(const Clock& clock) : clock_(clock), told_(clock.Now()) {}

  void Begins() { began_ = clock_.Now(); }
  bool IsShort() const { return clock_.Now() - began_ < kCaughtUp; }
  void Copying(int64_t copied) {
    if (IsShort() || !Due()) return;
    std::fprintf(stderr, "log export: %lld records are copied, and more are to come\n",
                 Number(copied));
  }
  void CaughtUp(int64_t behind) {
    if (caught_up_ && !Due()) return;
    caught_up_ = true;
    told_ = clock_.Now();
    std::fprintf(stderr,
                 "log export: caught up, %lld records behind; stop the service when it suits: what "
                 "is left is copied then, with the positions of groups\n",
                 Number(behind));
  }
  void Unread(int64_t partitions) {
    if (!Due()) return;
    std::fprintf(stderr,
                 "log export: %lld partitions cannot be read to their end while the service runs; "
                 "they are copied when it is stopped\n",
                 Number(partitions));
  }
  void Unreadable(const absl::Status& why) {
    if (!Due()) return;
    std::fprintf(stderr, "log export: %s; it is tried again\n", std::string(why.message()).c_str());
  }
  void Stopped() {
    Begins();
    std::fprintf(stderr, "log export: the service is stopped; the last step\n");
  }

 private:
  bool Due() {
    if (clock_.Now() - told_ < kTellEvery) return false;
    told_ = clock_.Now();
    return true;
  }

  const Clock& clock_;
  MonotonicTime told_;
  MonotonicTime began_;  // a round
  bool caught_up_ = false;
};

// Until no service has it any more: the whole log then.
absl::StatusOr<std::unique_ptr<LogInspector>> CopyWhileItRuns(const std::string& directory,
                                                              LogExport& exporting,
                                                              Progress& progress) {
  std::unique_ptr<LogInspector> beside;
  while (true) {
    absl::StatusOr<std::unique_ptr<LogInspector>> whole = LogInspector::Open(directory);
    if (!absl::IsFailedPrecondition(whole.status())) {
      if (beside != nullptr) progress.Stopped();
      return whole;
    }
    absl::Status caught_up;
    if (beside == nullptr) {
      absl::StatusOr<std::unique_ptr<LogInspector>> opened = LogInspector::OpenBeside(directory);
      caught_up = opened.status();
      if (opened.ok()) beside = *std::move(opened);
    } else {
      caught_up = beside->CatchUp();
    }
    if (caught_up.ok()) {
      progress.Begins();
      const absl::StatusOr<LogExport::Round> round = exporting.CopyRound(*beside);
      if (absl::IsDeadlineExceeded(round.status())) {
        exporting.LeaveKafka();
        progress.Unreadable(round.status());
      } else if (!round.ok()) {
        return round.status();
      } else if (round->unread > 0) {
        progress.Unread(round->unread);
      } else if (!round->cut && progress.IsShort()) {
        if (beside->CatchUp().ok()) {
          progress.CaughtUp(exporting.BehindOf(*beside));
        } else {
          beside.reset();
        }
      }
    } else if (absl::IsUnavailable(caught_up)) {
      beside.reset();
      progress.Unreadable(caught_up);
    } else {
      return caught_up;
    }
    absl::SleepFor(kBetweenRounds);
  }
}

JsonValue ReportJson(const LogExport& exporting, size_t positions, double took) {
  JsonValue topics = JsonValue::MakeArray();
  int64_t last = 0;
  for (const auto& [name, topic] : exporting.reports()) {
    last += topic.last;
    topics.Append(JsonValue::MakeObject({{"name", name},
                                         {"records", topic.records},
                                         {"last_step", topic.last},
                                         {"fillers", topic.fillers},
                                         {"missing", topic.missing},
                                         {"renumbered", topic.renumbered}}));
  }
  return JsonValue::MakeObject({{"topics", std::move(topics)},
                                {"records", exporting.copied()},
                                {"last_step", last},
                                {"last_step_seconds", took},
                                {"positions", positions}});
}

void Print(const LogExport& exporting, size_t positions, double took) {
  int64_t last = 0;
  for (const auto& [name, topic] : exporting.reports()) {
    last += topic.last;
    std::printf("topic %s: %lld records copied%s", name.c_str(), Number(topic.records),
                topic.renumbered ? ", from offset 0 on" : ", at their offsets");
    if (topic.fillers > 0) {
      std::printf(", %lld fillers before them deleted again", Number(topic.fillers));
    }
    if (topic.missing > 0) {
      std::printf(", %lld offsets without a record here (see `postrider log verify`)",
                  Number(topic.missing));
    }
    std::printf("\n");
  }
  std::printf(
      "done: %lld records were copied, %lld of them with the service stopped, and %zu positions of "
      "groups, within %.1f s; start the service with log.kind: kafka\n",
      Number(exporting.copied()), Number(last), positions, took);
}

}  // namespace

absl::Status RunLogExportCommand(const LogExportCommand& command, const KafkaOptions& kafka) {
  const SystemClock clock;
  Metrics metrics;
  ASSIGN_OR_RETURN(const std::unique_ptr<LogInspector::CopyHold> hold,
                   LogInspector::HoldCopy(command.directory));
  absl::StatusOr<std::unique_ptr<LogInspector>> whole = LogInspector::Open(command.directory);
  const bool waits = command.wait && absl::IsFailedPrecondition(whole.status());
  if (!waits) RETURN_IF_ERROR(whole.status());
  ASSIGN_OR_RETURN(const std::unique_ptr<KafkaLog> to, KafkaLog::Open(kafka, clock, metrics));
  RETURN_IF_ERROR(to->Ping(kPing));
  Progress progress(clock);
  LogExportOptions options;
  options.fillers_max = command.fillers_max;
  const LogExport* told = nullptr;
  LogExport exporting(options, kafka, *to, clock, [&] { progress.Copying(told->copied()); });
  told = &exporting;
  if (waits) whole = CopyWhileItRuns(command.directory, exporting, progress);
  RETURN_IF_ERROR(whole.status());
  const MonotonicTime stopped = clock.Now();
  // While the log is held, so that no service comes in between.
  const absl::Status finished = exporting.Finish(**whole, [&] {
    return LogInspector::MarkExported(
        command.directory,
        absl::StrCat(kafka.brokers, ", ", kafka.prefix, ", ", FormatRfc3339(clock.Wall())));
  });
  const bool before = absl::IsAlreadyExists(finished);
  if (!before) RETURN_IF_ERROR(finished);
  if (before) {
    std::printf("this log has been exported already: nothing is to be done\n");
    return absl::OkStatus();
  }
  const double took = std::chrono::duration<double>(clock.Now() - stopped).count();
  const size_t positions = (*whole)->Positions().size();
  if (command.json) {
    std::printf("%s\n", ReportJson(exporting, positions, took).Serialize().c_str());
  } else {
    Print(exporting, positions, took);
  }
  return absl::OkStatus();
}

}  // namespace postrider
