#include "core/state/lazy_store.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace postrider {
namespace {

// Between two tries to open it on a full disk.
constexpr std::chrono::seconds kFullRetry{1};

class LazyStore final : public StateStore {
 public:
  LazyStore(const Clock& clock,
            absl::AnyInvocable<absl::StatusOr<std::unique_ptr<StateStore>>()> open)
      : clock_(clock), open_(std::move(open)) {}

  absl::Status Apply(const StateBatch& batch) override {
    if (store_ == nullptr) {
      // There is nothing yet that it could delete.
      if (batch.put_bytes() == 0) return absl::OkStatus();
      RETURN_IF_ERROR(Open());
    }
    return store_->Apply(batch);
  }

  absl::StatusOr<bool> Get(absl::string_view key, std::string& value) const override {
    if (store_ == nullptr) return false;
    return store_->Get(key, value);
  }

  absl::StatusOr<ScanEnd> Scan(StateRange& range, absl::string_view from, const ScanLimits& limits,
                               Visitor visit) const override {
    if (store_ == nullptr) return ScanEnd::kRangeEnd;
    return store_->Scan(range, from, limits, visit);
  }

  absl::Status Clear() override { return store_ == nullptr ? absl::OkStatus() : store_->Clear(); }

  StoreFigures figures() const override {
    return store_ == nullptr ? StoreFigures() : store_->figures();
  }

 private:
  absl::Status Open() {
    if (clock_.Now() < open_again_) return full_;
    absl::StatusOr<std::unique_ptr<StateStore>> opened = open_();
    if (opened.ok()) {
      store_ = *std::move(opened);
      return absl::OkStatus();
    }
    const absl::Status why(
        opened.status().code(),
        absl::StrCat("state: the store cannot be opened: ", opened.status().message()));
    if (absl::IsResourceExhausted(why)) {
      full_ = why;
      open_again_ = clock_.Now() + kFullRetry;
    }
    return why;
  }

  const Clock& clock_;
  absl::AnyInvocable<absl::StatusOr<std::unique_ptr<StateStore>>()> open_;
  std::unique_ptr<StateStore> store_;
  absl::Status full_;
  MonotonicTime open_again_{};
};

}  // namespace

std::unique_ptr<StateStore> MakeLazyStore(
    const Clock& clock, absl::AnyInvocable<absl::StatusOr<std::unique_ptr<StateStore>>()> open) {
  return std::make_unique<LazyStore>(clock, std::move(open));
}

}  // namespace postrider
