#include "core/state/lazy_store.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace postrider {
namespace {

class LazyStore final : public StateStore {
 public:
  explicit LazyStore(absl::AnyInvocable<absl::StatusOr<std::unique_ptr<StateStore>>()> open)
      : open_(std::move(open)) {}

  absl::Status Apply(const StateBatch& batch) override {
    if (store_ == nullptr) {
      // There is nothing yet that it could delete.
      if (batch.put_bytes() == 0) return absl::OkStatus();
      absl::StatusOr<std::unique_ptr<StateStore>> opened = open_();
      if (!opened.ok()) {
        return absl::DataLossError(
            absl::StrCat("state: the store cannot be opened: ", opened.status().ToString()));
      }
      store_ = *std::move(opened);
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
  absl::AnyInvocable<absl::StatusOr<std::unique_ptr<StateStore>>()> open_;
  std::unique_ptr<StateStore> store_;
};

}  // namespace

std::unique_ptr<StateStore> MakeLazyStore(
    absl::AnyInvocable<absl::StatusOr<std::unique_ptr<StateStore>>()> open) {
  return std::make_unique<LazyStore>(std::move(open));
}

}  // namespace postrider
