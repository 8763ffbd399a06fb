#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/http/internal/response_reader.h"

namespace postrider::internal {

// Takes the chunked coding (RFC 9112, 7.1) off a body, up to the line of the last chunk: the
// trailers after it are not its matter. Extensions are skipped; their bytes count to the limit of
// the header's.
class ChunkedBody {
 public:
  enum class Phase : uint8_t {
    kMore,
    kLast,    // the last chunk's line is complete
    kBroken,  // that is no chunk, or its extensions are too long
    kFull,    // more came than is wanted
  };

  void Start() { *this = ChunkedBody(); }
  // Returns how many bytes it took: all while phase() is kMore. `reader` gets the body's.
  size_t Take(absl::string_view bytes, ResponseReader& reader);
  Phase phase() const { return phase_; }
  // A line ended in LF alone, which not everyone reads as its end.
  bool loose() const { return loose_; }

 private:
  //   kSize -> (kExtension ->) kSizeLf -> kData -> kDataCr -> kDataLf -> kSize
  enum class Step : uint8_t { kSize, kExtension, kSizeLf, kData, kDataCr, kDataLf };

  void OnByte(char c, ResponseReader& reader);
  void OnSizeByte(char c, ResponseReader& reader);
  void EndSize();
  void NextSize();

  uint64_t left_ = 0;
  int digits_ = 0;
  Step step_ = Step::kSize;
  Phase phase_ = Phase::kMore;
  bool loose_ = false;
};

}  // namespace postrider::internal
