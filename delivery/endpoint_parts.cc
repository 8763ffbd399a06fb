// An endpoint that is spread over several key groups: what its parts tell each other.

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/log.h"
#include "core/stream/key_groups.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/part_notice.h"
#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider::delivery {

// A disable that one part has met stops the others. It is told once in a memory's life, also by
// those that were told themselves and have come into memory again: that says nothing new. Parts
// left over from a greater parallelism meet it by their own next request.
void EndpointFunction::TellParts(EndpointState& state) {
  const HealthRecord& health = state.health.record();
  if (health.disabled == DisableReason::kNone || state.desired == nullptr ||
      state.share.parts() <= 1 || program_.options().key_groups <= 0) {
    return;
  }
  if (std::exchange(state.notice_generation, health.disabled_generation) !=
      health.disabled_generation) {
    state.notice_next_part = 0;
  }
  const auto parts = static_cast<uint32_t>(state.desired->settings.parallelism);
  const std::string notice =
      EncodePartNotice({health.disabled, health.disabled_generation, health.disabled_at});
  for (; state.notice_next_part < parts; ++state.notice_next_part) {
    if (state.notice_next_part == state.share.part()) continue;
    AppendRecord record;
    record.topic = ctx_->partition().topic;
    record.key = subscriptions::EncodeDispatchKey({state.id, state.notice_next_part});
    record.partition = KeyGroupOf(record.key, 0, program_.options().key_groups);
    record.value = notice;
    record.headers = {{std::string(kPartNoticeHeader), "disabled"}};
    const bool taken =
        ctx_->Emit(std::move(record), [this, key = state.key](absl::StatusOr<int64_t> appended) {
          EndpointState* told = appended.ok() ? nullptr : endpoints_.Get(key);
          if (told != nullptr) told->notice_next_part = 0;  // all are told again
        });
    if (!taken) return;
  }
}

void EndpointFunction::OnPartNotice(const LogRecord& record) {
  const int64_t offset = record.offset;
  next_read_ = static_cast<uint64_t>(offset) + 1;
  WakeUnread();
  const absl::StatusOr<PartNotice> notice = DecodePartNotice(record.value);
  if (absl::IsUnimplemented(notice.status())) return ctx_->Fail(notice.status());
  if (!notice.ok() || !subscriptions::DecodeDispatchKey(record.key)) return Reject(record);
  EndpointState& state = StateOf(record.key);
  if (!state.health.OnDisabledElsewhere(notice->disabled, notice->generation,
                                        notice->disabled_at)) {
    return ctx_->Complete(offset);
  }
  POSTRIDER_LOG(kWarn, "endpoint is disabled by another of its parts",
                {"endpoint", state.id.ToString()});
  state.last_used = ctx_->clock().Now();
  // Who has told this part tells all.
  state.notice_generation = notice->generation;
  state.notice_next_part = UINT32_MAX;
  ParkAll(state, ParkReason::kStopped);
  CountHealth(state, state.health.state());
  WriteHealth(state);
  Schedule(state);
  if (health_ == nullptr ||
      !ctx_->state(kEndpointChangelog).WhenDurable([this, offset] { ctx_->Complete(offset); })) {
    ctx_->Complete(offset);
  }
}

}  // namespace postrider::delivery
