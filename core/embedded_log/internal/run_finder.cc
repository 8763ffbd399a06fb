#include "core/embedded_log/internal/run_finder.h"

#include <rocksdb/options.h>
#include <rocksdb/status.h>

#include <algorithm>
#include <memory>

#include "core/embedded_log/internal/rocks.h"

namespace postrider::embedded_log_internal {
namespace {

// No run has more records.
constexpr int64_t kLookBackMax = 1 << 20;
constexpr int64_t kNoEnd = int64_t{1} << 62;

}  // namespace

RunFinder::RunFinder(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* runs, PartitionId id,
                     DamageTeller& teller)
    : db_(db),
      runs_(runs),
      id_(id),
      teller_(teller),
      lower_(PartitionKey(id)),
      upper_(PartitionEndKey(id)),
      lower_slice_(lower_),
      upper_slice_(upper_) {
  Renew();
}

// After a fault too: an iterator of RocksDB 7.8 may go on failing wherever it is set then.
void RunFinder::Renew() {
  rocksdb::ReadOptions options;
  options.iterate_lower_bound = &lower_slice_;
  options.iterate_upper_bound = &upper_slice_;
  options.fill_cache = false;  // what is read once would displace what is looked up
  entry_.reset(db_.NewIterator(options, runs_));
}

int64_t RunFinder::base() const { return BaseOf(ToView(entry_->key())); }
absl::string_view RunFinder::stored() const { return ToView(entry_->value()); }

// False: it is no run; whoever meets it passes it over.
bool RunFinder::Take(RunPlace* run) const {
  const absl::optional<RunHeader> header = ReadRunHeader(stored());
  if (!header.has_value()) return false;
  run->base = base();
  run->bytes = stored().size();
  run->header = *header;
  return run->base >= 0 && header->next > run->base;
}

bool RunFinder::FindFrom(int64_t from, int64_t until, RunPlace* run) {
  while (from < until && SeekFrom(from, until)) {
    if (base() >= until) return false;
    if (Take(run)) return true;
    teller_.TellLost(id_, base(), base() + 1);
    from = base() + 1;
  }
  return false;
}

// Stands at the first entry at or behind `from` that can be read; false: there is none. Damaged
// blocks are found by trying further and further on, then halving back to where reading goes again.
bool RunFinder::SeekFrom(int64_t from, int64_t until) {
  int64_t bad = -1;
  int64_t step = 1;
  int64_t at = from;
  const auto seek_fails = [this](int64_t base) {
    entry_->Seek(RunKey(id_, base));
    if (entry_->Valid() || entry_->status().ok()) return false;
    Renew();
    return true;
  };
  while (at < until && seek_fails(at)) {
    bad = at;
    at = at + step;
    step *= 2;
  }
  if (bad < 0) return entry_->Valid();
  int64_t good = std::min(at, until);
  while (good - bad > 1) {
    const int64_t middle = bad + (good - bad) / 2;
    (seek_fails(middle) ? bad : good) = middle;
  }
  if (good < until) entry_->Seek(RunKey(id_, good));
  const bool found = good < until && entry_->Valid();
  teller_.TellLost(id_, from, found ? base() : until);
  return found;
}

// Looking back meets damage of what lies before, even of another partition: looks from further and
// further before `offset` on for the run that it lies in.
bool RunFinder::FindFromBefore(int64_t offset, RunPlace* run) {
  for (int64_t step = 1;; step *= 2) {
    Renew();
    const int64_t at = std::max<int64_t>(0, offset - step);
    for (entry_->Seek(RunKey(id_, at)); entry_->Valid() && base() <= offset; entry_->Next()) {
      if (Take(run) && run->header.next > offset) return true;
    }
    if (at == 0 || (entry_->Valid() && step > kLookBackMax)) return false;
  }
}

bool RunFinder::FindAt(int64_t offset, int64_t until, RunPlace* run) {
  entry_->SeekForPrev(RunKey(id_, offset));
  if (entry_->Valid() && Take(run) && run->header.next > offset) return true;
  const bool unsure = !entry_->status().ok();
  if (unsure && FindFromBefore(offset, run)) return true;
  if (unsure) Renew();
  const bool found = FindFrom(offset + 1, until, run);
  if (unsure && (!found || run->base > offset))
    teller_.TellLost(id_, offset, found ? run->base : until);
  return found;
}

bool RunFinder::StepTo(int64_t until, RunPlace* run) {
  entry_->Next();
  return entry_->Valid() && base() < until && Take(run);
}

absl::optional<RunPlace> RunFinder::FindLast() {
  RunPlace run;
  for (entry_->SeekToLast(); entry_->Valid(); entry_->Prev()) {
    if (Take(&run)) return run;
    teller_.TellLost(id_, base(), base() + 1);
  }
  if (entry_->status().ok()) return absl::nullopt;
  // The end is in a damaged place: the last one that can be read before it.
  Renew();
  int64_t from = 0;
  absl::optional<RunPlace> last;
  while (FindFrom(from, kNoEnd, &run)) {
    last = run;
    for (entry_->Next(); entry_->Valid(); entry_->Next()) {
      if (Take(&run)) last = run;
    }
    if (entry_->status().ok()) break;
    Renew();
    from = last->header.next;
  }
  return last;
}

}  // namespace postrider::embedded_log_internal
