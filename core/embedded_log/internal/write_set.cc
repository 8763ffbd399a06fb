#include "core/embedded_log/internal/write_set.h"

#include <memory>

#include "core/embedded_log/internal/rocks.h"

namespace postrider::embedded_log_internal {

WriteSet::WriteSet() : impl_(std::make_unique<Impl>()) {}
WriteSet::~WriteSet() = default;
void WriteSet::PutRun(PartitionId id, const Run& run) {
  impl_->batch.Put(&impl_->runs, RunKey(id, run.base), run.bytes).PermitUncheckedError();
}
void WriteSet::DeleteRun(PartitionId id, int64_t base) {
  impl_->batch.Delete(&impl_->runs, RunKey(id, base)).PermitUncheckedError();
}
void WriteSet::DeleteRuns(PartitionId id, int64_t from, int64_t to) {
  if (from >= to) return;
  impl_->batch.DeleteRange(&impl_->runs, RunKey(id, from), RunKey(id, to)).PermitUncheckedError();
}
void WriteSet::DeletePartition(PartitionId id) {
  impl_->batch.DeleteRange(&impl_->runs, PartitionKey(id), PartitionEndKey(id))
      .PermitUncheckedError();
}
void WriteSet::PutEntry(absl::string_view key, absl::string_view value) {
  impl_->batch.Put(ToSlice(key), ToSlice(value)).PermitUncheckedError();
}
void WriteSet::DeleteEntry(absl::string_view key) {
  impl_->batch.Delete(ToSlice(key)).PermitUncheckedError();
}
void WriteSet::Clear() { impl_->batch.Clear(); }
bool WriteSet::empty() const { return impl_->batch.Count() == 0; }
size_t WriteSet::bytes() const { return impl_->batch.GetDataSize(); }

}  // namespace postrider::embedded_log_internal
