#include "core/embedded_log/internal/run.h"

#include <cstring>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/check.h"

namespace postrider::embedded_log_internal {
namespace {

constexpr uint8_t kVersion = 1;
// A record has a few; more is damage.
constexpr uint64_t kHeadersMax = 10'000;
// What no clock says, and what can be added without an overflow.
constexpr int64_t kMillisMax = int64_t{1} << 53;
constexpr int64_t kOffsetMax = int64_t{1} << 62;

bool IsTime(int64_t ms) { return -kMillisMax < ms && ms < kMillisMax; }

void PutVarint(std::string& out, uint64_t value) {
  char raw[10];
  size_t size = 0;
  while (value >= 0x80) {
    raw[size++] = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  raw[size++] = static_cast<char>(value);
  out.append(raw, size);
}
uint64_t Zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
void PutString(std::string& out, absl::string_view text) {
  PutVarint(out, text.size());
  out.append(text.data(), text.size());
}

}  // namespace

absl::optional<RunHeader> ReadRunHeader(absl::string_view bytes) {
  ByteReader reader(bytes);
  const uint8_t version = reader.U8();
  reader.Raw(3);
  RunHeader header;
  header.records = reader.U32();
  header.next = static_cast<int64_t>(reader.U64());
  header.first_ms = static_cast<int64_t>(reader.U64());
  header.high_ms = static_cast<int64_t>(reader.U64());
  header.bytes_before = reader.U64();
  if (!reader.ok() || version != kVersion || header.next <= 0 || header.next > kOffsetMax ||
      !IsTime(header.first_ms) || !IsTime(header.high_ms)) {
    return absl::nullopt;
  }
  return header;
}

void RunBuilder::Begin(int64_t base, int64_t ms) {
  POSTRIDER_DCHECK(empty());
  base_ = base;
  header_ = RunHeader();
  header_.first_ms = ms;
  bytes_.assign(kRunHeaderBytes, '\0');
}

void RunBuilder::AddHead(int64_t offset, int64_t ms, absl::string_view key, absl::string_view value,
                         bool tombstone, size_t headers) {
  ++header_.records;
  PutVarint(bytes_, static_cast<uint64_t>(offset - base_));
  PutVarint(bytes_, Zigzag(ms - header_.first_ms));
  PutVarint(bytes_, (headers << 1) | (tombstone ? 1 : 0));
  PutString(bytes_, key);
  PutString(bytes_, value);
}

void RunBuilder::Add(int64_t offset, int64_t ms, absl::string_view key, absl::string_view value,
                     bool tombstone,
                     const std::vector<std::pair<std::string, std::string>>& headers) {
  AddHead(offset, ms, key, value, tombstone, headers.size());
  for (const auto& [name, content] : headers) {
    PutString(bytes_, name);
    PutString(bytes_, content);
  }
}

void RunBuilder::Add(int64_t offset, int64_t ms, const LogRecord& record) {
  AddHead(offset, ms, record.key, record.value, record.value.data() == nullptr,
          record.headers.size());
  for (const RecordHeader& header : record.headers) {
    PutString(bytes_, header.name);
    PutString(bytes_, header.value);
  }
}

std::shared_ptr<Run> RunBuilder::Finish(int64_t next, int64_t high_ms, uint64_t bytes_before) {
  ByteWriter header(kRunHeaderBytes);
  header.U8(kVersion);
  header.Raw(absl::string_view("\0\0\0", 3));
  header.U32(header_.records);
  header.U64(static_cast<uint64_t>(next));
  header.U64(static_cast<uint64_t>(header_.first_ms));
  header.U64(static_cast<uint64_t>(high_ms));
  header.U64(bytes_before);
  POSTRIDER_CHECK(header.bytes().size() == kRunHeaderBytes);
  std::memcpy(bytes_.data(), header.bytes().data(), kRunHeaderBytes);
  auto run = std::make_shared<Run>();
  run->base = base_;
  run->next = next;
  run->bytes = std::move(bytes_);
  bytes_.clear();
  header_ = RunHeader();
  return run;
}

RunReader::RunReader(const Run& run) : base_(run.base), next_(run.next) {
  if (run.bytes.empty()) return;
  const absl::optional<RunHeader> header = ReadRunHeader(run.bytes);
  if (!header.has_value() || header->next != run.next || run.base < 0 || run.next <= run.base) {
    damaged_ = true;
    return;
  }
  left_ = header->records;
  first_ms_ = header->first_ms;
  rest_ = absl::string_view(run.bytes).substr(kRunHeaderBytes);
}

bool RunReader::Next(LogRecord* record) {
  if (left_ == 0 || damaged_) return false;
  ByteReader reader(rest_);
  const uint64_t delta = reader.Varint();
  const int64_t ms = reader.Zigzag();
  const uint64_t flags = reader.Varint();
  record->key = reader.String();
  record->value = reader.String();
  if ((flags & 1) != 0) {
    record->value = absl::string_view();
  } else if (record->value.data() == nullptr) {
    record->value = absl::string_view("", 0);
  }
  const uint64_t count = flags >> 1;
  headers_.clear();
  for (uint64_t i = 0; i < count && reader.ok() && count <= kHeadersMax; ++i) {
    const absl::string_view name = reader.String();
    headers_.push_back({name, reader.String()});
  }
  if (!reader.ok() || count > kHeadersMax || delta >= static_cast<uint64_t>(next_ - base_) ||
      base_ + static_cast<int64_t>(delta) <= last_ || !IsTime(ms)) {
    damaged_ = true;
    return false;
  }
  record->offset = base_ + static_cast<int64_t>(delta);
  last_ = record->offset;
  record->timestamp = WallTimeFromMillis(first_ms_ + ms);
  record->headers = headers_;
  rest_ = reader.rest();
  --left_;
  return true;
}

}  // namespace postrider::embedded_log_internal
