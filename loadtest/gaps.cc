#include "loadtest/gaps.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/id.h"

namespace postrider::loadtest {

Gaps FindGaps(const State& state, const std::vector<ReceivedRecord>& received, uint32_t key_groups,
              int64_t from_us, int64_t to_us) {
  constexpr absl::string_view kPrefix = "ep_";
  std::vector<int64_t> group_of(state.endpoints.size(), -1);
  for (size_t i = 0; i < group_of.size(); ++i) {
    const std::string& id = state.endpoints[i].id;
    if (id.size() <= kPrefix.size()) continue;
    const absl::optional<IdBytes> bytes =
        DecodeBase32Id(absl::string_view(id).substr(kPrefix.size()));
    if (!bytes) continue;
    group_of[i] = static_cast<int64_t>(XXH64(bytes->data(), bytes->size(), 0) % key_groups);
  }
  std::vector<std::vector<int64_t>> arrivals(key_groups);
  for (const ReceivedRecord& record : received) {
    if ((record.flags & ReceivedRecord::kAccepted) == 0) continue;
    if (record.arrived_us < from_us || record.arrived_us > to_us) continue;
    if (record.endpoint >= group_of.size() || group_of[record.endpoint] < 0) continue;
    arrivals[static_cast<size_t>(group_of[record.endpoint])].push_back(record.arrived_us);
  }
  Gaps gaps;
  std::vector<double> heard;
  for (std::vector<int64_t>& times : arrivals) {
    std::sort(times.begin(), times.end());
    int64_t longest = -1000;
    for (size_t i = 1; i < times.size(); ++i) longest = std::max(longest, times[i] - times[i - 1]);
    gaps.longest_ms.push_back(static_cast<double>(longest) / 1000);
    if (longest >= 0) heard.push_back(gaps.longest_ms.back());
  }
  std::sort(heard.begin(), heard.end());
  gaps.heard = static_cast<uint32_t>(heard.size());
  if (!heard.empty()) {
    gaps.median_ms = heard[heard.size() / 2];
    gaps.max_ms = heard.back();
  }
  return gaps;
}

std::string Gaps::ToJson() const {
  return absl::StrCat(R"({"heard":)", heard, R"(,"median_ms":)", median_ms, R"(,"max_ms":)", max_ms,
                      R"(,"longest_ms":[)", absl::StrJoin(longest_ms, ","), "]}");
}

}  // namespace postrider::loadtest
