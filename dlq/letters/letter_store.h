#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/postgres/transaction.h"
#include "subscriptions/registry/ids.h"

// The letters as customers see them: list, look, lease, acknowledge. Every call runs in a
// transaction begun with subscriptions::AsCustomer(), and names the customer besides. Only letters
// of tenants that the customer is granted now, and not older than the retention, exist for it; all
// others are kNotFound. Callbacks run on the transaction's loop.
namespace postrider::dlq {

inline constexpr std::chrono::hours kLetterRetention{24 * 14};
inline constexpr size_t kLetterPageMax = 1000;
inline constexpr size_t kPollMax = 100;
// A page or a poll ends with the letter that brings the sum of their `data` to this, so that no
// answer outgrows the memory of who makes it: an event may have half a megabyte.
inline constexpr int64_t kLetterPageBytesMax = 4 << 20;
inline constexpr std::chrono::seconds kLeaseLeast{30};
inline constexpr std::chrono::seconds kLeaseMost{3600};
inline constexpr std::chrono::seconds kNackDelayMost{86'400};

enum class LetterState { kOpen, kLeased, kReplaying, kClosed };
absl::string_view LetterStateName(LetterState state);
absl::optional<LetterState> ParseLetterState(absl::string_view name);

struct Letter {
  subscriptions::LetterId id;
  subscriptions::EndpointId endpoint;
  std::string message_id;
  std::string event_id;
  std::string type;
  std::string tenant;
  absl::optional<std::string> department;
  WallTime event_time;
  std::string reason;
  int64_t attempts = 0;
  int64_t last_status = 0;  // 0: none
  std::string last_outcome;
  std::string data;  // the event's JSON, byte for byte
  // A lease that has run out reads as open.
  LetterState state = LetterState::kOpen;
  absl::optional<std::string> closed_as;
  WallTime available_at;
  WallTime created_at;
};

struct LeasedLetter {
  Letter letter;
  // 32 hex digits: to be given back by ack, nack and extend. Known to nobody else; stored as a
  // hash.
  std::string receipt;
};

struct LetterFilter {
  absl::optional<subscriptions::EndpointId> endpoint;
  absl::optional<LetterState> state;
  absl::optional<subscriptions::LetterId> before;  // the last one of the page before
};

template <typename T>
using LettersDone = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;
using LetterDone = absl::AnyInvocable<void(absl::Status) &&>;

// The newest first; at most `limit` (1 .. kLetterPageMax), fewer at kLetterPageBytesMax:
// MoreMayFollow() tells.
void ListLetters(Transaction& tx, subscriptions::CustomerId customer, const LetterFilter& filter,
                 size_t limit, LettersDone<std::vector<Letter>> done);
void GetLetter(Transaction& tx, subscriptions::CustomerId customer, subscriptions::LetterId id,
               LettersDone<Letter> done);
// Whether there may be older letters than those of a page that was asked for with `limit`.
bool MoreMayFollow(const std::vector<Letter>& page, size_t limit);
// Leases letters that are open, or whose lease has run out, those first that have been available
// the longest (one that was given back goes behind the others), then the oldest; at most `limit` (1
// .. kPollMax), fewer at kLetterPageBytesMax. Two polls at once never get the same letter. `lease`
// within kLeaseLeast .. kLeaseMost.
void PollLetters(Transaction& tx, subscriptions::CustomerId customer,
                 absl::optional<subscriptions::EndpointId> endpoint, size_t limit,
                 std::chrono::seconds lease, LettersDone<std::vector<LeasedLetter>> done);
// The three below: kAborted when `receipt` is not that of the letter's present lease, or the lease
// has run out: the customer is told 409.
void AckLetter(Transaction& tx, subscriptions::CustomerId customer, subscriptions::LetterId id,
               absl::string_view receipt, LetterDone done);
// Open again after `delay` (at most kNackDelayMost).
void NackLetter(Transaction& tx, subscriptions::CustomerId customer, subscriptions::LetterId id,
                absl::string_view receipt, std::chrono::seconds delay, LetterDone done);
// The lease lasts for `lease` from now; gives its end.
void ExtendLease(Transaction& tx, subscriptions::CustomerId customer, subscriptions::LetterId id,
                 absl::string_view receipt, std::chrono::seconds lease, LettersDone<WallTime> done);

}  // namespace postrider::dlq
