#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "loadtest/plan.h"

namespace postrider::loadtest {

// One event that `generate` handed to Kafka.
struct ProducedRecord {
  uint64_t number = 0;
  int64_t sent_us = 0;  // since the epoch
  EventFields event;
  bool acknowledged = false;  // by all in-sync replicas; else its fate is unknown

  static constexpr size_t kSize = 24;
  static constexpr absl::string_view kMagic = "PRledgP1";
};

// One message in one request that `receive` answered.
struct ReceivedRecord {
  enum Flag : uint8_t {
    kAccepted = 1,  // answered 2xx: the sender is done with it
    kBadSignature = 2,
    kBadContent = 4,   // the payload is not what was produced
    kBadEnvelope = 8,  // the envelope contradicts its payload
    kBatch = 16,       // came in an array
  };
  uint64_t number = 0;
  int64_t arrived_us = 0;  // since the epoch
  uint32_t run = 0;        // of the event id
  uint32_t endpoint = 0;   // index in the plan, from the path
  uint32_t message = 0;    // a hash of the message id
  uint8_t attempt = 0;
  uint8_t flags = 0;
  uint16_t batch_size = 0;

  static constexpr size_t kSize = 32;
  static constexpr absl::string_view kMagic = "PRledgR1";
};

// A ledger is a 16-byte head (magic, run, size of a record) and records of one size, little-endian,
// appended and never changed, so that it can be read while it is written.
template <typename Record>
std::string EncodeLedgerHead(uint32_t run);
void EncodeRecord(const ProducedRecord& record, std::string* out);
void EncodeRecord(const ReceivedRecord& record, std::string* out);

template <typename Record>
struct Ledger {
  uint32_t run = 0;
  std::vector<Record> records;
  size_t torn_bytes = 0;  // of a last record that was not written whole
};
// `bytes` come from a file that anybody may have damaged: a wrong head is kDataLoss.
template <typename Record>
absl::StatusOr<Ledger<Record>> DecodeLedger(absl::string_view bytes);
template <typename Record>
absl::StatusOr<Ledger<Record>> ReadLedger(const std::string& path);

// Appends to a ledger file, made anew. Bounded: it holds one buffer of at most 1 MB; Flush() writes
// it out and must be called about once a second.
// Threads: owned by one.
template <typename Record>
class LedgerWriter {
 public:
  static absl::StatusOr<std::unique_ptr<LedgerWriter>> Create(const std::string& path,
                                                              uint32_t run);
  void Add(const Record& record);
  // Also tells of an earlier failure.
  absl::Status Flush();

 private:
  struct Closer {
    void operator()(FILE* file) const { fclose(file); }
  };
  explicit LedgerWriter(FILE* file) : file_(file) {}

  std::unique_ptr<FILE, Closer> file_;
  std::string buffer_;
  bool failed_ = false;
};

}  // namespace postrider::loadtest
