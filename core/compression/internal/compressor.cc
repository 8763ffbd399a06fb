#include "core/compression/compressor.h"

#include <zlib.h>
#include <zstd.h>

#include <cstddef>

#include "core/base/check.h"

namespace postrider {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;
constexpr int kGzipLevel = 1;
// 32 KB of window and the header of gzip.
constexpr int kGzipWindowBits = 15 + 16;
constexpr int kGzipMemoryLevel = 8;
constexpr int kZstdLevel = 1;

struct ZstdDeleter {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

}  // namespace

struct Compressor::Impl {
  z_stream gzip{};
  bool gzip_begun = false;
  std::unique_ptr<ZSTD_CCtx, ZstdDeleter> zstd;

  ~Impl() {
    if (gzip_begun) deflateEnd(&gzip);
  }
  std::string Gzip(absl::string_view text);
  std::string Zstd(absl::string_view text);
};

Compressor::Compressor() : impl_(std::make_unique<Impl>()) {}
Compressor::~Compressor() = default;

// Neither can fail but for want of memory, for the output has room for the worst case.
std::string Compressor::Impl::Gzip(absl::string_view text) {
  if (!gzip_begun) {
    POSTRIDER_CHECK(deflateInit2(&gzip, kGzipLevel, Z_DEFLATED, kGzipWindowBits, kGzipMemoryLevel,
                                 Z_DEFAULT_STRATEGY) == Z_OK);
    gzip_begun = true;
  } else {
    POSTRIDER_CHECK(deflateReset(&gzip) == Z_OK);
  }
  std::string out(deflateBound(&gzip, text.size()), '\0');
  // zlib never writes to its input.
  gzip.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  gzip.avail_in = static_cast<uInt>(text.size());
  gzip.next_out = reinterpret_cast<Bytef*>(out.data());
  gzip.avail_out = static_cast<uInt>(out.size());
  POSTRIDER_CHECK(deflate(&gzip, Z_FINISH) == Z_STREAM_END);
  out.resize(gzip.total_out);
  return out;
}

std::string Compressor::Impl::Zstd(absl::string_view text) {
  if (zstd == nullptr) {
    zstd.reset(ZSTD_createCCtx());
    POSTRIDER_CHECK(zstd != nullptr);
    POSTRIDER_CHECK(
        !ZSTD_isError(ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_compressionLevel, kZstdLevel)));
  }
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const size_t bytes = ZSTD_compress2(zstd.get(), out.data(), out.size(), text.data(), text.size());
  POSTRIDER_CHECK(!ZSTD_isError(bytes));
  out.resize(bytes);
  return out;
}

std::string Compressor::Compress(Compression kind, absl::string_view text) {
  POSTRIDER_CHECK(text.size() <= kTextBytesMax);
  std::string out = kind == Compression::kGzip ? impl_->Gzip(text) : impl_->Zstd(text);
  // What it did not need is not carried along with the request.
  if (out.capacity() - out.size() > out.size() / 4) out.shrink_to_fit();
  return out;
}

}  // namespace postrider
