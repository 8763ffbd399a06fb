#include "core/stream/trim_holds.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/log.h"

namespace postrider {

void TrimHolds::Set(absl::string_view pool, absl::string_view id, absl::string_view value) {
  Key key{std::string(pool), std::string(id)};
  holds_.erase(key);
  unreadable_.erase(key);
  if (value.data() == nullptr) return;
  absl::StatusOr<SavepointHold> hold = DecodeSavepointHold(value);
  if (hold.ok() && (hold->pool != key.first || hold->id != key.second)) {
    hold = absl::DataLossError("control: a savepoint's hold stands under another one's key");
  }
  if (hold.ok()) {
    holds_.emplace(std::move(key), *std::move(hold));
  } else {
    unreadable_.emplace(std::move(key), std::string(hold.status().message()));
  }
}

absl::optional<int64_t> TrimHolds::LowestHeld(absl::string_view group, const TopicPartition& tp,
                                              WallTime now) const {
  if (!unreadable_.empty()) return 0;
  absl::optional<int64_t> lowest;
  for (const auto& [key, hold] : holds_) {
    if (hold.expires <= now || hold.group != group || hold.topic != tp.topic) continue;
    if (tp.partition < 0 || static_cast<size_t>(tp.partition) >= hold.offsets.size()) continue;
    const int64_t offset = hold.offsets[static_cast<size_t>(tp.partition)];
    lowest = lowest ? std::min(*lowest, offset) : offset;
  }
  return lowest;
}

void ControlState::Apply(const LogRecord& record) {
  const ControlKey key = ParseControlKey(record.key);
  const bool removed = record.value.data() == nullptr;
  switch (key.kind) {
    case ControlKey::Kind::kUnknown:
      break;
    case ControlKey::Kind::kSavepointHold:
      holds.Set(key.pool, key.id, record.value);
      break;
    case ControlKey::Kind::kRestoreMark: {
      restores.erase(key.pool);
      if (removed) break;
      // One that cannot be read is a mark all the same.
      absl::StatusOr<RestoreMark> mark = DecodeRestoreMark(record.value);
      RestoreMark unreadable;
      unreadable.pool = key.pool;
      restores.emplace(key.pool, mark.ok() ? *std::move(mark) : std::move(unreadable));
      break;
    }
    case ControlKey::Kind::kPool: {
      pools.erase(key.pool);
      pools_unreadable.erase(key.pool);
      if (removed) break;
      absl::StatusOr<PoolRecord> pool = DecodePoolRecord(record.value);
      if (pool.ok() && pool->pool != key.pool) {
        pool = absl::DataLossError("control: a pool's record stands under another one's key");
      }
      if (pool.ok()) {
        pools.emplace(key.pool, *std::move(pool));
      } else {
        pools_unreadable.emplace(key.pool, std::string(pool.status().message()));
      }
      break;
    }
    case ControlKey::Kind::kLogIdentity: {
      log_identity = absl::nullopt;
      if (removed) break;
      const absl::StatusOr<IdBytes> identity = DecodeLogIdentity(record.value);
      if (identity.ok()) {
        log_identity = *identity;
      } else {
        POSTRIDER_LOG(kWarn, "the log's identity cannot be read",
                      {"why", identity.status().message()});
      }
      break;
    }
  }
}

}  // namespace postrider
