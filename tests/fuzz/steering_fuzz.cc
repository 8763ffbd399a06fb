#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "delivery/steering.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using delivery::ReadSteering;
using delivery::Steering;

void CheckBounds(const Steering& steering) {
  if (steering.events_max) {
    POSTRIDER_CHECK(*steering.events_max >= 1 && *steering.events_max <= 5'000);
  }
  if (steering.messages_per_second) {
    POSTRIDER_CHECK(*steering.messages_per_second >= 0.001 && *steering.messages_per_second <= 1e9);
  }
}

}  // namespace
}  // namespace postrider::fuzz

// Counted texts: a name (by a byte) and its value.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  Input in(data, size);
  HttpHeaders lines;
  Steering smallest;
  while (!in.empty() && lines.size() < 8) {
    const uint8_t which = in.Byte() % 3;
    const std::string name = which == 0 ? "webhook-batch-max" : which == 1 ? "webhook-rate" : "x";
    lines.emplace_back(name, std::string(in.Text()));
    const Steering alone = ReadSteering({lines.back()});
    CheckBounds(alone);
    if (alone.events_max && (!smallest.events_max || *alone.events_max < *smallest.events_max)) {
      smallest.events_max = alone.events_max;
    }
    if (alone.messages_per_second && (!smallest.messages_per_second ||
                                      *alone.messages_per_second < *smallest.messages_per_second)) {
      smallest.messages_per_second = alone.messages_per_second;
    }
  }
  const Steering all = ReadSteering(lines);
  CheckBounds(all);
  POSTRIDER_CHECK(all.events_max == smallest.events_max);
  POSTRIDER_CHECK(all.messages_per_second == smallest.messages_per_second);

  // Plain numbers are understood, as the C library reads them.
  Input numbers(data, size);
  const uint64_t count = numbers.UpTo(999'999'999);
  const Steering plain = ReadSteering({{"webhook-batch-max", absl::StrCat(count)}});
  POSTRIDER_CHECK(plain.events_max.has_value() == (count > 0));
  const std::string rate = absl::StrCat(count % 1'000'000, ".", numbers.UpTo(999));
  const double wanted = std::strtod(rate.c_str(), nullptr);
  const Steering read = ReadSteering({{"webhook-rate", rate}});
  POSTRIDER_CHECK(read.messages_per_second.has_value() == (wanted >= 0.001));
  if (read.messages_per_second) POSTRIDER_CHECK(*read.messages_per_second == wanted);
  return 0;
}
