#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/embedded_log/internal/run.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using embedded_log_internal::ReadRunHeader;
using embedded_log_internal::Run;
using embedded_log_internal::RunBuilder;
using embedded_log_internal::RunHeader;
using embedded_log_internal::RunReader;

struct Kept {
  int64_t offset = 0;
  WallTime time;
  std::string key;
  std::string value;
  bool tombstone = false;
  std::vector<std::pair<std::string, std::string>> headers;
  friend bool operator==(const Kept&, const Kept&) = default;
};

std::vector<Kept> ReadAll(const Run& run, bool* damaged) {
  std::vector<Kept> records;
  RunReader reader(run);
  LogRecord record;
  while (reader.Next(&record)) {
    POSTRIDER_CHECK(record.offset >= run.base && record.offset < run.next);
    POSTRIDER_CHECK(records.empty() || records.back().offset < record.offset);
    Kept kept{record.offset,
              record.timestamp,
              std::string(record.key),
              std::string(record.value),
              record.value.data() == nullptr,
              {}};
    for (const RecordHeader& header : record.headers) {
      kept.headers.emplace_back(std::string(header.name), std::string(header.value));
    }
    records.push_back(std::move(kept));
  }
  *damaged = reader.damaged();
  return records;
}

std::shared_ptr<Run> Build(const std::vector<Kept>& records, int64_t base, int64_t next,
                           const RunHeader& header) {
  RunBuilder builder;
  builder.Begin(base, header.first_ms);
  for (const Kept& one : records) {
    builder.Add(one.offset, MillisSinceEpoch(one.time), one.key, one.value, one.tombstone,
                one.headers);
  }
  return builder.Finish(next, header.high_ms, header.bytes_before);
}

// Whatever lies on the disk: it ends, in order and within its bounds, and what can be read is
// written and read again as the same.
void Decode(Input in) {
  const int64_t base = in.Between(0, int64_t{1} << 62);
  const absl::string_view bytes = in.rest();
  const auto header = ReadRunHeader(bytes);
  Run run;
  run.base = base;
  run.next = header.has_value() ? header->next : base + 1;
  run.bytes = std::string(bytes);
  bool damaged = false;
  const std::vector<Kept> records = ReadAll(run, &damaged);
  if (!header.has_value()) {
    POSTRIDER_CHECK(records.empty() && (damaged || bytes.empty()));
    return;
  }
  POSTRIDER_CHECK(damaged || records.size() == header->records);
  if (records.empty()) return;
  const std::shared_ptr<Run> again = Build(records, base, run.next, *header);
  POSTRIDER_CHECK(ReadAll(*again, &damaged) == records && !damaged);
}

void EncodeAndDecode(Input in) {
  RunHeader header;
  header.first_ms = in.Between(0, int64_t{1} << 45);
  header.high_ms = in.Between(0, int64_t{1} << 45);
  header.bytes_before = in.Number();
  const int64_t base = in.Between(0, int64_t{1} << 60);
  int64_t offset = base;
  std::vector<Kept> records;
  while (!in.empty() && records.size() < 64) {
    Kept one;
    one.offset = offset;
    offset += in.Between(1, 300);
    one.time = WallTimeFromMillis(in.Between(0, int64_t{1} << 45));
    one.tombstone = in.Flag();
    one.key = std::string(in.Text());
    if (!one.tombstone) one.value = std::string(in.Text());
    for (int left = in.Byte() % 4; left > 0; --left) {
      const std::string name(in.Text());
      one.headers.emplace_back(name, std::string(in.Text()));
    }
    records.push_back(std::move(one));
  }
  if (records.empty()) return;
  const std::shared_ptr<Run> run = Build(records, base, offset, header);
  bool damaged = false;
  POSTRIDER_CHECK(ReadAll(*run, &damaged) == records && !damaged);
  // Cut anywhere it is damaged, and what comes before the cut is read.
  for (const size_t size : {run->bytes.size() - 1, run->bytes.size() / 2, size_t{1}}) {
    Run cut = *run;
    cut.bytes.resize(size);
    const std::vector<Kept> some = ReadAll(cut, &damaged);
    POSTRIDER_CHECK(damaged && some.size() < records.size());
    POSTRIDER_CHECK(std::equal(some.begin(), some.end(), records.begin()));
  }
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(Input(data, size));
  EncodeAndDecode(Input(data, size));
  return 0;
}
