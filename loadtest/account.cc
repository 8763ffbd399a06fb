#include "loadtest/account.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "loadtest/event_source.h"

namespace postrider::loadtest {
namespace {

constexpr size_t kExamplesMax = 10;

struct Delivery {
  MessageKey key;
  uint32_t message = 0;
  int64_t arrived_us = 0;
};

void Note(const MessageKey& key, std::vector<MessageKey>* examples) {
  if (examples->size() < kExamplesMax) examples->push_back(key);
}

void SortUnique(std::vector<MessageKey>* keys) {
  std::sort(keys->begin(), keys->end());
  keys->erase(std::unique(keys->begin(), keys->end()), keys->end());
}

bool Contains(const std::vector<MessageKey>& keys, const MessageKey& key) {
  return std::binary_search(keys.begin(), keys.end(), key);
}

double QuantileMs(std::vector<int64_t>* values, double fraction) {
  if (values->empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(std::min(
      static_cast<double>(values->size() - 1), fraction * static_cast<double>(values->size())));
  std::nth_element(values->begin(), values->begin() + at, values->end());
  return static_cast<double>((*values)[static_cast<size_t>(at)]) / 1000;
}

std::string Examples(const std::vector<MessageKey>& keys) {
  return absl::StrCat("[",
                      absl::StrJoin(keys, ",",
                                    [](std::string* out, const MessageKey& key) {
                                      absl::StrAppend(out, "[", key.event, ",", key.endpoint, "]");
                                    }),
                      "]");
}

// Needs `produced` by number and the dead letters sorted.
void CheckOrder(const Plan& plan, const AccountInput& input, AccountResult* result) {
  std::vector<ReceivedRecord> received;
  std::copy_if(input.received.begin(), input.received.end(), std::back_inserter(received),
               [&](const ReceivedRecord& record) {
                 return record.run == input.run && record.endpoint < plan.endpoints().size() &&
                        plan.endpoints()[record.endpoint].order != PlannedOrder::kNone;
               });
  std::stable_sort(
      received.begin(), received.end(),
      [](const ReceivedRecord& a, const ReceivedRecord& b) { return a.arrived_us < b.arrived_us; });
  const auto event = [&input](uint64_t number) -> const EventFields* {
    const auto found = std::lower_bound(
        input.produced.begin(), input.produced.end(), number,
        [](const ProducedRecord& record, uint64_t wanted) { return record.number < wanted; });
    return found == input.produced.end() || found->number != number ? nullptr : &found->event;
  };
  absl::flat_hash_set<std::pair<uint64_t, uint32_t>> arrived;
  absl::flat_hash_map<std::tuple<uint32_t, uint16_t, uint32_t>, uint64_t> last;
  for (const ReceivedRecord& record : received) {
    const EventFields* fields = event(record.number);
    if (fields == nullptr || !arrived.emplace(record.number, record.endpoint).second) continue;
    ++result->ordered;
    const bool by_tenant = plan.endpoints()[record.endpoint].order == PlannedOrder::kTenant;
    uint64_t& latest =
        last[{record.endpoint, fields->type, by_tenant ? fields->tenant : ~uint32_t{0}}];
    const MessageKey key{record.number, record.endpoint};
    if (record.number < latest && !Contains(input.dead_letters, key)) {
      ++result->reordered;
      Note(key, &result->reordered_examples);
    }
    latest = std::max(latest, record.number);
  }
}

}  // namespace

AccountResult Account(const Plan& plan, AccountInput input) {
  AccountResult result;
  std::sort(input.produced.begin(), input.produced.end(),
            [](const ProducedRecord& a, const ProducedRecord& b) { return a.number < b.number; });
  SortUnique(&input.dead_letters);
  SortUnique(&input.withheld);

  CheckOrder(plan, input, &result);

  std::vector<Delivery> deliveries;
  deliveries.reserve(input.received.size());
  for (const ReceivedRecord& record : input.received) {
    if ((record.flags & ReceivedRecord::kBadSignature) != 0) ++result.signatures_bad;
    if ((record.flags & ReceivedRecord::kBadContent) != 0) ++result.contents_bad;
    if ((record.flags & ReceivedRecord::kBadEnvelope) != 0) ++result.envelopes_bad;
    if ((record.flags & ReceivedRecord::kAccepted) == 0) continue;
    const MessageKey key{record.number, record.endpoint};
    if (record.run != input.run) {
      ++result.foreign;
      Note(key, &result.foreign_examples);
      continue;
    }
    deliveries.push_back({key, record.message, record.arrived_us});
  }
  std::sort(deliveries.begin(), deliveries.end(), [](const Delivery& a, const Delivery& b) {
    return a.key != b.key ? a.key < b.key : a.arrived_us < b.arrived_us;
  });

  int64_t first_sent = 0;
  for (const ProducedRecord& event : input.produced) {
    if (first_sent == 0 || event.sent_us < first_sent) first_sent = event.sent_us;
  }
  int64_t last_arrival = first_sent;
  std::vector<int64_t> latencies;
  latencies.reserve(deliveries.size());
  std::vector<uint32_t> matched;
  size_t next = 0;  // the first delivery not looked at
  const auto foreign_below = [&](const MessageKey& key) {
    for (; next < deliveries.size() && deliveries[next].key < key; ++next) {
      ++result.foreign;
      Note(deliveries[next].key, &result.foreign_examples);
    }
  };
  for (const ProducedRecord& event : input.produced) {
    result.events += event.acknowledged ? 1 : 0;
    result.unknown += event.acknowledged ? 0 : 1;
    plan.Match(event.event, &matched);
    for (uint32_t endpoint : matched) {
      const MessageKey key{event.number, endpoint};
      foreign_below(key);
      const size_t from = next;
      while (next < deliveries.size() && deliveries[next].key == key) ++next;
      const size_t times = next - from;
      const bool dead = Contains(input.dead_letters, key);
      if (times > 1) {
        result.repeats += times - 1;
        Note(key, &result.repeated_examples);
        for (size_t i = from + 1; i < next; ++i) {
          if (deliveries[i].message != deliveries[from].message) ++result.ids_changed;
        }
      }
      if (times > 0) {
        last_arrival = std::max(last_arrival, deliveries[from].arrived_us);
        if (event.sent_us - first_sent >= input.skip_us) {
          latencies.push_back(deliveries[from].arrived_us - event.sent_us);
        }
        if (dead) ++result.delivered_and_dead;
      }
      if (!event.acknowledged) continue;
      ++result.expected;
      if (times > 0) {
        ++result.delivered;
      } else if (dead) {
        ++result.dead_lettered;
      } else if (Contains(input.withheld, key)) {
        ++result.withheld;
      } else {
        ++result.lost;
        Note(key, &result.lost_examples);
      }
    }
  }
  foreign_below(MessageKey{~0ULL, ~0U});
  result.seconds = static_cast<double>(last_arrival - first_sent) / 1e6;
  result.p50_ms = QuantileMs(&latencies, 0.5);
  result.p90_ms = QuantileMs(&latencies, 0.9);
  result.p99_ms = QuantileMs(&latencies, 0.99);
  result.max_ms = QuantileMs(&latencies, 1);
  return result;
}

uint64_t CountExpected(const Plan& plan, const std::vector<ProducedRecord>& produced) {
  uint64_t expected = 0;
  std::vector<uint32_t> matched;
  for (const ProducedRecord& event : produced) {
    if (!event.acknowledged) continue;
    plan.Match(event.event, &matched);
    expected += matched.size();
  }
  return expected;
}

std::string AccountResult::ToJson() const {
  return absl::StrCat(
      R"({"events":)", events, R"(,"unknown":)", unknown, R"(,"expected":)", expected,
      R"(,"delivered":)", delivered, R"(,"dead_lettered":)", dead_lettered, R"(,"withheld":)",
      withheld, R"(,"lost":)", lost, R"(,"repeats":)", repeats, R"(,"delivered_and_dead":)",
      delivered_and_dead, R"(,"foreign":)", foreign, R"(,"signatures_bad":)", signatures_bad,
      R"(,"contents_bad":)", contents_bad, R"(,"envelopes_bad":)", envelopes_bad,
      R"(,"ids_changed":)", ids_changed, R"(,"ordered":)", ordered, R"(,"reordered":)", reordered,
      R"(,"p50_ms":)", p50_ms, R"(,"p90_ms":)", p90_ms, R"(,"p99_ms":)", p99_ms, R"(,"max_ms":)",
      max_ms, R"(,"seconds":)", seconds, R"(,"lost_examples":)", Examples(lost_examples),
      R"(,"repeated_examples":)", Examples(repeated_examples), R"(,"foreign_examples":)",
      Examples(foreign_examples), R"(,"reordered_examples":)", Examples(reordered_examples), "}");
}

MessageList ParseMessageList(absl::string_view text, uint32_t run, const State& state) {
  MessageList list;
  const auto by_id = state.EndpointsById();
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    uint32_t line_run = 0;
    MessageKey key;
    if (words.size() < 2 || !ParseEventId(words[0], &line_run, &key.event) || line_run != run) {
      ++list.foreign;
      continue;
    }
    const auto endpoint = by_id.find(std::string(words[1]));
    if (endpoint == by_id.end()) {
      ++list.foreign;
      continue;
    }
    key.endpoint = endpoint->second;
    list.messages.push_back(key);
  }
  return list;
}

}  // namespace postrider::loadtest
