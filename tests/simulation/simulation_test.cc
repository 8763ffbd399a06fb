#include "tests/simulation/simulation.h"

#include <signal.h>
#include <sys/personality.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "gtest/gtest.h"

namespace postrider::simulation {
namespace {

constexpr uint64_t kSeeds = SIMULATION_SEEDS;
constexpr uint64_t kParts = 10;  // they may run beside each other

// "FIRST" or "FIRST-LAST"; without it a part of kSeeds.
constexpr char kVariable[] = "POSTRIDER_SIMULATION_SEEDS";

struct Seeds {
  uint64_t first;
  uint64_t last;
};
Seeds SeedsOf(uint64_t part) {
  const char* const chosen = std::getenv(kVariable);
  if (chosen == nullptr) return {part * kSeeds / kParts + 1, (part + 1) * kSeeds / kParts};
  char* end = nullptr;
  const uint64_t first = std::strtoull(chosen, &end, 10);
  const uint64_t last = *end == '-' ? std::strtoull(end + 1, nullptr, 10) : first;
  const uint64_t count = last - first + 1;
  return {first + part * count / kParts, first + (part + 1) * count / kParts - 1};
}

char g_command[512];
uint64_t g_size = 0;

// What repeats a seed, also where an invariant stops the process.
std::string Command(const char* test, uint64_t seed) {
  return absl::StrCat(kVariable, "=", seed, " ", program_invocation_name,
                      " --gtest_filter='*SimulationTest.", test, "*'");
}
void OnAbort(int) {
  static const char kStart[] = "\nrepeat it by: ";
  [[maybe_unused]] ssize_t written = write(2, kStart, sizeof(kStart) - 1);
  written = write(2, g_command, g_size);
  written = write(2, "\n", 1);
}

class SimulationTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  void Run(const char* test, Outcome (*run)(uint64_t), uint64_t part_of = 1) {
    struct sigaction action = {};
    action.sa_handler = OnAbort;
    action.sa_flags = SA_RESETHAND;
    sigaction(SIGABRT, &action, nullptr);
    const Seeds seeds = SeedsOf(GetParam());
    StartLog(std::getenv(kVariable) == nullptr ? LogLevel::kError : LogLevel::kInfo);
    int64_t records = 0;
    int64_t repeats = 0;
    int64_t letters = 0;
    for (uint64_t seed = seeds.first; seed <= seeds.last; seed += part_of) {
      const std::string command = Command(test, seed);
      g_size = std::min(command.size(), sizeof(g_command));
      std::memcpy(g_command, command.data(), g_size);
      const Outcome outcome = run(seed);
      records += outcome.records;
      repeats += outcome.repeats;
      letters += outcome.letters;
      if (outcome.fault) {
        ADD_FAILURE() << "seed " << seed << ": " << *outcome.fault << "\nrepeat it by: " << command;
        break;
      }
    }
    RecordProperty("records", std::to_string(records));
    RecordProperty("repeats", std::to_string(repeats));
    RecordProperty("letters", std::to_string(letters));
    if (seeds.first > seeds.last) return;
    std::printf("seeds %lu-%lu: %ld records, %ld repeats, %ld letters\n", seeds.first, seeds.last,
                records, repeats, letters);
  }
};

TEST_P(SimulationTest, LosesForgetsAndRevivesNothing) {
  Run("LosesForgetsAndRevivesNothing", RunStormy);
}

TEST_P(SimulationTest, RepeatsNothingWhenEveryHandoverIsClean) {
  Run("RepeatsNothingWhenEveryHandoverIsClean", RunCalm, 10);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulationTest, ::testing::Range<uint64_t>(0, kParts));

}  // namespace
}  // namespace postrider::simulation

// The order of hash maps depends on where they lie in memory, and a seed is to give the same run
// each time: so the process begins again at fixed addresses, where it may.
int main(int argc, char** argv) {
  const int persona = personality(0xffffffff);
  if (persona != -1 && (persona & ADDR_NO_RANDOMIZE) == 0 &&
      personality(static_cast<unsigned long>(persona) | ADDR_NO_RANDOMIZE) != -1) {
    execv("/proc/self/exe", argv);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
