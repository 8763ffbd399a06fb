#include "loadtest/ledger.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "core/base/status_macros.h"

namespace postrider::loadtest {
namespace {

constexpr size_t kHeadSize = 16;
constexpr size_t kBufferMax = 1 << 20;

void U16(uint16_t value, ByteWriter* out) {
  out->U8(static_cast<uint8_t>(value & 0xff));
  out->U8(static_cast<uint8_t>(value >> 8));
}
uint16_t U16(ByteReader* in) {
  const uint32_t low = in->U8();
  return static_cast<uint16_t>(low | (static_cast<uint32_t>(in->U8()) << 8));
}

void Decode(ByteReader* in, ProducedRecord* record) {
  record->number = in->U64();
  record->sent_us = static_cast<int64_t>(in->U64());
  record->event.tenant = in->U32();
  record->event.type = U16(in);
  record->event.department = in->U8();
  record->acknowledged = in->U8() != 0;
}

void Decode(ByteReader* in, ReceivedRecord* record) {
  record->number = in->U64();
  record->arrived_us = static_cast<int64_t>(in->U64());
  record->run = in->U32();
  record->endpoint = in->U32();
  record->message = in->U32();
  record->attempt = in->U8();
  record->flags = in->U8();
  record->batch_size = U16(in);
}

}  // namespace

template <typename Record>
std::string EncodeLedgerHead(uint32_t run) {
  ByteWriter out;
  out.Raw(Record::kMagic);
  out.U32(run);
  out.U32(static_cast<uint32_t>(Record::kSize));
  return out.Take();
}

void EncodeRecord(const ProducedRecord& record, std::string* out) {
  ByteWriter writer;
  writer.U64(record.number);
  writer.U64(static_cast<uint64_t>(record.sent_us));
  writer.U32(record.event.tenant);
  U16(record.event.type, &writer);
  writer.U8(record.event.department);
  writer.U8(record.acknowledged ? 1 : 0);
  out->append(writer.bytes());
}

void EncodeRecord(const ReceivedRecord& record, std::string* out) {
  ByteWriter writer;
  writer.U64(record.number);
  writer.U64(static_cast<uint64_t>(record.arrived_us));
  writer.U32(record.run);
  writer.U32(record.endpoint);
  writer.U32(record.message);
  writer.U8(record.attempt);
  writer.U8(record.flags);
  U16(record.batch_size, &writer);
  out->append(writer.bytes());
}

template <typename Record>
absl::StatusOr<Ledger<Record>> DecodeLedger(absl::string_view bytes) {
  ByteReader in(bytes);
  const absl::string_view magic = in.Raw(Record::kMagic.size());
  Ledger<Record> ledger;
  ledger.run = in.U32();
  const uint32_t size = in.U32();
  if (!in.ok() || magic != Record::kMagic || size != Record::kSize) {
    return absl::DataLossError("loadtest: no ledger of this kind");
  }
  ledger.records.resize(in.rest().size() / Record::kSize);
  for (Record& record : ledger.records) Decode(&in, &record);
  ledger.torn_bytes = in.rest().size();
  return ledger;
}

template <typename Record>
absl::StatusOr<Ledger<Record>> ReadLedger(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  if (!in) return absl::NotFoundError(absl::StrCat("loadtest: cannot read ", path));
  absl::StatusOr<Ledger<Record>> ledger = DecodeLedger<Record>(bytes.str());
  if (!ledger.ok()) {
    return absl::Status(ledger.status().code(),
                        absl::StrCat(ledger.status().message(), ": ", path));
  }
  return ledger;
}

template <typename Record>
absl::StatusOr<std::unique_ptr<LedgerWriter<Record>>> LedgerWriter<Record>::Create(
    const std::string& path, uint32_t run) {
  FILE* file = fopen(path.c_str(), "wbe");
  if (file == nullptr) {
    return absl::UnavailableError(absl::StrCat("loadtest: cannot write ", path));
  }
  std::unique_ptr<LedgerWriter> writer(new LedgerWriter(file));
  writer->buffer_ = EncodeLedgerHead<Record>(run);
  RETURN_IF_ERROR(writer->Flush());
  return writer;
}

template <typename Record>
void LedgerWriter<Record>::Add(const Record& record) {
  EncodeRecord(record, &buffer_);
  if (buffer_.size() >= kBufferMax && !Flush().ok()) failed_ = true;
}

template <typename Record>
absl::Status LedgerWriter<Record>::Flush() {
  const size_t written = fwrite(buffer_.data(), 1, buffer_.size(), file_.get());
  if (written != buffer_.size() || fflush(file_.get()) != 0) failed_ = true;
  buffer_.clear();
  if (failed_) return absl::UnavailableError("loadtest: the ledger cannot be written");
  return absl::OkStatus();
}

template std::string EncodeLedgerHead<ProducedRecord>(uint32_t run);
template std::string EncodeLedgerHead<ReceivedRecord>(uint32_t run);
template absl::StatusOr<Ledger<ProducedRecord>> DecodeLedger(absl::string_view bytes);
template absl::StatusOr<Ledger<ReceivedRecord>> DecodeLedger(absl::string_view bytes);
template absl::StatusOr<Ledger<ProducedRecord>> ReadLedger(const std::string& path);
template absl::StatusOr<Ledger<ReceivedRecord>> ReadLedger(const std::string& path);
template class LedgerWriter<ProducedRecord>;
template class LedgerWriter<ReceivedRecord>;

}  // namespace postrider::loadtest
