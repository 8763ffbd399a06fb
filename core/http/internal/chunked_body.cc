#include "core/http/internal/chunked_body.h"

#include <algorithm>

#include "core/base/hex.h"

namespace postrider::internal {
namespace {

// Leading zeros included: larger than any body, and no shift ever drops a bit.
constexpr int kDigitsMax = 15;

}  // namespace

size_t ChunkedBody::Take(absl::string_view bytes, ResponseReader& reader) {
  size_t taken = 0;
  while (taken < bytes.size() && phase_ == Phase::kMore) {
    if (step_ != Step::kData) {
      OnByte(bytes[taken++], reader);
      continue;
    }
    const auto size = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size() - taken));
    if (!reader.OnBody(bytes.substr(taken, size))) phase_ = Phase::kFull;
    taken += size;
    left_ -= size;
    if (left_ == 0) step_ = Step::kDataCr;
  }
  return taken;
}

void ChunkedBody::OnByte(char c, ResponseReader& reader) {
  switch (step_) {
    case Step::kSize:
    case Step::kExtension:
      OnSizeByte(c, reader);
      return;
    case Step::kSizeLf:
      if (c != '\n') break;
      EndSize();
      return;
    case Step::kDataCr:
      if (c == '\r') {
        step_ = Step::kDataLf;
        return;
      }
      loose_ = true;
      [[fallthrough]];
    case Step::kDataLf:
      if (c != '\n') break;
      NextSize();
      return;
    case Step::kData:
      break;
  }
  phase_ = Phase::kBroken;
}

void ChunkedBody::OnSizeByte(char c, ResponseReader& reader) {
  const int digit = step_ == Step::kSize ? HexDigit(c) : -1;
  if (digit >= 0) {
    if (++digits_ > kDigitsMax) phase_ = Phase::kBroken;
    left_ = left_ << 4 | static_cast<uint64_t>(digit);
  } else if (digits_ == 0) {
    phase_ = Phase::kBroken;
  } else if (c == '\r') {
    step_ = Step::kSizeLf;
  } else if (c == '\n') {
    loose_ = true;
    EndSize();
  } else if (step_ == Step::kExtension || c == ';' || c == ' ' || c == '\t') {
    step_ = Step::kExtension;
    if (!reader.CountBytes(1)) phase_ = Phase::kBroken;
  } else {
    phase_ = Phase::kBroken;
  }
}

void ChunkedBody::EndSize() {
  if (left_ == 0) {
    phase_ = Phase::kLast;
  } else {
    step_ = Step::kData;
  }
}

void ChunkedBody::NextSize() {
  left_ = 0;
  digits_ = 0;
  step_ = Step::kSize;
}

}  // namespace postrider::internal
