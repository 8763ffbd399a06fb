#include "delivery/endpoint_order.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider::delivery {
namespace {

using subscriptions::OrderKind;

constexpr uint64_t kEndpointKey = 1;

uint64_t HashOf(JsonKind kind, absl::string_view text) {
  const uint64_t hash = absl::HashOf(static_cast<int>(kind), text);
  return hash <= kEndpointKey ? hash + 2 : hash;
}

void Count(absl::flat_hash_map<uint64_t, uint32_t>& keys, uint64_t key) { ++keys[key]; }
// True: it was the last one.
bool Uncount(absl::flat_hash_map<uint64_t, uint32_t>& keys, uint64_t key) {
  const auto found = keys.find(key);
  if (found == keys.end() || --found->second > 0) return false;
  keys.erase(found);
  return true;
}

}  // namespace

EndpointOrder::EndpointOrder(const subscriptions::OrderSettings& settings) : settings_(settings) {
  if (settings.kind != OrderKind::kKey || settings.key_pointer.empty()) return;
  absl::StatusOr<JsonPointer> pointer = JsonPointer::Parse(settings.key_pointer);
  // One that is broken in the database finds nothing: all events share a key.
  pointer_ = pointer.ok() ? *std::move(pointer) : JsonPointer();
}

uint64_t EndpointOrder::KeyOf(const MessageContent& content) {
  if (EndpointWide()) return kEndpointKey;
  if (!pointer_) return HashOf(JsonKind::kString, content.record.tenant);
  reader_.Reset(content.data());
  const JsonScalar value = reader_.Find(*pointer_);
  return HashOf(value.kind, value.text);
}

void EndpointOrder::SetKeys(std::vector<Message>& messages) {
  for (Message& message : messages) {
    if (EndpointWide()) {
      message.order_key = kEndpointKey;
    } else if (message.order_key == kUnknownKey && message.content != nullptr) {
      message.order_key = KeyOf(*message.content);
    }
  }
}

void EndpointOrder::SetKeys(Batch& batch) {
  if (batch.messages.empty()) return;  // its members are left out: what was known stays
  batch.first_order = batch.messages.front().order;
  batch.order_keys.clear();
  for (const Message& message : batch.messages) {
    batch.first_order = std::min(batch.first_order, message.order);
    batch.order_keys.push_back(message.order_key);
  }
  std::sort(batch.order_keys.begin(), batch.order_keys.end());
  batch.order_keys.erase(std::unique(batch.order_keys.begin(), batch.order_keys.end()),
                         batch.order_keys.end());
  if (batch.order_keys.front() == kUnknownKey) batch.order_keys.clear();
  batch.order_keys.shrink_to_fit();
}

void EndpointOrder::Block(const Batch& batch) {
  if (batch.order_keys.empty()) ++unknown_;
  for (const uint64_t key : batch.order_keys) Count(blocked_, key);
}

void EndpointOrder::Unblock(const Batch& batch) {
  if (batch.order_keys.empty() && unknown_ > 0 && --unknown_ == 0) {
    all_freed_ = true;
    stalled_ = false;
  }
  for (const uint64_t key : batch.order_keys) {
    if (Uncount(blocked_, key)) Free(key);
  }
}

void EndpointOrder::BlockEnding(uint64_t key) { Count(endings_, key); }
void EndpointOrder::UnblockEnding(uint64_t key) {
  if (Uncount(endings_, key)) Free(key);
}

void EndpointOrder::Free(uint64_t key) {
  stalled_ = false;
  if (passed_.contains(key)) freed_.push_back(key);
}

bool EndpointOrder::EndingBlocks(const Batch& batch) const {
  if (batch.order_keys.empty()) return !endings_.empty();
  return std::any_of(batch.order_keys.begin(), batch.order_keys.end(),
                     [this](uint64_t key) { return endings_.contains(key); });
}

bool EndpointOrder::IsBlockedBeside(const Batch& batch) const {
  if (batch.order_keys.empty()) return unknown_ > 1 || !blocked_.empty() || !endings_.empty();
  if (unknown_ > 0 || EndingBlocks(batch)) return true;
  return std::any_of(batch.order_keys.begin(), batch.order_keys.end(), [this](uint64_t key) {
    const auto found = blocked_.find(key);
    return found != blocked_.end() && found->second > 1;
  });
}

bool EndpointOrder::Share(const Batch& a, const Batch& b) {
  if (a.order_keys.empty() || b.order_keys.empty()) return true;
  auto left = a.order_keys.begin();
  auto right = b.order_keys.begin();
  while (left != a.order_keys.end() && right != b.order_keys.end()) {
    if (*left == *right) return true;
    if (*left < *right) {
      ++left;
    } else {
      ++right;
    }
  }
  return false;
}

void EndpointOrder::Pass(uint64_t key, uint64_t order) {
  const auto [place, added] = passed_.emplace(key, order);
  if (!added) place->second = std::min(place->second, order);
}

absl::optional<uint64_t> EndpointOrder::TakeFreed() {
  if (unknown_ > 0) return absl::nullopt;
  if (std::exchange(all_freed_, false)) {
    freed_.clear();
    for (const auto& [key, order] : passed_) freed_.push_back(key);
  }
  if (freed_.empty()) return absl::nullopt;
  absl::optional<uint64_t> first;
  for (const uint64_t key : std::exchange(freed_, {})) {
    // Blocked again: it waits for its next try.
    if (IsBlocked(key)) continue;
    const auto passed = passed_.find(key);
    if (passed == passed_.end()) continue;
    if (!first || passed->second < *first) first = passed->second;
    passed_.erase(passed);
  }
  return first;
}

}  // namespace postrider::delivery
