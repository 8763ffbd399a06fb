#include "core/postgres/copy.h"

#include "absl/strings/str_cat.h"
#include "core/postgres/statement.h"

namespace postrider {

void CopyRows::Column() {
  if (in_row_) out_.push_back('\t');
  in_row_ = true;
}

CopyRows& CopyRows::Text(absl::string_view text) {
  Column();
  for (const char c : text) {
    switch (c) {
      case '\\':
        out_.append("\\\\");
        break;
      case '\n':
        out_.append("\\n");
        break;
      case '\r':
        out_.append("\\r");
        break;
      case '\t':
        out_.append("\\t");
        break;
      default:
        out_.push_back(c);
    }
  }
  return *this;
}

CopyRows& CopyRows::Int(int64_t value) {
  Column();
  absl::StrAppend(&out_, value);
  return *this;
}

CopyRows& CopyRows::Uuid(const IdBytes& value) {
  Column();
  out_.append(FormatUuid(value));
  return *this;
}

CopyRows& CopyRows::Bytes(absl::string_view bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  Column();
  out_.append("\\\\x");
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out_.push_back(kHex[byte >> 4]);
    out_.push_back(kHex[byte & 15]);
  }
  return *this;
}

CopyRows& CopyRows::Time(WallTime value) { return Text(*SqlParam::Time(value).value()); }

CopyRows& CopyRows::Null() {
  Column();
  out_.append("\\N");
  return *this;
}

void CopyRows::EndRow() {
  out_.push_back('\n');
  in_row_ = false;
  ++rows_;
}

}  // namespace postrider
