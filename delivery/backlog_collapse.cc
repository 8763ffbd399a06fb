#include "delivery/backlog_collapse.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/crypto/digest.h"

namespace postrider::delivery {

BacklogCollapse::BacklogCollapse(const subscriptions::BacklogSettings& settings) {
  if (settings.collapse_pointer.empty()) return;
  absl::StatusOr<JsonPointer> pointer = JsonPointer::Parse(settings.collapse_pointer);
  broken_ = !pointer.ok();
  if (!broken_) pointer_ = *std::move(pointer);
}

absl::optional<IdBytes> BacklogCollapse::KeyOf(const MessageContent& content) {
  if (broken_) return absl::nullopt;
  Sha256Digest digest{};
  if (!pointer_) {
    digest = Sha256(content.record.tenant);
  } else {
    reader_.Reset(content.data());
    const JsonScalar value = reader_.Find(*pointer_);
    if (value.kind == JsonKind::kAbsent || value.kind == JsonKind::kArray ||
        value.kind == JsonKind::kObject) {
      return absl::nullopt;
    }
    digest = Sha256({std::string(1, static_cast<char>(value.kind)), value.text});
  }
  IdBytes key{};
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

bool BacklogCollapse::Show(uint64_t order, const MessageContent& content) {
  Pass(order);
  const absl::optional<IdBytes> key = KeyOf(content);
  if (!key) return false;
  const auto found = newest_.find(*key);
  if (phase_ == Phase::kTaking) return found != newest_.end() && order < found->second;
  if (found != newest_.end()) {
    found->second = std::max(found->second, order);
  } else if (newest_.size() < kKeysMax) {
    newest_.emplace(*key, order);
  }
  return false;
}

}  // namespace postrider::delivery
