#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/id.h"

namespace postrider {

// Makes the lines of COPY ... FROM STDIN (text form): columns in order, then EndRow().
class CopyRows {
 public:
  CopyRows& Text(absl::string_view text);  // without NUL: Postgres refuses it
  CopyRows& Int(int64_t value);
  CopyRows& Uuid(const IdBytes& value);
  CopyRows& Bytes(absl::string_view bytes);
  CopyRows& Time(WallTime value);
  CopyRows& Null();
  void EndRow();

  size_t rows() const { return rows_; }
  size_t bytes() const { return out_.size(); }
  std::string Take() { return std::move(out_); }

 private:
  void Column();

  std::string out_;
  size_t rows_ = 0;
  bool in_row_ = false;
};

}  // namespace postrider
