#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "loadtest/ledger.h"
#include "loadtest/plan.h"
#include "loadtest/state.h"

namespace postrider::loadtest {

// One message: an event for one endpoint.
struct MessageKey {
  uint64_t event = 0;
  uint32_t endpoint = 0;
  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};

struct AccountInput {
  std::vector<ProducedRecord> produced;
  uint32_t run = 0;  // messages of other runs are foreign
  std::vector<ReceivedRecord> received;
  std::vector<MessageKey> dead_letters;
  std::vector<MessageKey> withheld;  // and discarded
  int64_t skip_us = 0;               // latencies of events sent this long after the first, or later
};

// produced x matched = delivered + dead letters + withheld + discarded, by id.
struct AccountResult {
  uint64_t events = 0;         // acknowledged by Kafka
  uint64_t unknown = 0;        // events not acknowledged: may be delivered or not
  uint64_t expected = 0;       // messages of the acknowledged events
  uint64_t delivered = 0;      // of the expected
  uint64_t dead_lettered = 0;  // of the expected, and not delivered
  uint64_t withheld = 0;       // of the expected, neither delivered nor dead
  uint64_t lost = 0;
  uint64_t repeats = 0;  // deliveries beyond the first
  uint64_t delivered_and_dead = 0;
  uint64_t foreign = 0;  // accepted deliveries that should not exist: wrong endpoint or event
  uint64_t signatures_bad = 0;  // messages
  uint64_t contents_bad = 0;
  uint64_t envelopes_bad = 0;
  uint64_t ids_changed = 0;  // repeats whose message id differs
  // Where an order is asked for: messages that arrived for the first time, answered well or not,
  // behind a later one of the same type (the order is that of its topic) and key. Those that became
  // dead letters are no longer promised anything.
  uint64_t ordered = 0;  // that arrived and have an order
  uint64_t reordered = 0;
  double p50_ms = 0;  // sent to first delivery
  double p90_ms = 0;
  double p99_ms = 0;
  double max_ms = 0;
  double seconds = 0;                     // first sent to last first delivery
  std::vector<MessageKey> lost_examples;  // at most 10 of each
  std::vector<MessageKey> repeated_examples;
  std::vector<MessageKey> foreign_examples;
  std::vector<MessageKey> reordered_examples;

  // Nothing lost or out of its order, nothing that should not have been delivered, every byte and
  // signature right.
  bool good() const {
    return lost == 0 && foreign == 0 && signatures_bad == 0 && contents_bad == 0 &&
           envelopes_bad == 0 && ids_changed == 0 && reordered == 0;
  }
  std::string ToJson() const;
};

// Sorts: a million messages take about a second.
AccountResult Account(const Plan& plan, AccountInput input);

// How many messages the acknowledged events must become.
uint64_t CountExpected(const Plan& plan, const std::vector<ProducedRecord>& produced);

// Lines of "<event id> <endpoint id>", more words are passed over. Lines of other runs or of
// endpoints that are not in the plan are skipped and counted.
struct MessageList {
  std::vector<MessageKey> messages;
  uint64_t foreign = 0;
};
MessageList ParseMessageList(absl::string_view text, uint32_t run, const State& state);

}  // namespace postrider::loadtest
