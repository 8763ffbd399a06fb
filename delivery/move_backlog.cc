#include "delivery/move_backlog.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/state/durable_state_reader.h"
#include "core/stream/changelog.h"
#include "core/stream/hole_map.h"
#include "core/stream/keyed_state.h"
#include "core/stream/operation.h"
#include "core/stream/state_key.h"
#include "delivery/backlog_state.h"
#include "delivery/flight_result.h"
#include "delivery/outcome.h"
#include "delivery/parked_header.h"
#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider::delivery {
namespace {

// Contents that wait on disk, each at its place.
class Contents {
 public:
  static absl::StatusOr<std::unique_ptr<Contents>> Create(const std::string& directory) {
    std::string path = absl::StrCat(directory, "/postrider-rescale.XXXXXX");
    const int fd = ::mkstemp(path.data());
    if (fd < 0) return Fault("making a file in " + directory);
    ::unlink(path.c_str());
    return std::unique_ptr<Contents>(new Contents(fd));
  }
  ~Contents() { ::close(fd_); }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;

  // Returns its place.
  absl::StatusOr<uint64_t> Append(absl::string_view bytes) {
    const uint64_t place = written_ + buffer_.size();
    buffer_.append(bytes.data(), bytes.size());
    if (buffer_.size() >= kBufferBytes) RETURN_IF_ERROR(Write());
    return place;
  }
  absl::StatusOr<std::string> Read(uint64_t place, size_t bytes) {
    if (!buffer_.empty()) RETURN_IF_ERROR(Write());
    std::string read(bytes, '\0');
    for (size_t done = 0; done < bytes;) {
      const ssize_t got =
          ::pread(fd_, read.data() + done, bytes - done, static_cast<off_t>(place + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return Fault("reading a temporary file");
      done += static_cast<size_t>(got);
    }
    return read;
  }

 private:
  static constexpr size_t kBufferBytes = 1 << 20;
  explicit Contents(int fd) : fd_(fd) {}
  static absl::Status Fault(absl::string_view what) {
    return absl::UnavailableError(absl::StrCat("rescale: ", what, ": ", std::strerror(errno)));
  }
  absl::Status Write() {
    for (size_t done = 0; done < buffer_.size();) {
      const ssize_t put = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Fault("writing a temporary file");
      done += static_cast<size_t>(put);
    }
    written_ += buffer_.size();
    buffer_.clear();
    return absl::OkStatus();
  }

  const int fd_;
  std::string buffer_;
  uint64_t written_ = 0;
};

struct Entry {
  uint64_t order = 0;
  std::string key;
  IdBytes digest{};
  uint64_t place = 0;
  uint32_t bytes = 0;
  int64_t batch = -1;  // its place in `batches`
};

struct Batch {
  IdBytes key{};
  BatchAttempts attempts;
  std::vector<size_t> members;  // places in `entries`, by their order
  bool passed = false;
};

absl::Status Unreadable(const TopicPartition& tp, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("rescale: ", tp.ToString(), ": ", what, " of the durable state cannot be read"));
}

class Mover {
 public:
  Mover(Log& log, const Clock& clock, BlockingReader& reader, const MovedKeyGroup& key_group,
        const std::string& spool_directory, std::chrono::milliseconds timeout,
        const std::function<absl::Status(AppendRecord&&)>& append, const AppendState& append_state,
        MoveFigures* figures)
      : log_(log),
        clock_(clock),
        reader_(reader),
        key_group_(key_group),
        spool_directory_(spool_directory),
        timeout_(timeout),
        append_(append),
        append_state_(append_state),
        figures_(*figures) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(contents_, Contents::Create(spool_directory_));
    RETURN_IF_ERROR(PassEndpointState());
    RETURN_IF_ERROR(ReadBacklog());
    RETURN_IF_ERROR(ReadResults());
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.order, a.digest) < std::tie(b.order, b.digest);
    });
    JoinBatches();
    RETURN_IF_ERROR(PassLeftOver());
    return PassEntriesBelow(UINT64_MAX);
  }

 private:
  using BatchId = std::pair<std::string, IdBytes>;  // endpoint's key, batch's key

  absl::Status CheckState(const TopicPartition& tp, uint16_t id, uint32_t version,
                          uint32_t version_max) const {
    if (version <= version_max) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("rescale: ", tp.ToString(), ": state ", id, " was written in version ",
                     version, " by a newer program: rescale with that one"));
  }
  absl::Status Unknown(const TopicPartition& tp, uint16_t id) const {
    return absl::FailedPreconditionError(absl::StrCat("rescale: ", tp.ToString(), ": state ", id,
                                                      " is not known: a newer program wrote it"));
  }

  // What is known of endpoints is moved as it is, and all of it must be known to us; but for who
  // has a backlog, which shows by its entries.
  absl::Status PassEndpointState() {
    const TopicPartition& tp = key_group_.endpoint_state;
    const auto pass = [this, &tp](const DurableEntry& read) -> absl::Status {
      const absl::optional<StateKey> key = DecodeStateKey(read.identity);
      if (!key) return Unreadable(tp, "an identity");
      switch (key->state) {
        case kHasBacklogState:
          return absl::OkStatus();
        case kHealthState:
        case kOperationalState:
        case kLearnedState:
          return PassState(key->key, read);
        default:
          return key->state < kReservedStateIds ? Unknown(tp, key->state) : absl::OkStatus();
      }
    };
    return ReadState(kEndpointChangelog, tp, pass);
  }

  // As if an owner before the first one had put it, whose epoch nobody has: the first one puts it
  // again under its own.
  absl::Status PassState(const std::string& endpoint, const DurableEntry& read) {
    if (!append_state_) return absl::OkStatus();
    ChangelogRecord put;
    put.kind = ChangelogKind::kPut;
    put.epoch = 0;
    put.identity = std::string(read.identity);
    put.payload = std::string(read.payload);
    EncodedChangelogRecord encoded = EncodeChangelogRecord(put);
    AppendRecord record;
    record.key = std::move(encoded.key);
    record.value = std::move(encoded.value);
    ++figures_.states;
    return append_state_(endpoint, std::move(record));
  }

  absl::Status ReadBacklog() {
    const TopicPartition& tp = key_group_.backlog;
    return ReadState(kBacklogChangelog, tp,
                     [this, &tp](const DurableEntry& read) { return Take(tp, read); });
  }

  absl::Status ReadState(size_t changelog, const TopicPartition& tp, MovedKeyGroup::Visitor visit) {
    if (key_group_.read_state) return key_group_.read_state(changelog, visit);
    ASSIGN_OR_RETURN(const Log::Range range, log_.Offsets(tp, timeout_));
    DurableStateReader states(reader_, spool_directory_);
    return states.Read(tp, range.end, visit).status();
  }

  absl::Status Take(const TopicPartition& tp, const DurableEntry& read) {
    const absl::optional<StateKey> key = DecodeStateKey(read.identity);
    if (!key) return Unreadable(tp, "an identity");
    if (key->state >= kReservedStateIds) return absl::OkStatus();
    const absl::optional<StatePayload> payload = DecodeStatePayload(read.payload);
    if (!payload) return Unreadable(tp, "a value");
    IdBytes name{};
    if (key->sub_key.size() != name.size()) return Unreadable(tp, "a name");
    std::copy_n(key->sub_key.begin(), name.size(), name.begin());
    switch (key->state) {
      case kBacklogState: {
        RETURN_IF_ERROR(CheckState(tp, key->state, payload->version, kEntryVersion));
        Entry entry;
        entry.order = payload->order;
        entry.key = key->key;
        entry.digest = name;
        entry.bytes = static_cast<uint32_t>(payload->bytes.size());
        ASSIGN_OR_RETURN(entry.place, contents_->Append(payload->bytes));
        digests_.insert(name);
        entries_.push_back(std::move(entry));
        return absl::OkStatus();
      }
      case kBatchesState: {
        const auto serializer = BatchMembersSerializer();
        RETURN_IF_ERROR(CheckState(tp, key->state, payload->version, serializer.version_max));
        auto members = serializer.decode(payload->bytes, payload->version);
        if (!members) return Unreadable(tp, "a batch");
        members_[{key->key, name}] = *std::move(members);
        return absl::OkStatus();
      }
      case kAttemptsState: {
        const auto serializer = BatchAttemptsSerializer();
        RETURN_IF_ERROR(CheckState(tp, key->state, payload->version, serializer.version_max));
        const auto attempts = serializer.decode(payload->bytes, payload->version);
        if (!attempts) return Unreadable(tp, "a batch's attempts");
        attempts_[{key->key, name}] = *attempts;
        return absl::OkStatus();
      }
      default:
        return Unknown(tp, key->state);
    }
  }

  // A worker may have passed on a result for another one that was gone already. One that cannot be
  // read costs a repeat.
  absl::Status ReadResults() {
    const auto take = [this](const LogRecord& record) {
      if (record.Header(kResultHeader).data() == nullptr) return absl::OkStatus();
      const auto result = DecodeOperationResult(record.value);
      if (!result.ok()) return absl::OkStatus();
      const auto flight = DecodeFlightResult(result->outcome);
      // Where a part has failed all of it is tried again.
      if (!flight.ok() || flight->untried || flight->outcome.verdict != Verdict::kDone ||
          !flight->failed.empty()) {
        return absl::OkStatus();
      }
      for (const int64_t offset : result->offsets) {
        delivered_.insert({result->key, static_cast<uint64_t>(offset)});
      }
      for (const IdBytes& member : flight->parked_members) {
        delivered_entries_.insert({result->key, member});
      }
      const auto batch = members_.find({result->key, result->id});
      if (batch == members_.end()) return absl::OkStatus();
      for (const BatchMember& member : batch->second) {
        delivered_entries_.insert({result->key, member.digest});
      }
      members_.erase(batch);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(ReadLeftOver(take));
    if (delivered_.empty() && delivered_entries_.empty()) return absl::OkStatus();
    std::erase_if(entries_, [this](const Entry& entry) {
      return delivered_.contains({entry.key, entry.order}) ||
             delivered_entries_.contains({entry.key, entry.digest});
    });
    return absl::OkStatus();
  }

  void JoinBatches() {
    absl::flat_hash_map<BatchId, size_t> places;  // of entries, by endpoint and digest
    if (!members_.empty()) {
      for (size_t i = 0; i < entries_.size(); ++i) {
        places[{entries_[i].key, entries_[i].digest}] = i;
      }
    }
    const WallTime now = clock_.Wall();
    for (const auto& [id, members] : members_) {
      Batch batch;
      batch.key = id.second;
      const auto attempts = attempts_.find(id);
      // As a worker takes one whose attempts are not known.
      batch.attempts =
          attempts != attempts_.end() ? attempts->second : BatchAttempts{0, 1, now, now, 0, 0, {}};
      for (const BatchMember& member : members) {
        const auto place = places.find({id.first, member.digest});
        if (place == places.end() || entries_[place->second].batch >= 0) continue;
        entries_[place->second].batch = static_cast<int64_t>(batches_.size());
        batch.members.push_back(place->second);
      }
      std::sort(batch.members.begin(), batch.members.end());
      if (!batch.members.empty()) batches_.push_back(std::move(batch));
    }
    figures_.batches += batches_.size();
  }

  absl::Status PassEntry(const Entry& entry, const ParkedHeader& header) {
    AppendRecord record;
    record.key = entry.key;
    ASSIGN_OR_RETURN(record.value, contents_->Read(entry.place, entry.bytes));
    record.headers = {{std::string(kParkedHeader), EncodeParkedHeader(header)}};
    ++figures_.entries;
    return append_(std::move(record));
  }

  absl::Status PassBatch(Batch& batch) {
    if (std::exchange(batch.passed, true)) return absl::OkStatus();
    ParkedHeader header;
    header.batch.emplace();
    header.batch->key = batch.key;
    header.batch->count = static_cast<uint32_t>(batch.members.size());
    header.batch->attempts = batch.attempts;
    for (size_t i = 0; i < batch.members.size(); ++i) {
      header.batch->index = static_cast<uint32_t>(i);
      RETURN_IF_ERROR(PassEntry(entries_[batch.members[i]], header));
    }
    return absl::OkStatus();
  }

  absl::Status PassEntriesBelow(uint64_t offset) {
    for (; next_ < entries_.size() && entries_[next_].order < offset; ++next_) {
      const Entry& entry = entries_[next_];
      if (entry.batch >= 0) {
        RETURN_IF_ERROR(PassBatch(batches_[static_cast<size_t>(entry.batch)]));
      } else {
        RETURN_IF_ERROR(PassEntry(entry, ParkedHeader()));
      }
    }
    return absl::OkStatus();
  }

  // Records of the dispatch topic that nobody has completed.
  absl::Status ReadLeftOver(const std::function<absl::Status(const LogRecord&)>& visit) {
    OffsetSet completed;
    int64_t begin = 0;
    if (key_group_.committed) {
      begin = key_group_.committed->offset;
      // One that cannot be read is ignored, as by a worker: repeats, no loss.
      const auto metadata =
          DecodeCommitMetadata(key_group_.committed->metadata, key_group_.committed->offset);
      if (metadata) completed = metadata->completed;
    }
    if (begin >= key_group_.dispatch_end) return absl::OkStatus();
    return reader_.ReadFrom(
        key_group_.dispatch, begin, key_group_.dispatch_end, [&](const LogRecord& record) {
          return completed.Contains(record.offset) ? absl::OkStatus() : visit(record);
        });
  }

  absl::Status PassLeftOver() {
    return ReadLeftOver([this](const LogRecord& record) -> absl::Status {
      const auto offset = static_cast<uint64_t>(record.offset);
      if (!delivered_.empty() && delivered_.contains({std::string(record.key), offset})) {
        return absl::OkStatus();
      }
      if (record.Header(kResultHeader).data() != nullptr) return absl::OkStatus();
      if (!digests_.empty()) {
        const auto decoded = subscriptions::DecodeDispatchRecord(record.value);
        if (decoded.ok() && digests_.contains(decoded->identity.Digest())) return absl::OkStatus();
      }
      RETURN_IF_ERROR(PassEntriesBelow(offset));
      AppendRecord carried;
      carried.key = std::string(record.key);
      carried.value = std::string(record.value);
      carried.tombstone = record.value.data() == nullptr;
      for (const RecordHeader& header : record.headers) {
        carried.headers.emplace_back(std::string(header.name), std::string(header.value));
      }
      ++figures_.left_over;
      return append_(std::move(carried));
    });
  }

  Log& log_;
  const Clock& clock_;
  BlockingReader& reader_;
  const MovedKeyGroup& key_group_;
  const std::string& spool_directory_;
  const std::chrono::milliseconds timeout_;
  const std::function<absl::Status(AppendRecord&&)>& append_;
  const AppendState& append_state_;
  MoveFigures& figures_;
  std::unique_ptr<Contents> contents_;
  std::vector<Entry> entries_;
  size_t next_ = 0;  // of those to pass
  absl::flat_hash_set<IdBytes> digests_;
  std::map<BatchId, std::vector<BatchMember>> members_;
  std::map<BatchId, BatchAttempts> attempts_;
  std::vector<Batch> batches_;
  // By unread results, each with its endpoint's key: records by offset, entries by digest.
  absl::flat_hash_set<std::pair<std::string, uint64_t>> delivered_;
  absl::flat_hash_set<BatchId> delivered_entries_;
};

}  // namespace

absl::Status MoveKeyGroup(Log& log, const Clock& clock, BlockingReader& reader,
                          const MovedKeyGroup& key_group, const std::string& spool_directory,
                          std::chrono::milliseconds timeout,
                          const std::function<absl::Status(AppendRecord&&)>& append,
                          const AppendState& append_state, MoveFigures* figures) {
  return Mover(log, clock, reader, key_group, spool_directory, timeout, append, append_state,
               figures)
      .Run();
}

}  // namespace postrider::delivery
